"""Compiled inner loops of the networks.

All of them stand in one file, because numba's cache watches only the file of the function it
compiled. LLVM turns loops of plain arithmetic into vector code, but not loops that call the C
library's ``tanh``. In float32 a rational approximation therefore takes its place; in float64, which
serves gradient checks, the C library's function stays.
"""

import math

import numba as nb
import numpy as np
from numba.extending import overload

# tanh(x) = x P(x²) / Q(x²) on |x| <= 9.01, beyond which float32 tanh is 1. The coefficients come
# from a Lawson-weighted fit of the relative error: 2e-8 in exact arithmetic, 4e-7 in float32.
_EDGE = np.float32(9.01)
_P = tuple(
    np.float32(p)
    for p in (
        0.9999999792538223,
        0.13380372179863875,
        0.003494811720209282,
        2.0596284073575122e-05,
        1.3336860707607007e-08,
    )
)
_Q = tuple(
    np.float32(q)
    for q in (
        1.0,
        0.46713687601466897,
        0.025874029356741376,
        0.00032843642849143703,
        7.769288469809599e-07,
    )
)
_HALF = np.float32(0.5)

# In compiled code ``1 - x`` is float64 for a float32 ``x``; ``_ONE - x`` keeps the type.
_ONE = np.float32(1.0)

# Multiply-adds may be fused; NaN and infinity keep their meaning.
_compiled = nb.njit(cache=True, error_model="numpy", fastmath={"contract"})


def tanh_nb(x: float) -> float:
    """Hyperbolic tangent inside compiled code; NaN stays NaN."""
    return math.tanh(x)


# numba compares the signatures of an overload and its implementation, annotations included, and
# the two see different types; so there are none.
def _rational_tanh(x):  # type: ignore[no-untyped-def]
    # The comparisons let NaN through.
    clipped = _EDGE if x > _EDGE else (-_EDGE if x < -_EDGE else x)
    u = clipped * clipped
    p = (((_P[4] * u + _P[3]) * u + _P[2]) * u + _P[1]) * u + _P[0]
    q = (((_Q[4] * u + _Q[3]) * u + _Q[2]) * u + _Q[1]) * u + _Q[0]
    y = clipped * p / q
    return _ONE if y > _ONE else (-_ONE if y < -_ONE else y)


def _library_tanh(x):  # type: ignore[no-untyped-def]
    return math.tanh(x)


@overload(tanh_nb, jit_options={"error_model": "numpy", "fastmath": {"contract"}})
def _tanh_by_type(x):  # type: ignore[no-untyped-def]
    return _rational_tanh if x == nb.float32 else _library_tanh


@_compiled
def sigmoid_nb(x):  # type: ignore[no-untyped-def]
    """Logistic function as ½ + ½ tanh(x/2): no overflow on either side."""
    half = x * _HALF
    return _HALF + _HALF * tanh_nb(half)


@_compiled
def add_tanh_nb(x, bias):  # type: ignore[no-untyped-def]
    """Turn ``x`` [R, O] into tanh(x + bias) in place."""
    for r in range(len(x)):
        row = x[r]
        for j in range(len(bias)):
            row[j] = tanh_nb(row[j] + bias[j])


@_compiled
def tanh_backward_nb(d_y, y, d_x):  # type: ignore[no-untyped-def]
    """Write d_y (1 - y²) to ``d_x``; all [n], y being a hyperbolic tangent."""
    for j in range(len(y)):
        d_x[j] = d_y[j] * (_ONE - y[j] * y[j])


@_compiled
def lstm_forward_nb(gates, keep, cell_prev, cell, hidden):  # type: ignore[no-untyped-def]
    """Activate ``gates`` [M, 4H] in place and write the new ``cell`` and ``hidden`` [M, H]."""
    rows, units = cell.shape
    for m in range(rows):
        # Views indexed from 0 let LLVM vectorize; it cannot see that units + j is not negative.
        gate = gates[m]
        i, f, g, o = gate[:units], gate[units:], gate[2 * units :], gate[3 * units :]
        before, after, out, held = cell_prev[m], cell[m], hidden[m], keep[m]
        for j in range(2 * units):
            gate[j] = sigmoid_nb(gate[j])
        for j in range(units):
            g[j] = tanh_nb(g[j])
        for j in range(units):
            o[j] = sigmoid_nb(o[j])
        for j in range(units):
            after[j] = f[j] * held * before[j] + i[j] * g[j]
        for j in range(units):
            out[j] = o[j] * tanh_nb(after[j])


@_compiled
def lstm_backward_nb(step, keep_next, d_output, d_hidden, d_cell):  # type: ignore[no-untyped-def]
    """Turn ``d_cell`` [M, H] of this step into that of the step before; write ``d_gates``.

    ``step`` is (gates, keep, cell_prev, cell, d_gates), the last [M, 4H] and before activation;
    ``d_hidden`` [M, H] is what the step after hands down, before its reset ``keep_next`` [M].
    """
    gates, keep, cell_prev, cell, d_gates = step
    rows, units = d_cell.shape
    for m in range(rows):
        gate, d_gate = gates[m], d_gates[m]
        i, f, g, o = gate[:units], gate[units:], gate[2 * units :], gate[3 * units :]
        d_i, d_f = d_gate[:units], d_gate[units:]
        d_g, d_o = d_gate[2 * units :], d_gate[3 * units :]
        before, after, held, held_next = cell_prev[m], cell[m], keep[m], keep_next[m]
        d_y, d_h, d_c = d_output[m], d_hidden[m], d_cell[m]
        for j in range(units):
            squashed = tanh_nb(after[j])
            d_hj = d_y[j] + held_next * d_h[j]
            d_cj = d_c[j] + d_hj * o[j] * (_ONE - squashed * squashed)
            d_i[j] = d_cj * g[j] * i[j] * (_ONE - i[j])
            d_f[j] = d_cj * held * before[j] * f[j] * (_ONE - f[j])
            d_g[j] = d_cj * i[j] * (_ONE - g[j] * g[j])
            d_o[j] = d_hj * squashed * o[j] * (_ONE - o[j])
            d_c[j] = d_cj * f[j] * held


