"""The arrows: frozen records that travel between the stages of one update.

::

    collect -> Rollout -> targets -> Targets -> cut -> Minibatch -> losses -> LossTerms
            -> optimizer step -> StepInfo -> UpdateResult

A number needed later is a field of the value being passed on; nothing is left behind on a policy or
an agent by its latest call. Each record can be built by hand in a test. Shape letters are those of
:mod:`quantail.types`; values, returns and rewards are in raw reward units throughout.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from torch import Tensor

from quantail.cost_records import CostCarry, CostInfo, CostRows, CostTargets
from quantail.laws import (
    ActionDistribution,
    CoreState,
    Observation,
    PolicyState,
    RowIndex,
    ValueDistribution,
)
from quantail.tail_records import BudgetCarry, BudgetRows, RiskInfo, TailTargets

__all__ = [
    "ActionDistribution",
    "AdvantageInfo",
    "BudgetCarry",
    "BudgetRows",
    "Coefficients",
    "ControlInfo",
    "CoreState",
    "CostCarry",
    "CostInfo",
    "CostRows",
    "CostTargets",
    "EpisodeInfo",
    "Faults",
    "LossTerms",
    "Minibatch",
    "Observation",
    "Place",
    "PolicyOutput",
    "PolicyState",
    "RatioInfo",
    "RiskInfo",
    "Rollout",
    "RolloutCarry",
    "RowIndex",
    "StepInfo",
    "TailTargets",
    "Targets",
    "UpdateResult",
    "ValueDistribution",
]

Place: TypeAlias = Literal[
    "log_ratio", "loss", "gradient", "parameter", "observation", "reward", "action"
]
"""Where something was not finite."""


@dataclass(frozen=True, slots=True)
class PolicyOutput:
    """Everything one forward pass of a policy says."""

    actions: ActionDistribution
    values: tuple[ValueDistribution, ...]
    """One law per critic."""
    state: PolicyState
    """State after the observation was read."""
    cost: ValueDistribution | None = None
    """Of the cost critic; None without a limit on a mean cost."""


@dataclass(frozen=True, slots=True)
class EpisodeInfo:
    """Episodes that ended during a rollout, in order of their end."""

    returns: tuple[float, ...]
    """Undiscounted sums of raw rewards."""
    lengths: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Faults:
    """What an environment or a policy gave that was not finite; such rows are left out."""

    rows: Tensor
    """[T, N] bool: rows whose observation, reward or action was bad."""
    counts: Mapping[Place, int]
    """Bad rows by place."""
    steps: tuple[Place | None, ...]
    """For each of the T steps where it was bad first; None where it was not."""
    first: str
    """The first bad number, in words."""


@dataclass(frozen=True, slots=True)
class Rollout:
    """``T`` steps of ``N`` environments as acted, with what the acting pass said.

    Row t holds the observation before the action; ``terminated`` and ``truncated`` say what the
    action led to. The value of what follows row t is the truncation's own value where the row is
    truncated, zero where it is terminated, otherwise the value of row t + 1.
    """

    observations: Observation
    """[T, N, ...], as the environment gave them."""
    actions: Tensor
    """[T, N, A] raw, as sampled."""
    policy: ActionDistribution
    """The acting law, rows [T, N]."""
    log_probs: Tensor
    """[T, N], of the raw actions under the acting law."""
    values: tuple[ValueDistribution, ...]
    """Per critic, rows [T, N], from the acting pass."""
    last_values: tuple[ValueDistribution, ...]
    """Per critic, rows [N]: the observation after the last step."""
    truncated_values: tuple[ValueDistribution, ...]
    """Per critic, one row for each truncated step in row-major order: its final observation."""
    rewards: Tensor
    """[T, N], raw."""
    terminated: Tensor
    """[T, N] bool: the episode ended for good; nothing follows."""
    truncated: Tensor
    """[T, N] bool: the episode was cut; its final observation still has a value."""
    episode_starts: Tensor
    """[T, N] bool: the observation is the first of its episode."""
    weights: Tensor
    """[T, N] sample weights; 0 leaves a row out of every loss and statistic."""
    action_masks: Tensor | None
    """[T, N, choices] bool, for discrete actions."""
    chunk_states: PolicyState
    """State before the first row of each chunk: axis 0 counts chunks, then as a core state."""
    episodes: EpisodeInfo
    budget: BudgetRows | None = None
    """None when no tail risk is measured."""
    faults: Faults | None = None
    """None when all was finite."""
    groups: Sequence[Sequence[str]] | None = None
    """[T][N]: the group of each row, for statistics by group."""
    cost: CostRows | None = None
    """None without a limit on a mean cost."""


@dataclass(frozen=True, slots=True)
class RolloutCarry:
    """What acting must remember between rollouts: the only "last"."""

    observation: Observation
    """[N, ...]"""
    state: PolicyState
    episode_starts: Tensor
    """[N] bool"""
    returns: Tensor
    """[N], raw reward so far in the running episodes."""
    lengths: Tensor
    """[N]"""
    action_masks: Tensor | None
    budget: BudgetCarry | None = None
    """None when no tail risk is measured."""
    spoiled: Tensor | None = None
    """[N] bool: the observation was not finite, and stands in for it; None when all were."""
    cost: CostCarry | None = None
    """None without a limit on a mean cost."""


@dataclass(frozen=True, slots=True)
class AdvantageInfo:
    """What normalization did to the advantages."""

    mean: Tensor
    """Before normalization, scalar."""
    std: Tensor
    """Before normalization, scalar."""
    max_abs: Tensor
    """After normalization, scalar."""
    degenerate: Tensor
    """Scalar bool: too little variance to divide by, so only the mean was removed."""


@dataclass(frozen=True, slots=True)
class Targets:
    """What policy and critics learn toward."""

    advantages: Tensor
    """[T, N], normalized."""
    returns: Tensor
    """[T, N] scalar lambda-returns."""
    atoms: Tensor
    """[T, N, M] atoms of the target law of returns; M = 1 for scalar targets."""
    atom_weights: Tensor
    """[M], sum to 1."""
    info: AdvantageInfo
    tail: TailTargets | None = None
    """None when the tail has no weight."""
    cost: CostTargets | None = None
    """None without a limit on a mean cost."""


@dataclass(frozen=True, slots=True)
class Minibatch:
    """Whole chunks, without padding: [L, B / L, ...] with the state before their first row."""

    observations: Observation
    actions: Tensor
    policy: ActionDistribution
    log_probs: Tensor
    values: tuple[ValueDistribution, ...]
    episode_starts: Tensor
    weights: Tensor
    action_masks: Tensor | None
    state: PolicyState
    advantages: Tensor
    atoms: Tensor
    atom_weights: Tensor
    budget_inputs: Tensor | None = None
    """[L, B / L, K], where the policy sees its budget."""
    cost_returns: Tensor | None = None
    """[L, B / L], where a cost critic learns."""


@dataclass(frozen=True, slots=True)
class RatioInfo:
    """How far the policy has moved on a micro-batch; scalars outside the graph."""

    approx_kl: Tensor
    """Analytic KL(old || new), mean over rows."""
    sampled_kl: Tensor
    """The same, estimated from the sampled actions by k3."""
    clip_fraction: Tensor
    ratio_mean: Tensor
    log_ratio_mean: Tensor
    log_ratio_std: Tensor
    log_ratio_max_abs: Tensor
    log_ratio_extreme_fraction: Tensor
    """Share of rows with |log-ratio| > 10."""
    log_ratio_clamp_fraction: Tensor
    """Share of rows held at the overflow guard."""
    log_ratio_nan_count: Tensor
    log_ratio_inf_count: Tensor


@dataclass(frozen=True, slots=True)
class LossTerms:
    """The loss of one micro-batch, term by term; each a scalar in the graph."""

    total: Tensor
    policy: Tensor
    entropy: Tensor
    """Minus the mean entropy, before its coefficient."""
    values: tuple[Tensor, ...]
    """Per critic, before the coefficient."""
    penalty: Tensor
    """Coefficient times mean KL(old || new), as added."""
    imitation: Tensor
    """Before its coefficient; 0 when there is none."""
    ratio: RatioInfo
    cost: Tensor | None = None
    """Of the cost critic, before the coefficient of the critics; None without one."""


@dataclass(frozen=True, slots=True)
class StepInfo:
    """One minibatch and what its optimizer step did; scalars outside the graph."""

    losses: LossTerms
    """Over the minibatch: means by row weight, counts summed, extremes kept."""
    weight: float
    """Sum of the row weights behind the means."""
    grad_norm: Tensor
    """Before clipping."""
    grad_norm_clipped: Tensor
    critic_grad_norms: tuple[Tensor, ...]
    """Before clipping, per critic."""
    skipped: int
    """Micro-batches left out because something in them was not finite."""
    outcomes: tuple[Place | None, ...]
    """For each micro-batch, or for a step that was undone, where it was bad; None if it was not."""
    first_bad: str
    """What was not finite first, in words; empty if all was well."""
    taken: bool
    """Whether the optimizer stepped; not when no finite micro-batch was left, when the step was
    undone, or on a KL stop."""
    actor: bool
    """Whether the actor's terms were in the loss; not after it stopped while the critics go on."""
    stop: str
    """Why the actor stops here: absolute, consecutive or fraction; empty if it does not."""


