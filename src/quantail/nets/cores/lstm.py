"""Long short-term memory, the default core."""

from typing import Annotated, Literal

import torch
from annotated_types import Ge
from torch import Tensor, nn

from quantail.config_class import config
from quantail.flow import CoreState
from quantail.nets.cores.base import Core
from quantail.nets.cores.lstm_layer import LstmWeights, lstm_layer


@config
class LstmConfig:
    """An LSTM; exact memory over tens of steps, quick on a CPU up to 128 units."""

    kind: Literal["lstm"] = "lstm"
    hidden_size: Annotated[int, Ge(1)] = 64
    """Units of each layer."""
    layers: Annotated[int, Ge(1)] = 1
    """Layers stacked on each other."""

    def build(self, input_size: int) -> "LstmCore":
        """Build the core for inputs of ``input_size``."""
        return LstmCore(input_size, self)


class LstmCore(Core):
    """Stacked LSTM layers; the state is (hidden, cell), each [layers, n, H]."""

    def __init__(self, input_size: int, config: LstmConfig) -> None:
        super().__init__()
        units = config.hidden_size
        self.output_size = units
        sizes = [input_size] + [units] * (config.layers - 1)
        self.input_weights = nn.ParameterList(recurrent_weights(size, units, 4) for size in sizes)
        self.hidden_weights = nn.ParameterList(recurrent_weights(units, units, 4) for _ in sizes)
        self.biases = nn.ParameterList(_bias(units) for _ in sizes)

    def initial_state(self, n: int) -> CoreState:
        """Return zeros."""
        layers, units = len(self.biases), self.output_size
        zeros = self.biases[0].new_zeros(layers, n, units)
        return zeros, zeros.clone()

    def forward(self, x: Tensor, state: CoreState, starts: Tensor) -> tuple[Tensor, CoreState]:
        """Read a sequence; see :class:`Core`."""
        keep = (~starts).to(x.dtype)
        hidden, cell = state
        hiddens, cells = [], []
        layers = zip(self.input_weights, self.hidden_weights, self.biases, strict=True)
        for layer, weights in enumerate(layers):
            x, last_cell = lstm_layer(x, hidden[layer], cell[layer], keep, LstmWeights(*weights))
            hiddens.append(x[-1])
            cells.append(last_cell)
        return x, (torch.stack(hiddens), torch.stack(cells))


def recurrent_weights(rows: int, units: int, gates: int) -> nn.Parameter:
    """Return [rows, gates * units] with one orthogonal block per gate."""
    return nn.Parameter(
        torch.cat([nn.init.orthogonal_(torch.empty(rows, units)) for _ in range(gates)], dim=1)
    )


def _bias(units: int) -> nn.Parameter:
    # A forget gate that starts open carries gradients over time (Jozefowicz et al. 2015).
    bias = torch.zeros(4 * units)
    bias[units : 2 * units] = 1.0
    return nn.Parameter(bias)
