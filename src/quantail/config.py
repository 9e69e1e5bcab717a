"""Everything that says how an agent learns, put together from its parts."""

from dataclasses import replace
from typing import Annotated

from annotated_types import Ge, Gt

from quantail.config_class import config
from quantail.errors import ConfigError
from quantail.losses.imitation import Cloning, ImitationConfig
from quantail.losses.value_clip import MeanClip, NoClip, ValueClipConfig
from quantail.optim.entropy_control import EntropyControl
from quantail.optim.guard import Guard
from quantail.optim.kl_control import KlControl
from quantail.optim.schedules import Schedules
from quantail.risk.config import RiskConfig
from quantail.risk.cost import CostLimit
from quantail.targets.compute import TargetConfig


@config
class ExplainedVariance:
    """How the critics' predictions are judged."""

    after_update: bool = True
    """Ask the updated critics once more, without clipping; costs one pass over the rollout."""
    groups: str | None = None
    """Judge by group too: a key of the environments' info, or ``env`` for each environment."""

    def check(self) -> None:
        """Refuse groups without effect."""
        if self.groups is not None and not self.after_update:
            raise ConfigError(
                "explained_variance.groups has no effect with after_update = false; was "
                f"{self.groups!r}"
            )


@config
class LearnerConfig:
    """How a rollout becomes gradient steps."""

    n_steps: Annotated[int, Ge(1)] = 2048
    """Steps of each environment in a rollout."""
    batch_size: Annotated[int, Ge(1)] = 64
    """Rows of a minibatch."""
    n_epochs: Annotated[int, Ge(1)] = 10
    """Passes over a rollout."""
    chunk_length: Annotated[int, Ge(1)] | None = None
    """Rows through which memory is trained; None picks one that fits."""
    microbatch_size: Annotated[int, Ge(1)] | None = None
    """Rows of a part of a minibatch, to save memory; the gradient is the same."""
    refresh_states: bool = False
    """Recompute the state before each chunk with the current weights, once per epoch."""
    burn_in: Annotated[int, Ge(0)] = 0
    """Rows before each chunk that are replayed with the current weights to warm its state up."""
    dual_clip: Annotated[float, Gt(1)] | None = None
    """Bound on the surrogate of rows with negative advantage, as a multiple of it."""
    max_grad_norm: float | None = 0.5
    """Largest norm of a step's gradient; 0 or less switches clipping off."""
    kl_control: KlControl | None = None
    """What happens when a cycle moves the policy too far."""
    entropy_control: EntropyControl | None = None
    imitation: ImitationConfig | None = None
    guard: Guard = Guard()
    """What happens when something is not finite."""
    schedules: Schedules = Schedules()
    """Coefficients by environment steps."""
    critic_learning_rate: Annotated[float, Gt(0)] | None = None
    """Of what the critics have for themselves; None is the actor's."""
    explained_variance: ExplainedVariance = ExplainedVariance()
    targets: TargetConfig = TargetConfig()
    value_clip: ValueClipConfig = NoClip()
    tail_risk: RiskConfig | None = None
    """CVaR beside the mean, or as a limit; None learns the mean alone."""
    cost: CostLimit | None = None
    """A limit on a mean cost; None reads no costs."""

    def check(self) -> None:
        """Refuse settings that contradict each other or have no effect."""
        if self.microbatch_size is not None and self.batch_size % self.microbatch_size:
            raise ConfigError(
                f"microbatch_size must divide batch_size ({self.batch_size}); "
                f"was {self.microbatch_size}"
            )
        if self.refresh_states and self.burn_in:
            raise ConfigError(
                f"burn_in has no effect with refresh_states, which replays the whole rollout; "
                f"was {self.burn_in}. Use one of them"
            )
        self._check_schedules()
        self._check_tail_risk()

    def _check_tail_risk(self) -> None:
        """Refuse what tail risk has no use for, and what has no use for it."""
        scheduled = self.schedules.cvar_weight is not None
        if scheduled and (self.tail_risk is None or self.tail_risk.weight is None):
            raise ConfigError(
                "schedules.cvar_weight has no effect without a fixed cvar_weight, whose place it "
                "takes; give cvar_weight, or leave it out"
            )
        if self.tail_risk is not None and self.targets.critic_target == "scalar":
            raise ConfigError(
                "tail risk needs critics that learn the law of returns, and critic_target 'scalar' "
                "teaches them one that is too narrow; leave critic_target out"
            )
        if self.tail_risk is not None and isinstance(self.imitation, Cloning):
            raise ConfigError(
                "imitation=Cloning(...) cannot be used with tail risk: demonstrations come without "
                "the budget that the policy sees. Leave one of them out"
            )

    def _check_schedules(self) -> None:
        """Refuse a coefficient with two owners or with none, and schedules without effect."""
        given = self.schedules.given()
        if "critic_learning_rate" in given and self.critic_learning_rate is not None:
            raise _twice("critic_learning_rate", "critic_learning_rate")
        if "kl_target" in given:
            if self.kl_control is None:
                raise ConfigError("schedules.kl_target has no effect without kl_control")
            if self.kl_control.target != KlControl().target:
                raise _twice("kl_target", "kl_control.target")
        if "value_clip_range" in given and isinstance(self.value_clip, NoClip):
            raise ConfigError(
                "schedules.value_clip_range has no effect without value clipping; set value_clip, "
                "or leave it out"
            )
        if "value_clip_range" in given and self.value_clip.range != MeanClip().range:  # type: ignore[union-attr]
            raise _twice("value_clip_range", "value_clip.range")
        if self.imitation is None:
            if "imitation" in given:
                raise ConfigError(
                    "schedules.imitation has no effect without imitation; leave it out"
                )
        elif ("imitation" in given) == (self.imitation.coefficient is not None):
            raise ConfigError(
                "the imitation coefficient must be given once: as imitation.coefficient or as "
                f"schedules.imitation; was given {2 if 'imitation' in given else 0} times"
            )
        decay = None if self.entropy_control is None else self.entropy_control.decay
        if decay is not None and "entropy" in given:
            raise _twice("entropy", "entropy_control.decay")

    @property
    def splits_learning_rate(self) -> bool:
        """Whether actor and critics have learning rates of their own."""
        scheduled = self.schedules.critic_learning_rate is not None
        return scheduled or self.critic_learning_rate is not None

    @property
    def undoes_steps(self) -> bool:
        """Whether the step that moved the policy too far is undone."""
        stop = None if self.kl_control is None else self.kl_control.stop
        return stop is not None and stop.undo

    @property
    def critics_go_on(self) -> bool:
        """Whether the critics learn on after the actor has stopped."""
        stop = None if self.kl_control is None else self.kl_control.stop
        return stop is not None and stop.after == "critics"

    def value_clip_at(self, value_range: float | None) -> ValueClipConfig:
        """Return the value clipping with a scheduled range; None is its own."""
        if value_range is None or isinstance(self.value_clip, NoClip):
            return self.value_clip
        return replace(self.value_clip, range=value_range)


def _twice(schedule: str, other: str) -> ConfigError:
    return ConfigError(
        f"schedules.{schedule} and {other} both set one number; leave one of them out"
    )
