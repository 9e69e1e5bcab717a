"""Feed-forward building blocks."""

from collections.abc import Sequence
from typing import Final, Literal, TypeAlias

import torch
from torch import Tensor, nn

Activation: TypeAlias = Literal["tanh", "relu", "leaky_relu", "elu", "gelu", "silu"]

_ACTIVATIONS: Final[dict[str, type[nn.Module]]] = {
    "tanh": nn.Tanh,
    "relu": nn.ReLU,
    "leaky_relu": nn.LeakyReLU,
    "elu": nn.ELU,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
}


def orthogonal_linear(inputs: int, outputs: int, gain: float) -> nn.Linear:
    """Return a linear layer with orthogonal weights of the given gain and zero bias."""
    layer = nn.Linear(inputs, outputs)
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)
    return layer


class Mlp(nn.Sequential):
    """Linear layers with an activation after each; nothing at all for no sizes."""

    def __init__(self, input_size: int, sizes: Sequence[int], activation: Activation) -> None:
        layers: list[nn.Module] = []
        for inputs, outputs in zip([input_size, *sizes], sizes, strict=False):
            layers += [orthogonal_linear(inputs, outputs, 2**0.5), _ACTIVATIONS[activation]()]
        super().__init__(*layers)
        self.output_size = sizes[-1] if sizes else input_size


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
