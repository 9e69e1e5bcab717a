"""What every recurrent core offers."""

from abc import ABC, abstractmethod

from torch import Tensor, nn

from quantail.flow import CoreState


class Core(nn.Module, ABC):
    """Memory over time, with its state passed in and handed out.

    Where an episode starts, the state is set to the initial one *before* the row is read. One step
    is a sequence of length 1.
    """

    output_size: int

    @abstractmethod
    def initial_state(self, n: int) -> CoreState:
        """State of ``n`` environments at the start of an episode; tensors [layers, n, width]."""

    @abstractmethod
    def forward(self, x: Tensor, state: CoreState, starts: Tensor) -> tuple[Tensor, CoreState]:
        """Read a sequence.

        Args:
            x: [L, M, I]
            state: Before the first row.
            starts: [L, M] bool, the row is the first of its episode.

        Returns:
            Outputs [L, M, output_size], and the state after the last row.
        """