@_compiled
def gru_forward_nb(gates, recurrent, keep, hidden_prev, hidden):  # type: ignore[no-untyped-def]
    """Turn ``gates`` [M, 3H], the input's share, into r, z, n in place; write ``hidden`` [M, H].

    ``recurrent`` [M, 3H] is the share of the state before.
    """
    rows, units = hidden.shape
    for m in range(rows):
        gate, add = gates[m], recurrent[m]
        r, z, n, add_n = gate[:units], gate[units:], gate[2 * units :], add[2 * units :]
        before, out, held = hidden_prev[m], hidden[m], keep[m]
        for j in range(2 * units):
            gate[j] = sigmoid_nb(gate[j] + add[j])
        for j in range(units):
            n[j] = tanh_nb(n[j] + r[j] * add_n[j])
        for j in range(units):
            out[j] = n[j] + z[j] * (held * before[j] - n[j])


@_compiled
def gru_backward_nb(step, keep_next, d_output, d_hidden):  # type: ignore[no-untyped-def]
    """Write the gradients of both shares; ``d_hidden`` [M, H] becomes the direct path's.

    ``step`` is (gates, recurrent, keep, hidden_prev, d_gates, d_recurrent); ``d_hidden`` comes in
    as what the step after hands down, before its reset ``keep_next`` [M].
    """
    gates, recurrent, keep, hidden_prev, d_gates, d_recurrent = step
    rows, units = d_hidden.shape
    for m in range(rows):
        gate, d_gate, d_add = gates[m], d_gates[m], d_recurrent[m]
        r, z, n, add_n = gate[:units], gate[units:], gate[2 * units :], recurrent[m, 2 * units :]
        d_r, d_z, d_n = d_gate[:units], d_gate[units:], d_gate[2 * units :]
        a_r, a_z, a_n = d_add[:units], d_add[units:], d_add[2 * units :]
        before, held, held_next = hidden_prev[m], keep[m], keep_next[m]
        d_y, d_h = d_output[m], d_hidden[m]
        for j in range(units):
            d_hj = d_y[j] + held_next * d_h[j]
            d_nj = d_hj * (_ONE - z[j]) * (_ONE - n[j] * n[j])
            d_zj = d_hj * (held * before[j] - n[j]) * z[j] * (_ONE - z[j])
            d_rj = d_nj * add_n[j] * r[j] * (_ONE - r[j])
            d_r[j] = d_rj
            d_z[j] = d_zj
            d_n[j] = d_nj
            a_r[j] = d_rj
            a_z[j] = d_zj
            a_n[j] = d_nj * r[j]
            d_h[j] = d_hj * z[j]


@_compiled
def lru_forward_nb(inputs, keep, decay, state, states):  # type: ignore[no-untyped-def]
    """Write x_t = λ keep_t x_{t-1} + u_t for complex vectors stored as [real | imaginary].

    ``inputs`` and ``states`` [L, M, 2H], ``decay`` [2H], ``state`` [M, 2H] before the first row.
    """
    length, rows, width = inputs.shape
    units = width // 2
    a, b = decay[:units], decay[units:]
    for t in range(length):
        for m in range(rows):
            before = state[m] if t == 0 else states[t - 1, m]
            now, u, held = states[t, m], inputs[t, m], keep[t, m]
            re_before, im_before, re, im = before[:units], before[units:], now[:units], now[units:]
            re_u, im_u = u[:units], u[units:]
            for j in range(units):
                re[j] = held * (a[j] * re_before[j] - b[j] * im_before[j]) + re_u[j]
                im[j] = held * (b[j] * re_before[j] + a[j] * im_before[j]) + im_u[j]


@_compiled
def lru_backward_nb(saved, d_states, d_inputs, d_decay, d_state):  # type: ignore[no-untyped-def]
    """Run the adjoint of :func:`lru_forward_nb` backward in time.

    ``saved`` is (keep, decay, state, states). Writes ``d_inputs`` [L, M, 2H] and ``d_state``
    [M, 2H], and adds to ``d_decay`` [2H].
    """
    keep, decay, state, states = saved
    length, rows, width = d_states.shape
    units = width // 2
    a, b = decay[:units], decay[units:]
    d_a, d_b = d_decay[:units], d_decay[units:]
    for t in range(length - 1, -1, -1):
        for m in range(rows):
            before = state[m] if t == 0 else states[t - 1, m]
            re_before, im_before, held = before[:units], before[units:], keep[t, m]
            out, carry = d_inputs[t, m], d_state[m]
            re_out, im_out, re_carry, im_carry = (
                out[:units],
                out[units:],
                carry[:units],
                carry[units:],
            )
            direct = d_states[t, m]
            for j in range(width):
                out[j] = direct[j] + carry[j]
            for j in range(units):
                re, im = held * re_out[j], held * im_out[j]
                d_a[j] += re * re_before[j] + im * im_before[j]
                d_b[j] += im * re_before[j] - re * im_before[j]
                re_carry[j] = a[j] * re + b[j] * im
                im_carry[j] = a[j] * im - b[j] * re
