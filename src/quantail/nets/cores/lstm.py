"""Long short-term memory, the default core."""

from typing import Annotated, Literal

import torch
from annotated_types import Ge, Lt
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - the usual name

from quantail.config_class import config
from quantail.errors import ConfigError
from quantail.flow import CoreState
from quantail.nets.cores.base import Core, gate_weights, keep_mask, stacked
from quantail.nets.cores.lstm_layer import LstmWeights, lstm_layer


@config
class LstmConfig:
    """An LSTM; exact memory over tens of steps, quick on a CPU up to 128 units."""

    kind: Literal["lstm"] = "lstm"
    hidden_size: Annotated[int, Ge(1)] = 64
    """Units of each layer."""
    layers: Annotated[int, Ge(1)] = 1
    """Layers stacked on each other."""
    dropout: Annotated[float, Ge(0), Lt(1)] = 0.0
    """Share of the outputs between layers that is left out while learning, never while acting."""

    def check(self) -> None:
        """Refuse dropout that would have no effect."""
        if self.dropout and self.layers == 1:
            raise ConfigError(
                f"core.dropout acts between layers and there is one; was {self.dropout}. Use "
                "core.layers = 2 or more, or leave it out."
            )

    def build(self, input_size: int) -> "LstmCore":
        """Build the core for inputs of ``input_size``."""
        return LstmCore(input_size, self)


class LstmLayer(nn.Module):
    """Parameters of one layer."""

    def __init__(self, input_size: int, units: int) -> None:
        super().__init__()
        self.wx = gate_weights(input_size, units, 4)
        self.wh = gate_weights(units, units, 4)
        bias = torch.zeros(4 * units)
        # A forget gate that starts open carries gradients over time (Jozefowicz et al. 2015).
        bias[units : 2 * units] = 1.0
        self.bias = nn.Parameter(bias)

    def forward(
        self, x: Tensor, hidden: Tensor, cell: Tensor, keep: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return outputs [L, M, H] and the last cell [M, H]."""
        return lstm_layer(x, hidden, cell, keep, LstmWeights(self.wx, self.wh, self.bias))


class LstmCore(Core):
    """Stacked LSTM layers; the state is (hidden, cell), each [layers, n, H]."""

    def __init__(self, input_size: int, config: LstmConfig) -> None:
        super().__init__()
        units = config.hidden_size
        self.output_size = units
        self.dropout = config.dropout
        sizes = [input_size] + [units] * (config.layers - 1)
        self.layers = nn.ModuleList(LstmLayer(size, units) for size in sizes)

    def initial_state(self, n: int) -> CoreState:
        """Return zeros."""
        zeros = next(self.parameters()).new_zeros(len(self.layers), n, self.output_size)
        return zeros, zeros.clone()

    def forward(self, x: Tensor, state: CoreState, starts: Tensor) -> tuple[Tensor, CoreState]:
        """Read a sequence; see :class:`Core`."""
        keep = keep_mask(starts, x.dtype)
        hidden, cell = state
        hiddens, cells = [], []
        for k, layer in enumerate(self.layers):
            if k and self.dropout:
                x = F.dropout(x, self.dropout, self.training)
            x, last_cell = layer(x, hidden[k], cell[k], keep)
            hiddens.append(x[-1])
            cells.append(last_cell)
        return x, (stacked(hiddens), stacked(cells))
