"""Critics: the union is the register."""

from typing import Annotated, TypeAlias

from quantail.config_class import BY_KIND
from quantail.nets.critics.base import CriticHead
from quantail.nets.critics.categorical import CategoricalCritic, CategoricalValues
from quantail.nets.critics.quantile import QuantileCritic, QuantileValues
from quantail.nets.critics.scalar import ScalarCritic, ScalarValues

CriticConfig: TypeAlias = Annotated[QuantileCritic | CategoricalCritic | ScalarCritic, BY_KIND]

__all__ = [
    "CategoricalCritic",
    "CategoricalValues",
    "CriticConfig",
    "CriticHead",
    "QuantileCritic",
    "QuantileValues",
    "ScalarCritic",
    "ScalarValues",
]
