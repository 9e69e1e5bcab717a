"""The arrows: frozen records that travel between the stages of one update.

::

    collect -> Rollout -> targets -> Targets -> cut -> Minibatch -> losses -> LossTerms
            -> optimizer step -> StepInfo -> UpdateResult

A number needed later is a field of the value being passed on; nothing is left behind on a policy or
an agent by its latest call. Each record can be built by hand in a test. Shape letters are those of
:mod:`quantail.types`; values, returns and rewards are in raw reward units throughout.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, Self, TypeAlias

from torch import Generator, Tensor

Observation: TypeAlias = Tensor | dict[str, Tensor]
"""One tensor, or one per key of a Dict space; leading axes are [T, N] or [N]."""

CoreState: TypeAlias = tuple[Tensor, ...]
"""State of one recurrent core, environments on axis 1: (h, c) for an LSTM, () without memory."""

RowIndex: TypeAlias = Tensor | tuple[Tensor | slice | int, ...] | slice | int
"""What may stand in brackets to pick rows."""


class PolicyState(NamedTuple):
    """Recurrent state of a policy *before* the next observation is read."""

    actor: CoreState
    critic: CoreState


class ValueDistribution(Protocol):
    """A law of returns for each row, in raw units; what every critic kind returns.

    Modes of value clipping and measures of risk are written once, over these methods. ``[...]``
    stands for the leading axes of the rows.
    """

    @property
    def scale(self) -> Tensor:
        """Return scale of the critic, in raw units; a scalar outside the graph."""

    def mean(self) -> Tensor:
        """Expected return, [...]."""

    def std(self) -> Tensor:
        """Standard deviation of the return, [...]."""

    def quantile(self, tau: float) -> Tensor:
        """Return the ``tau``-quantile, [...]."""

    def cvar(self, alpha: float) -> Tensor:
        """Mean of the worst ``alpha`` share of returns, [...]."""

    def atoms(self, generator: Generator | None = None) -> tuple[Tensor, Tensor]:
        """Return atoms [..., M] and their weights [M], which sum to 1."""

    def affine(self, shift: Tensor, scale: Tensor) -> Self:
        """Return the law of ``shift + scale * Z``; both [...], ``scale`` > 0."""

    def clamp(self, center: Self, width: Tensor) -> Self:
        """Return this law with each part held within ``width`` of the same part of ``center``."""

    def loss(self, atoms: Tensor, weights: Tensor) -> Tensor:
        """Distance [...] to the target law with ``atoms`` [..., M] and ``weights`` [M].

        In units of the return scale, so that it does not grow with the rewards.
        """

    def detach(self) -> Self:
        """Return the same law outside the graph."""

    def rows(self, index: RowIndex) -> Self:
        """Index the leading axes."""

    @classmethod
    def stack(cls, laws: Sequence[Self]) -> Self:
        """Stack the rows of several laws along a new first axis."""

    @classmethod
    def join(cls, laws: Sequence[Self]) -> Self:
        """Join the rows of several laws along their first axis."""


class ActionDistribution(Protocol):
    """A policy's law over actions for each row. ``raw`` actions are stored as sampled."""

    def sample(self, generator: Generator | None = None) -> Tensor:
        """Draw a raw action, [..., A] (or [...] for a single choice)."""

    def mode(self) -> Tensor:
        """Return the most likely raw action."""

    def to_env(self, raw: Tensor) -> Tensor:
        """Map a raw action into the action space."""

    def log_prob(self, raw: Tensor) -> Tensor:
        """Log-density of a raw action, summed over action dimensions, [...]."""

    def entropy(self) -> Tensor:
        """One number per row, [...]."""

    def kl(self, new: Self) -> Tensor:
        """Analytic KL(self || new), [...]."""

    def detach(self) -> Self:
        """Return the same law outside the graph."""

    def rows(self, index: RowIndex) -> Self:
        """Index the leading axes."""

    @classmethod
    def stack(cls, laws: Sequence[Self]) -> Self:
        """Stack the rows of several laws along a new first axis."""


@dataclass(frozen=True, slots=True)
class PolicyOutput:
    """Everything one forward pass of a policy says."""

    actions: ActionDistribution
    values: tuple[ValueDistribution, ...]
    """One law per critic."""
    state: PolicyState
    """State after the observation was read."""


@dataclass(frozen=True, slots=True)
class EpisodeInfo:
    """Episodes that ended during a rollout, in order of their end."""

    returns: tuple[float, ...]
    """Undiscounted sums of raw rewards."""
    lengths: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BudgetCarry:
    """Budgets of the running episodes, in float64; see :mod:`quantail.risk.budget`."""

    budget: Tensor
    """[N], before the next action."""
    explored: Tensor
    """[N] bool: the episode started from a drawn target, not from the policy's own."""
    returns: Tensor
    """[N], discounted raw rewards of the episode so far."""
    discount: Tensor
    """[N], weight of the next reward."""


@dataclass(frozen=True, slots=True)
class BudgetRows:
    """Budgets of a rollout."""

    budgets: Tensor
    """[T, N] float64, before the action of the row."""
    inputs: Tensor
    """[T, N, K], what the policy saw of them."""
    ended_returns: Tensor
    """[E] float64, discounted raw returns of the episodes that ended, in order of their end."""
    ended_explored: Tensor
    """[E] bool: the episode had started from a drawn target."""


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
class TailTargets:
    """The part of the advantages that is due to the tail."""

    advantages: Tensor
    """[T, N] float64, of the risk value, before it is mixed with that of the mean."""
    tail_share: Tensor
    """Scalar: share of rows whose action can still change the shortfall."""


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


@dataclass(frozen=True, slots=True)
class RatioInfo:
    """How far the policy has moved on a micro-batch; scalars outside the graph."""

    approx_kl: Tensor
    """Analytic KL(old || new) where the law gives it, else k3; mean over rows."""
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
    ratio: RatioInfo


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
    first_bad: str
    """What was not finite first, in words; empty if all was well."""
    taken: bool
    """Whether the optimizer stepped; not when no finite micro-batch was left, or on a KL stop."""
    kl_stop: bool
    """The policy has moved too far from the acting one; the epochs end here."""


@dataclass(frozen=True, slots=True)
class Coefficients:
    """The scheduled numbers that one cycle uses."""

    learning_rate: float
    clip_range: float
    entropy: float
    value: float
    progress: float = 0.0
    """Share of training that is done."""


@dataclass(frozen=True, slots=True)
class UpdateResult:
    """One cycle of learning, ready to be turned into metrics."""

    coefficients: Coefficients
    advantages: AdvantageInfo
    steps: tuple[StepInfo, ...]
    explained_variance: Tensor
    """Of the returns by the values of the acting pass."""
    epochs: int
    """Epochs begun; fewer than asked when the KL stop acted."""
    stopped_early: bool
