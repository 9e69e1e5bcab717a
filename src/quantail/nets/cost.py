"""The cost critic: a scalar critic of its own, beside those of the return."""

from typing import Annotated

from annotated_types import Gt, Le

from quantail.config_class import config


@config
class CostCritic:
    """That there is one, and over which discount it looks ahead.

    It reads what the other critics read, has hidden layers of the same sizes, and knows no law: of
    a cost only the mean is limited.
    """

    discount: Annotated[float, Gt(0), Le(1)]
    """γ, that of the agent."""
