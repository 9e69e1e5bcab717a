"""One LSTM layer over a sequence with resets inside, forward and hand-written backward.

    [i f g o]_t = x_t Wx + keep_t h_{t-1} Wh + b
    c_t = σ(f) keep_t c_{t-1} + σ(i) tanh(g),   h_t = σ(o) tanh(c_t)

with keep_t = 0 where an episode starts at t, else 1. The input product is one GEMM for all steps,
each step is one GEMM and one fused pass over the gates, and the weight gradient is one GEMM again.
A sequence with resets costs what one without costs; nothing is cut or padded.

References:
    Hochreiter and Schmidhuber (1997), with the forget gate of Gers et al. (2000).
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from quantail.nets.cores.kernels import lstm_backward_nb, lstm_forward_nb


class LstmWeights(NamedTuple):
    """Parameters of one layer; columns in the order input, forget, cell, output."""

    wx: Tensor
    """[I, 4H]"""
    wh: Tensor
    """[H, 4H]"""
    bias: Tensor
    """[4H]"""


def _scan(
    x: Tensor, hidden: Tensor, cell: Tensor, keep: Tensor, weights: LstmWeights
) -> tuple[Tensor, Tensor, Tensor]:
    """Run the recurrence; return activated gates [L, M, 4H], cells and hiddens [L + 1, M, H]."""
    length, rows, _ = x.shape
    units = hidden.shape[-1]
    gates = torch.addmm(weights.bias, x.reshape(length * rows, -1), weights.wx).view(
        length, rows, 4 * units
    )
    cells = x.new_empty(length + 1, rows, units)
    hiddens = x.new_empty(length + 1, rows, units)
    cells[0], hiddens[0] = cell, hidden
    resets = resets_at(keep)
    arrays = gates.numpy(), cells.numpy(), hiddens.numpy(), keep.numpy()
    for t in range(length):
        before = hiddens[t] * keep[t].unsqueeze(1) if resets[t] else hiddens[t]
        gates[t].addmm_(before, weights.wh)
        lstm_forward_nb(t, *arrays)
    return gates, cells, hiddens


def resets_at(keep: Tensor) -> list[bool]:
    """Say for each row of ``keep`` [L, M] whether any environment starts anew there."""
    found: list[bool] = (keep == 0).any(dim=1).tolist()
    return found


class _LstmFunction(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        hidden: Tensor,
        cell: Tensor,
        keep: Tensor,
        *weights: Tensor,
    ) -> tuple[Tensor, Tensor]:
        gates, cells, hiddens = _scan(x, hidden, cell, keep, LstmWeights(*weights))
        ctx.save_for_backward(x, keep, *weights, gates, cells, hiddens)
        return hiddens[1:], cells[-1]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_output: Tensor, d_last_cell: Tensor) -> tuple[Tensor | None, ...]:
        x, keep, wx, wh, _, gates, cells, hiddens = ctx.saved_tensors
        length, rows, units = d_output.shape
        d_gates = torch.empty_like(gates)
        d_hidden = x.new_zeros(rows, units)
        d_cell = d_last_cell.clone()
        ending = torch.cat([keep, keep.new_ones(1, rows)])
        saved = gates.numpy(), cells.numpy(), ending.numpy()
        d_arrays = [part.numpy() for part in (d_output.contiguous(), d_hidden, d_cell, d_gates)]
        wh_t = wh.t()
        for t in range(length - 1, -1, -1):
            lstm_backward_nb(t, saved, *d_arrays)
            torch.mm(d_gates[t], wh_t, out=d_hidden)
        flat = d_gates.view(length * rows, -1)
        d_x = (flat @ wx.t()).view_as(x) if ctx.needs_input_grad[0] else None
        before = hiddens[:-1] * keep.unsqueeze(2)
        d_wx = x.reshape(length * rows, -1).t() @ flat
        d_wh = before.view(length * rows, units).t() @ flat
        return d_x, d_hidden * keep[:1].t(), d_cell, None, d_wx, d_wh, flat.sum(0)


def lstm_layer(
    x: Tensor, hidden: Tensor, cell: Tensor, keep: Tensor, weights: LstmWeights
) -> tuple[Tensor, Tensor]:
    """Run one LSTM layer.

    Args:
        x: [L, M, I]
        hidden: [M, H], before the first row.
        cell: [M, H], before the first row.
        keep: [L, M], 0 where an episode starts, else 1; of the type of ``x``.
        weights: The layer's parameters.

    Returns:
        Outputs [L, M, H], the last row being the new hidden state, and the new cell [M, H].
    """
    if x.device.type != "cpu":
        return lstm_layer_plain(x, hidden, cell, keep, weights)
    if torch.is_grad_enabled():
        result: tuple[Tensor, Tensor] = _LstmFunction.apply(  # type: ignore[no-untyped-call]
            x, hidden, cell, keep, *weights
        )
        return result
    _, cells, hiddens = _scan(x, hidden, cell, keep, weights)
    return hiddens[1:], cells[-1]


def lstm_layer_plain(
    x: Tensor, hidden: Tensor, cell: Tensor, keep: Tensor, weights: LstmWeights
) -> tuple[Tensor, Tensor]:
    """Do what :func:`lstm_layer` does with torch operations alone, on any device."""
    inputs = x @ weights.wx + weights.bias
    outputs = []
    for t in range(x.shape[0]):
        held = keep[t].unsqueeze(1)
        i, f, g, o = (inputs[t] + (held * hidden) @ weights.wh).chunk(4, dim=1)
        cell = f.sigmoid() * held * cell + i.sigmoid() * g.tanh()
        hidden = o.sigmoid() * cell.tanh()
        outputs.append(hidden)
    return torch.stack(outputs), cell