@dataclass(frozen=True, slots=True)
class Coefficients:
    """The numbers that one cycle uses."""

    learning_rate: float
    """Of the actor and what it shares with the critics."""
    clip_range: float
    entropy: float
    value: float
    progress: float = 0.0
    """Share of training that is done."""
    critic_learning_rate: float | None = None
    """None is that of the actor."""
    value_clip_range: float | None = None
    """None is that of the value clipping itself."""
    kl_target: float | None = None
    """None when nothing reads the KL."""
    kl_penalty: float = 0.0
    imitation: float = 0.0
    cvar_weight: float | None = None
    """None is that of the risk settings."""


@dataclass(frozen=True, slots=True)
class ControlInfo:
    """What the controllers did in one cycle."""

    entropy_raw: float
    """The entropy coefficient before floor and boost."""
    entropy_nominal: float
    """Before the boost."""
    policy_entropy: float
    """Mean analytic base entropy of the acting policy, in nats."""
    entropy_slope: float | None
    """Of that, per cycle; None where nothing watches it."""
    decay_start: int | None
    """Cycle at which the entropy decay started."""
    has_entropy_control: bool
    epochs_planned: int
    epoch_factor: float
    """Share of the epochs that the next cycle may have."""
    rate_factor: float
    """What the KL controller multiplies learning rates by."""
    kl_exceeded: float
    """Share of the actor's minibatches above the target; 0 without a target."""
    penalty_terms: tuple[float, float, float, float] | None
    """Error, P, I and D of the KL penalty's controller."""
    faults: Mapping[Place, int]
    """Counts of this cycle."""
    rolled_back: bool
    """Whether the last healthy weights were put back."""
    normalizer_drift: tuple[float, float] | None
    """Of mean and deviation of the policy's own normalizer; None without one."""


@dataclass(frozen=True, slots=True)
class UpdateResult:
    """One cycle of learning, ready to be turned into metrics."""

    coefficients: Coefficients
    advantages: AdvantageInfo
    steps: tuple[StepInfo, ...]
    explained_variance: Tensor
    """Of the returns by the values of the acting pass."""
    explained_variance_after: Tensor | None
    """By the unclipped values of the updated critics; None when they were not asked."""
    explained_variance_grouped: Mapping[str, float]
    """By group of environments, after the update; empty without groups."""
    control: ControlInfo
    epochs: int
    """Epochs begun; fewer than asked when the KL stop acted."""
    stopped_early: bool
    risk: RiskInfo | None = None
    """None without tail risk."""
    cost: CostInfo | None = None
    """None without a limit on a mean cost."""
