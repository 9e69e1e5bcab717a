"""Gated recurrent unit: lighter than an LSTM, with one state.

    r, z = σ(x_t Wx + keep_t h_{t-1} Wh + b),   n = tanh(x_t Wxn + b + r (keep_t h_{t-1} Whn + bh))
    h_t = (1 - z) n + z keep_t h_{t-1}

with keep_t = 0 where an episode starts at t, else 1.

References:
    Cho et al. 2014, in the variant whose reset gate acts after the recurrent product.
"""

from typing import Annotated, Any, Literal, NamedTuple

import torch
from annotated_types import Ge
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from quantail.config_class import config
from quantail.flow import CoreState
from quantail.nets.cores.base import (
    Core,
    gate_weights,
    keep_mask,
    resets_at,
    stacked,
)
from quantail.nets.kernels import gru_backward_nb, gru_forward_nb
from quantail.nets.layers import needs_plain


@config
class GruConfig:
    """A GRU."""

    kind: Literal["gru"] = "gru"
    hidden_size: Annotated[int, Ge(1)] = 64
    """Units of each layer."""
    layers: Annotated[int, Ge(1)] = 1
    """Layers stacked on each other."""

    def build(self, input_size: int) -> "GruCore":
        """Build the core for inputs of ``input_size``."""
        return GruCore(input_size, self)


class GruWeights(NamedTuple):
    """Parameters of one layer; columns in the order reset, update, new."""

    wx: Tensor
    """[I, 3H]"""
    wh: Tensor
    """[H, 3H]"""
    bias: Tensor
    """[3H], beside the input."""
    hidden_bias: Tensor
    """[3H], beside the state."""


def gru_layer(x: Tensor, hidden: Tensor, keep: Tensor, weights: GruWeights) -> Tensor:
    """Run one GRU layer.

    Args:
        x: [L, M, I]
        hidden: [M, H], before the first row.
        keep: [L, M], 0 where an episode starts, else 1; of the type of ``x``.
        weights: The layer's parameters.

    Returns:
        Outputs [L, M, H], the last row being the new state.
    """
    if needs_plain(x):
        return gru_layer_plain(x, hidden, keep, weights)
    if torch.is_grad_enabled():
        result: Tensor = _GruFunction.apply(x, hidden, keep, *weights)  # type: ignore[no-untyped-call]
        return result
    return _scan(x, hidden, keep, weights)[2]


def gru_layer_plain(x: Tensor, hidden: Tensor, keep: Tensor, weights: GruWeights) -> Tensor:
    """Do what :func:`gru_layer` does with torch operations alone, on any device and exportable."""
    inputs = (x @ weights.wx + weights.bias).chunk(3, dim=-1)
    outputs = []
    for t in range(x.shape[0]):
        before = keep[t].unsqueeze(1) * hidden
        shares = (before @ weights.wh + weights.hidden_bias).chunk(3, dim=-1)
        r, z = ((inputs[k][t] + shares[k]).sigmoid() for k in (0, 1))
        n = (inputs[2][t] + r * shares[2]).tanh()
        hidden = (1 - z) * n + z * before
        outputs.append(hidden)
    return torch.stack(outputs)


def _scan(
    x: Tensor, hidden: Tensor, keep: Tensor, weights: GruWeights
) -> tuple[Tensor, Tensor, Tensor]:
    """Return activated gates and recurrent shares [L, M, 3H], and hiddens [L, M, H]."""
    length, rows, _ = x.shape
    units = hidden.shape[1]
    gates = torch.addmm(weights.bias, x.reshape(length * rows, -1), weights.wx)
    gates = gates.view(length, rows, 3 * units)
    recurrent, hiddens = torch.empty_like(gates), x.new_empty(length, rows, units)
    arrays = [part.numpy() for part in (gates, recurrent, keep, hiddens)]
    gates_np, recurrent_np, keep_np, hiddens_np = arrays
    hidden_np = hidden.contiguous().numpy()
    resets = resets_at(keep)
    for t in range(length):
        before = hidden * keep[t].unsqueeze(1) if resets[t] else hidden
        torch.addmm(weights.hidden_bias, before, weights.wh, out=recurrent[t])
        gru_forward_nb(gates_np[t], recurrent_np[t], keep_np[t], hidden_np, hiddens_np[t])
        hidden, hidden_np = hiddens[t], hiddens_np[t]
    return gates, recurrent, hiddens


