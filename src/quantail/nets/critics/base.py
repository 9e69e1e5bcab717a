"""What every critic head offers."""

from abc import ABC, abstractmethod
from typing import Generic, TypeVar

from torch import Tensor, nn

from quantail.flow import ValueDistribution
from quantail.nets.critics.return_scale import ReturnScale

LawT_co = TypeVar("LawT_co", bound=ValueDistribution, covariant=True)


class CriticHead(nn.Module, ABC, Generic[LawT_co]):
    """From a latent vector to a law of returns in raw units."""

    def __init__(self, scale_rate: float) -> None:
        super().__init__()
        self.scale = ReturnScale(scale_rate)

    @abstractmethod
    def forward(self, latent: Tensor) -> LawT_co:
        """Return the law for each row of ``latent`` [..., H]."""

    @abstractmethod
    def update_scale(self, atoms: Tensor, weights: Tensor, row_weights: Tensor) -> None:
        """Move the return scale to new targets without moving the raw predictions.

        To be called once for each rollout, before its epochs.

        Args:
            atoms: [R, M] of the target laws, in raw units.
            weights: [M], sum to 1.
            row_weights: [R]; rows of weight 0 do not count.
        """
