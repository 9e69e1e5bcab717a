"""Feed-forward building blocks."""

from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, TypeAlias

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F  # noqa: N812 - the usual name

from quantail.nets.kernels import add_tanh_nb, tanh_backward_nb


def needs_plain(x: Tensor) -> bool:
    """Say whether compiled kernels cannot serve: another device or type, or a graph is recorded."""
    recorded = torch.compiler.is_compiling() or torch.jit.is_tracing()  # type: ignore[attr-defined, no-untyped-call]
    return bool(recorded) or x.device.type != "cpu" or x.dtype not in (torch.float32, torch.float64)


def linear_tanh(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Return tanh(x Wᵀ + b) to 6e-7 in float32; quicker than torch's two operations.

    Args:
        x: [..., I]
        weight: [O, I]
        bias: [O]

    Returns:
        [..., O]
    """
    if needs_plain(x):
        return torch.tanh(F.linear(x, weight, bias))
    rows = x.reshape(-1, x.shape[-1])
    y: Tensor
    if torch.is_grad_enabled():
        y = _LinearTanh.apply(rows, weight, bias)  # type: ignore[no-untyped-call]
    else:
        y = _linear_tanh(rows, weight, bias)
    return y.view(*x.shape[:-1], -1) if x.ndim != 2 else y


def _linear_tanh(rows: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    y = torch.mm(rows, weight.t())
    add_tanh_nb(y.numpy(), bias.detach().numpy())
    return y


class _LinearTanh(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        y = _linear_tanh(rows, weight, bias)
        ctx.save_for_backward(rows, weight, y)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_y: Tensor) -> tuple[Tensor | None, Tensor, Tensor]:
        rows, weight, y = ctx.saved_tensors
        d_sum = torch.empty_like(y)
        tanh_backward_nb(*(part.view(-1).numpy() for part in (d_y.contiguous(), y, d_sum)))
        d_rows = d_sum @ weight if ctx.needs_input_grad[0] else None
        return d_rows, d_sum.t() @ rows, d_sum.sum(0)


Activation: TypeAlias = Literal["tanh", "relu", "leaky_relu", "elu", "gelu", "silu"]

_ACTIVATIONS: Final[dict[str, Callable[[Tensor], Tensor]]] = {
    "tanh": torch.tanh,
    "relu": F.relu,
    "leaky_relu": F.leaky_relu,
    "elu": F.elu,
    "gelu": F.gelu,
    "silu": F.silu,
}


def orthogonal_linear(inputs: int, outputs: int, gain: float) -> nn.Linear:
    """Return a linear layer with orthogonal weights of the given gain and zero bias."""
    layer = nn.Linear(inputs, outputs)
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)
    return layer


class Mlp(nn.Module):
    """Linear layers with an activation after each; nothing at all for no sizes."""

    def __init__(self, input_size: int, sizes: Sequence[int], activation: Activation) -> None:
        super().__init__()
        pairs = zip([input_size, *sizes], sizes, strict=False)
        self.layers = nn.ModuleList(orthogonal_linear(i, o, gain=2**0.5) for i, o in pairs)
        self.activation = _ACTIVATIONS[activation]
        self.output_size = sizes[-1] if sizes else input_size

    def forward(self, x: Tensor) -> Tensor:
        """Return [..., output_size]."""
        is_tanh = self.activation is torch.tanh
        for layer in self.layers:
            # Not layer(x): in acting, calls of modules cost as much as their arithmetic.
            weight, bias = layer.weight, layer.bias
            if is_tanh:
                x = linear_tanh(x, weight, bias)  # type: ignore[arg-type]
            else:
                x = self.activation(F.linear(x, weight, bias))  # type: ignore[arg-type]
        return x


class _ScaleGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, x: Tensor, factor: float) -> Tensor:
        ctx.factor = factor  # type: ignore[attr-defined]
        return x.view_as(x)

    @staticmethod
    def backward(ctx: object, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient * ctx.factor, None  # type: ignore[attr-defined]


def scale_gradient(x: Tensor, factor: float) -> Tensor:
    """Return ``x``; its gradient is multiplied by ``factor`` on the way back."""
    if factor == 1.0:
        return x
    result: Tensor = _ScaleGradient.apply(x, factor)  # type: ignore[no-untyped-call]
    return result
