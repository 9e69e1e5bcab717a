"""Linear layers with tanh: torch's numbers and gradients, and plain torch in a recorded graph."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - the usual name

from quantail.nets.layers import Mlp, linear_tanh


def layer(dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    shapes = (5, 2, 3), (4, 3), (4,)
    x, weight, bias = (torch.randn(shape, dtype=dtype) for shape in shapes)
    return x, weight, bias


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.float64, 1e-14), (torch.bfloat16, 0)]
)
def test_is_torchs(dtype: torch.dtype, tolerance: float):
    x, weight, bias = layer(dtype)
    expected = torch.tanh(F.linear(x, weight, bias))
    torch.testing.assert_close(linear_tanh(x, weight, bias), expected, rtol=0, atol=tolerance)


def test_large_numbers_saturate_and_nan_stays():
    x = torch.tensor([[torch.nan], [torch.inf], [-1e30], [50.0]])
    y = linear_tanh(x, torch.ones(1, 1), torch.zeros(1)).flatten()
    assert y[0].isnan()
    torch.testing.assert_close(y[1:], torch.tensor([1.0, -1.0, 1.0]), rtol=0, atol=1e-7)


@pytest.mark.parametrize("shape", [(3,), (0, 3), (2, 3), (5, 2, 3)])
def test_keeps_the_leading_axes(shape: tuple[int, ...]):
    _, weight, bias = layer()
    assert linear_tanh(torch.randn(shape), weight, bias).shape == (*shape[:-1], 4)


def test_gradients_match_finite_differences_also_through_strides():
    x, weight, bias = (part.requires_grad_() for part in layer(torch.float64))
    assert torch.autograd.gradcheck(linear_tanh, [x, weight, bias])
    assert torch.autograd.gradcheck(
        lambda x, weight, bias: linear_tanh(x.transpose(0, 1), weight, bias).transpose(0, 1),
        [x, weight, bias],
    )


def test_outside_the_graph_nothing_asks_for_gradients():
    x, weight, bias = layer()
    weight.requires_grad_()
    assert linear_tanh(x, weight, bias).requires_grad
    with torch.no_grad():
        assert not linear_tanh(x, weight, bias).requires_grad


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of tracing
def test_a_traced_network_follows_its_input():
    # A compiled kernel inside a trace would be recorded as the numbers it once gave.
    mlp = Mlp(3, (4,), "tanh")
    traced = torch.jit.trace(mlp, torch.zeros(2, 3))
    x = torch.randn(2, 3)
    torch.testing.assert_close(traced(x), mlp(x))
