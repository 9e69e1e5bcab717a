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

from quantail.nets.cores.base import resets_at
from quantail.nets.kernels import lstm_backward_nb, lstm_forward_nb
from quantail.nets.layers import needs_plain


class LstmWeights(NamedTuple):
    """Parameters of one layer; columns in the order input, forget, cell, output."""

    wx: Tensor
    """[I, 4H]"""
    wh: Tensor
    """[H, 4H]"""
    bias: Tensor
    """[4H]"""


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
    if needs_plain(x):
        return lstm_layer_plain(x, hidden, cell, keep, weights)
    if torch.is_grad_enabled():
        result: tuple[Tensor, Tensor] = _LstmFunction.apply(  # type: ignore[no-untyped-call]
            x, hidden, cell, keep, *weights
        )
        return result
    _, cells, hiddens = _scan(x, hidden, cell, keep, weights)
    return hiddens, cells[-1]


def lstm_layer_plain(
    x: Tensor, hidden: Tensor, cell: Tensor, keep: Tensor, weights: LstmWeights
) -> tuple[Tensor, Tensor]:
    """Do what :func:`lstm_layer` does with torch operations alone, on any device and exportable."""
    inputs = x @ weights.wx + weights.bias
    outputs = []
    for t in range(x.shape[0]):
        held = keep[t].unsqueeze(1)
        i, f, g, o = (inputs[t] + (held * hidden) @ weights.wh).chunk(4, dim=1)
        cell = f.sigmoid() * held * cell + i.sigmoid() * g.tanh()
        hidden = o.sigmoid() * cell.tanh()
        outputs.append(hidden)
    return torch.stack(outputs), cell


def _scan(
    x: Tensor, hidden: Tensor, cell: Tensor, keep: Tensor, weights: LstmWeights
) -> tuple[Tensor, Tensor, Tensor]:
    """Run the recurrence; return activated gates [L, M, 4H], cells and hiddens [L, M, H]."""
    length, rows, _ = x.shape
    units = hidden.shape[1]
    gates = torch.addmm(weights.bias, x.reshape(length * rows, -1), weights.wx)
    gates = gates.view(length, rows, 4 * units)
    cells, hiddens = x.new_empty(2, length, rows, units).unbind()
    gates_np, cells_np, hiddens_np, keep_np = (
        part.numpy() for part in (gates, cells, hiddens, keep)
    )
    cell_np = cell.contiguous().numpy()
    resets = resets_at(keep)
    for t in range(length):
        before = hidden * keep[t].unsqueeze(1) if resets[t] else hidden
        gates[t].addmm_(before, weights.wh)
        lstm_forward_nb(gates_np[t], keep_np[t], cell_np, cells_np[t], hiddens_np[t])
        hidden, cell_np = hiddens[t], cells_np[t]
    return gates, cells, hiddens


class _LstmFunction(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, hidden: Tensor, cell: Tensor, keep: Tensor, *weights: Tensor
    ) -> tuple[Tensor, Tensor]:
        gates, cells, hiddens = _scan(x, hidden, cell, keep, LstmWeights(*weights))
        ctx.save_for_backward(x, hidden, cell, keep, *weights, gates, cells, hiddens)
        return hiddens, cells[-1].clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_output: Tensor, d_last_cell: Tensor) -> tuple[Tensor | None, ...]:
        x, hidden, cell, keep, wx, wh, _, gates, cells, hiddens = ctx.saved_tensors
        length, rows, units = d_output.shape
        d_gates = torch.empty_like(gates)
        d_hidden, d_cell = x.new_zeros(rows, units), d_last_cell.clone()
        saved = [part.numpy() for part in (gates, keep, cells, d_gates)]
        gates_np, keep_np, cells_np, d_gates_np = saved
        first_np, d_output_np = cell.contiguous().numpy(), d_output.contiguous().numpy()
        d_hidden_np, d_cell_np = d_hidden.numpy(), d_cell.numpy()
        wh_t = wh.t()
        for t in range(length - 1, -1, -1):
            before = cells_np[t - 1] if t else first_np
            step = gates_np[t], keep_np[t], before, cells_np[t], d_gates_np[t]
            # After the last step nothing is handed down, so its reset does not matter.
            keep_next = keep_np[min(t + 1, length - 1)]
            lstm_backward_nb(step, keep_next, d_output_np[t], d_hidden_np, d_cell_np)
            torch.mm(d_gates[t], wh_t, out=d_hidden)
        flat = d_gates.view(length * rows, -1)
        d_x = (flat @ wx.t()).view_as(x) if ctx.needs_input_grad[0] else None
        previous = torch.cat([hidden.unsqueeze(0), hiddens[:-1]]) * keep.unsqueeze(2)
        d_wx = x.reshape(length * rows, -1).t() @ flat
        d_wh = previous.view(length * rows, units).t() @ flat
        d_hidden *= keep[0].unsqueeze(1)
        return d_x, d_hidden, d_cell, None, d_wx, d_wh, flat.sum(0)
