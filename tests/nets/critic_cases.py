"""Critics and latents that the tests of critics share."""

from typing import get_args

import pytest
import torch
from torch import Tensor

from quantail.nets.critics import CriticConfig, QuantileCritic, ScalarCritic

INPUTS = 6
CRITICS = [member() for member in get_args(get_args(CriticConfig)[0])]
TAIL = QuantileCritic(levels="tail", tail_alpha=0.05)
every_critic = pytest.mark.parametrize("config", [*CRITICS, TAIL], ids=lambda config: config.kind)
exact_critic = pytest.mark.parametrize(
    "config", [ScalarCritic(scale_rate=0.5), QuantileCritic(scale_rate=0.5)], ids=lambda c: c.kind
)


def latents(rows: int = 9, seed: int = 0) -> Tensor:
    return torch.randn(rows, INPUTS, generator=torch.Generator().manual_seed(seed))


def shaken(config: CriticConfig, seed: int = 1) -> torch.nn.Module:
    """A head whose outputs depend on the latent in every part, as after training."""
    torch.manual_seed(seed)
    head = config.build(INPUTS)
    with torch.no_grad():
        head.linear.weight += 0.1 * torch.randn_like(head.linear.weight)
    return head


def moved(head: torch.nn.Module, mean: float, std: float, rows: int = 400) -> None:
    atoms = mean + std * torch.randn(rows, 3, generator=torch.Generator().manual_seed(3))
    head.update_scale(atoms, torch.full((3,), 1 / 3), torch.ones(rows))
