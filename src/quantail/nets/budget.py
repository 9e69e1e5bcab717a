"""What a policy sees of its budget: how far it is from certain gain and certain shortfall."""

from typing import Annotated, Final

import torch
from annotated_types import Gt, Le
from torch import Tensor, nn

from quantail.config_class import config

_ZOOMS: Final = (1.0, 4.0, 16.0)
"""Resolutions of the budget; the finest tells a budget just met from one just missed."""

N_BUDGET_INPUTS: Final = len(_ZOOMS)


@config
class BudgetConfig:
    """That a policy has a budget."""

    discount: Annotated[float, Gt(0), Le(1)]
    """γ, by which the budget grows from step to step."""
    observed: bool = True
    """False shows zeros in its place: a control that must fail where the budget matters."""


class BudgetInputs(nn.Module):
    """Turns budgets into network inputs; its buffers say where episodes start.

    Attributes:
        target: ν, the budget at the start of an episode; scalar in float64.
        scale: Unit of the inputs, in return; scalar in float64.
    """

    target: Tensor
    scale: Tensor

    def __init__(self, config: BudgetConfig) -> None:
        super().__init__()
        self.config = config
        self.register_buffer("target", torch.zeros((), dtype=torch.float64))
        self.register_buffer("scale", torch.ones((), dtype=torch.float64))
        self.register_buffer("zooms", torch.tensor(_ZOOMS, dtype=torch.float64), persistent=False)

    def forward(self, budgets: Tensor) -> Tensor:
        """Return tanh(zoom · b / scale) for each zoom, [..., K] in float32, for b [...]."""
        zooms: Tensor = self.zooms  # type: ignore[assignment]
        inputs = torch.tanh(budgets.double().unsqueeze(-1) * (zooms / self.scale))
        return (inputs if self.config.observed else torch.zeros_like(inputs)).float()

    def at_target(self, n: int) -> Tensor:
        """Return the inputs of ``n`` episodes that start, [n, K]."""
        inputs: Tensor = self(self.target.expand(n))
        return inputs

    @torch.no_grad()
    def move(self, target: float, scale: float) -> None:
        """Set where episodes start and the unit of the inputs; between rollouts only."""
        self.target.fill_(target)
        self.scale.fill_(scale)