class _GruFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, hidden: Tensor, keep: Tensor, *weights: Tensor) -> Tensor:
        gates, recurrent, hiddens = _scan(x, hidden, keep, GruWeights(*weights))
        ctx.save_for_backward(x, hidden, keep, *weights[:2], gates, recurrent, hiddens)
        return hiddens

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_output: Tensor) -> tuple[Tensor | None, ...]:
        x, hidden, keep, wx, wh, gates, recurrent, hiddens = ctx.saved_tensors
        length, rows, units = d_output.shape
        previous = torch.cat([hidden.unsqueeze(0), hiddens[:-1]])
        d_gates, d_recurrent = torch.empty_like(gates), torch.empty_like(gates)
        d_hidden = x.new_zeros(rows, units)
        saved = (gates, recurrent, keep, previous, d_gates, d_recurrent)
        arrays = [part.numpy() for part in saved]
        d_output_np, d_hidden_np = d_output.contiguous().numpy(), d_hidden.numpy()
        wh_t = wh.t()
        for t in range(length - 1, -1, -1):
            step = tuple(array[t] for array in arrays)
            # After the last step nothing is handed down, so its reset does not matter.
            keep_next = arrays[2][min(t + 1, length - 1)]
            gru_backward_nb(step, keep_next, d_output_np[t], d_hidden_np)
            d_hidden.addmm_(d_recurrent[t], wh_t)
        flat, flat_recurrent = d_gates.view(length * rows, -1), d_recurrent.view(length * rows, -1)
        d_x = (flat @ wx.t()).view_as(x) if ctx.needs_input_grad[0] else None
        d_wx = x.reshape(length * rows, -1).t() @ flat
        d_wh = (previous * keep.unsqueeze(2)).view(length * rows, units).t() @ flat_recurrent
        d_hidden *= keep[0].unsqueeze(1)
        return d_x, d_hidden, None, d_wx, d_wh, flat.sum(0), flat_recurrent.sum(0)


class GruLayer(nn.Module):
    """Parameters of one layer."""

    def __init__(self, input_size: int, units: int) -> None:
        super().__init__()
        self.wx = gate_weights(input_size, units, 3)
        self.wh = gate_weights(units, units, 3)
        self.bias = nn.Parameter(torch.zeros(3 * units))
        self.hidden_bias = nn.Parameter(torch.zeros(3 * units))

    def forward(self, x: Tensor, hidden: Tensor, keep: Tensor) -> Tensor:
        """Return outputs [L, M, H]."""
        weights = GruWeights(self.wx, self.wh, self.bias, self.hidden_bias)
        return gru_layer(x, hidden, keep, weights)


class GruCore(Core):
    """Stacked GRU layers; the state is (hidden,), [layers, n, H]."""

    def __init__(self, input_size: int, config: GruConfig) -> None:
        super().__init__()
        units = config.hidden_size
        self.output_size = units
        sizes = [input_size] + [units] * (config.layers - 1)
        self.layers = nn.ModuleList(GruLayer(size, units) for size in sizes)

    def initial_state(self, n: int) -> CoreState:
        """Return zeros."""
        return (next(self.parameters()).new_zeros(len(self.layers), n, self.output_size),)

    def forward(self, x: Tensor, state: CoreState, starts: Tensor) -> tuple[Tensor, CoreState]:
        """Read a sequence; see :class:`Core`."""
        keep = keep_mask(starts, x.dtype)
        hiddens = []
        for layer, hidden in zip(self.layers, state[0], strict=True):
            x = layer(x, hidden, keep)
            hiddens.append(x[-1])
        return x, (stacked(hiddens),)
