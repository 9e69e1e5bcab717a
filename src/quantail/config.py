"""Everything that says how an agent learns, put together from its parts."""

from typing import Annotated

from annotated_types import Ge, Gt

from quantail.config_class import config
from quantail.errors import ConfigError
from quantail.losses.value_clip import NoClip, ValueClipConfig
from quantail.targets.compute import TargetConfig


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
    target_kl: Annotated[float, Gt(0)] | None = None
    """Stop the epochs when the KL of a minibatch exceeds 1.5 times this."""
    targets: TargetConfig = TargetConfig()
    value_clip: ValueClipConfig = NoClip()

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
