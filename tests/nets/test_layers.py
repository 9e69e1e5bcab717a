"""The quick tanh: torch's numbers, torch's gradient, and plain torch where a graph is recorded."""

import pytest
import torch

from quantail.nets.layers import Mlp, tanh


def test_is_torchs_tanh_and_lets_nan_through():
    x = torch.cat([torch.linspace(-12, 12, 20_001), torch.tensor([torch.nan, torch.inf, -1e30])])
    torch.testing.assert_close(tanh(x), torch.tanh(x), rtol=0, atol=6e-7, equal_nan=True)
    torch.testing.assert_close(tanh(x.double()), torch.tanh(x.double()), equal_nan=True)
    half = torch.ones(3, dtype=torch.bfloat16)
    assert torch.equal(tanh(half), torch.tanh(half))


@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3, 4)])
def test_keeps_the_shape(shape: tuple[int, ...]):
    assert tanh(torch.randn(shape)).shape == shape


def test_gradients_match_finite_differences_also_through_strides():
    x = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(tanh, [x])
    assert torch.autograd.gradcheck(lambda y: tanh(y.t()), [x])


def test_outside_the_graph_nothing_asks_for_gradients():
    x = torch.ones(3, requires_grad=True)
    assert tanh(x).requires_grad
    with torch.no_grad():
        assert not tanh(x).requires_grad


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of tracing
def test_a_traced_network_follows_its_input():
    # A compiled kernel inside a trace would be recorded as the numbers it once gave.
    mlp = Mlp(3, (4,), "tanh")
    traced = torch.jit.trace(mlp, torch.zeros(2, 3))
    x = torch.randn(2, 3)
    torch.testing.assert_close(traced(x), mlp(x))
