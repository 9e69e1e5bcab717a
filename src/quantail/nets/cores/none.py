"""No memory: the output is the input."""

from typing import Literal

from torch import Tensor

from quantail.config_class import config
from quantail.flow import CoreState
from quantail.nets.cores.base import Core


@config
class NoCoreConfig:
    """A policy without memory."""

    kind: Literal["none"] = "none"

    def build(self, input_size: int) -> "NoCore":
        """Build the core."""
        return NoCore(input_size)


class NoCore(Core):
    """Hands its input on."""

    def __init__(self, input_size: int) -> None:
        super().__init__()
        self.output_size = input_size

    def initial_state(self, n: int) -> CoreState:
        """Return the empty state."""
        return ()

    def forward(self, x: Tensor, state: CoreState, starts: Tensor) -> tuple[Tensor, CoreState]:
        """Return ``x`` and the empty state."""
        return x, ()
