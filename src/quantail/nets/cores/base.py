"""What every recurrent core offers."""

from abc import ABC, abstractmethod

import torch
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


def keep_mask(starts: Tensor, dtype: torch.dtype) -> Tensor:
    """Return 0 where an episode starts and 1 elsewhere, [L, M] contiguous."""
    return (~starts).to(dtype).contiguous()


def resets_at(keep: Tensor) -> list[bool]:
    """Say for each row of ``keep`` [L, M] whether any environment starts anew there."""
    if len(keep) == 1:
        # Asking costs more than one needless product.
        return [True]
    found: list[bool] = (keep == 0).any(dim=1).tolist()
    return found


def stacked(states: list[Tensor]) -> Tensor:
    """Return [layers, n, width] from [n, width] per layer; no copy for a single one."""
    return states[0].unsqueeze(0) if len(states) == 1 else torch.stack(states)


def gate_weights(inputs: int, units: int, gates: int) -> nn.Parameter:
    """Return [inputs, gates * units] with one orthogonal block per gate."""
    blocks = [nn.init.orthogonal_(torch.empty(inputs, units)) for _ in range(gates)]
    return nn.Parameter(torch.cat(blocks, dim=1))
