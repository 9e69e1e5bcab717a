"""Linear recurrent units: the core for long memories.

Each block adds to its input u an MLP of a complex linear recurrence over the normalized input v:

    x_t = λ keep_t x_{t-1} + γ (B v_t),   λ = exp(-exp(ν) + i exp(θ)),   u'_t = u_t + MLP(Re(C x_t))

with γ started at √(1 - |λ|²), so that states keep the size of their inputs, and keep_t = 0 where an
episode starts at t. There is no product of states and weights in the recurrence: it is one compiled
pass forward and one backward.

References:
    Orvieto et al. 2023, Resurrecting recurrent neural networks for long sequences.
"""

import math
from typing import Annotated, Any, Literal

import torch
from annotated_types import Ge, Gt, Lt
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F  # noqa: N812 - the usual name

from quantail.config_class import config
from quantail.errors import ConfigError
from quantail.flow import CoreState
from quantail.nets.cores.base import Core, keep_mask, stacked
from quantail.nets.kernels import lru_backward_nb, lru_forward_nb
from quantail.nets.layers import needs_plain, orthogonal_linear


@config
class LruConfig:
    """Blocks of linear recurrent units."""

    kind: Literal["lru"] = "lru"
    hidden_size: Annotated[int, Ge(1)] = 64
    """Width of the blocks, and complex units in each."""
    blocks: Annotated[int, Ge(1)] = 2
    """One block can delay; two can also select."""
    slowest: Annotated[float, Gt(0), Lt(1)] = 0.999
    """Greatest |λ| at the start: what is left of a memory after one step."""
    fastest: Annotated[float, Gt(0), Lt(1)] = 0.9
    """Least |λ| at the start."""

    def check(self) -> None:
        """Refuse an empty range of |λ|."""
        if self.fastest >= self.slowest:
            raise ConfigError(
                f"core.fastest must be less than core.slowest; they were {self.fastest} and "
                f"{self.slowest}. Use 0.9 and 0.999."
            )

    def build(self, input_size: int) -> "LruCore":
        """Build the core for inputs of ``input_size``."""
        return LruCore(input_size, self)


def lru_scan(inputs: Tensor, keep: Tensor, decay: Tensor, state: Tensor) -> Tensor:
    """Return x_t = λ keep_t x_{t-1} + inputs_t; complex numbers are stored [real | imaginary].

    Args:
        inputs: [L, M, 2H]
        keep: [L, M], 0 where an episode starts, else 1; of the type of ``inputs``.
        decay: [2H], λ.
        state: [M, 2H], before the first row.

    Returns:
        [L, M, 2H], the last row being the new state.
    """
    if needs_plain(inputs):
        return lru_scan_plain(inputs, keep, decay, state)
    result: Tensor = _LruFunction.apply(inputs, keep, decay, state)  # type: ignore[no-untyped-call]
    return result


def lru_scan_plain(inputs: Tensor, keep: Tensor, decay: Tensor, state: Tensor) -> Tensor:
    """Do what :func:`lru_scan` does with torch operations alone, on any device and exportable."""
    a, b = decay.chunk(2)
    outputs = []
    for t in range(inputs.shape[0]):
        re, im = (keep[t].unsqueeze(1) * state).chunk(2, dim=1)
        state = torch.cat([a * re - b * im, b * re + a * im], dim=1) + inputs[t]
        outputs.append(state)
    return torch.stack(outputs)


class _LruFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, inputs: Tensor, keep: Tensor, decay: Tensor, state: Tensor) -> Tensor:
        inputs, state = inputs.contiguous(), state.contiguous()
        states = torch.empty_like(inputs)
        lru_forward_nb(*(part.numpy() for part in (inputs, keep, decay, state, states)))
        ctx.save_for_backward(keep, decay, state, states)
        return states

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_states: Tensor) -> tuple[Tensor | None, ...]:
        saved = ctx.saved_tensors
        _, decay, state, _ = saved
        d_states = d_states.contiguous()
        d_inputs, d_decay = torch.empty_like(d_states), torch.zeros_like(decay)
        d_state = torch.zeros_like(state)
        arrays = [part.numpy() for part in (d_states, d_inputs, d_decay, d_state)]
        lru_backward_nb(tuple(part.numpy() for part in saved), *arrays)
        return d_inputs, None, d_decay, d_state


class LruBlock(nn.Module):
    """One residual block."""

    def __init__(self, config: LruConfig) -> None:
        super().__init__()
        width = config.hidden_size
        self.norm = nn.LayerNorm(width)
        # |λ| uniform on the ring between the two radii, any angle.
        low, high = config.fastest**2, config.slowest**2
        log_radius = 0.5 * torch.log(low + (high - low) * torch.rand(width))
        self.nu = nn.Parameter(torch.log(-log_radius))
        self.theta = nn.Parameter(torch.log(2 * math.pi * (1 - torch.rand(width))))
        self.log_gain = nn.Parameter(0.5 * torch.log(-torch.expm1(2 * log_radius)))
        # B and C have complex entries of variance 1/(2 inputs) and 1/outputs in each part.
        self.into = nn.Linear(width, 2 * width, bias=False)
        self.out = nn.Linear(2 * width, width, bias=False)
        nn.init.normal_(self.into.weight, std=(2 * width) ** -0.5)
        nn.init.normal_(self.out.weight, std=width**-0.5)
        self.mlp = nn.Sequential(
            orthogonal_linear(width, width, 2**0.5),
            nn.GELU(),
            orthogonal_linear(width, width, 1.0),
        )

    def forward(self, u: Tensor, state: Tensor, keep: Tensor) -> tuple[Tensor, Tensor]:
        """Return outputs [L, M, H] and the last state [M, 2H]."""
        radius, angle = torch.exp(-self.nu.exp()), self.theta.exp()
        decay = torch.cat([radius * angle.cos(), radius * angle.sin()])
        # γ goes into B: one product with a small matrix instead of one with every row.
        weights = self.into.weight * self.log_gain.exp().repeat(2).unsqueeze(1)
        inputs = F.linear(self.norm(u), weights)
        states = lru_scan(inputs, keep, decay, state)
        return u + self.mlp(self.out(states)), states[-1]


class LruCore(Core):
    """Stacked blocks; the state is (x,), [blocks, n, 2H] with real parts first."""

    def __init__(self, input_size: int, config: LruConfig) -> None:
        super().__init__()
        self.output_size = config.hidden_size
        self.into = orthogonal_linear(input_size, config.hidden_size, 1.0)
        self.blocks = nn.ModuleList(LruBlock(config) for _ in range(config.blocks))

    def initial_state(self, n: int) -> CoreState:
        """Return zeros."""
        return (self.into.weight.new_zeros(len(self.blocks), n, 2 * self.output_size),)

    def forward(self, x: Tensor, state: CoreState, starts: Tensor) -> tuple[Tensor, CoreState]:
        """Read a sequence; see :class:`Core`."""
        keep = keep_mask(starts, x.dtype)
        x = self.into(x)
        lasts = []
        for block, before in zip(self.blocks, state[0], strict=True):
            x, last = block(x, before, keep)
            lasts.append(last)
        return x, (stacked(lasts),)
