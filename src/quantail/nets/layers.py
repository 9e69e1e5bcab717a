"""Feed-forward building blocks."""

from collections.abc import Callable, Sequence
from typing import Final, Literal, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - the usual name

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
        for layer in self.layers:
            # Not layer(x): in acting, calls of modules cost as much as their arithmetic.
            x = self.activation(F.linear(x, layer.weight, layer.bias))  # type: ignore[arg-type]
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
