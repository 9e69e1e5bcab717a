"""A configuration with every shape that the product's own configurations use."""

import datetime
from dataclasses import field
from pathlib import Path
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Le, Lt, MinLen

from quantail.config_class import BY_KIND, config
from quantail.errors import ConfigError


@config
class QuantileHead:
    kind: Literal["quantile"] = "quantile"
    n_quantiles: Annotated[int, Ge(2), Le(512)] = 32
    levels: Literal["uniform", "tail"] = "uniform"


@config
class CategoricalHead:
    kind: Literal["categorical"] = "categorical"
    n_atoms: Annotated[int, Ge(2)] = 51
    support: tuple[float, float] = (-10.0, 10.0)

    def check(self) -> None:
        if not self.support[0] < self.support[1]:
            raise ConfigError(f"support must rise; was {self.support}. Swap the two numbers")


HeadConfig = Annotated[QuantileHead | CategoricalHead, BY_KIND]


@config
class Window:
    start: datetime.date
    stop: datetime.date | None = None


@config
class Learning:
    rate: Annotated[float, Gt(0), Lt(1)] = 3e-4
    gamma: Annotated[float, Ge(0), Le(1)] = 0.99
    max_grad_norm: Annotated[float, Gt(0)] | None = 0.5


@config
class Root:
    name: str = "run"
    seed: Annotated[int, Ge(0)] = 0
    verbose: bool = False
    folder: Path = Path("runs")
    learning: Learning = Learning(gamma=0.95)
    head: HeadConfig = QuantileHead(n_quantiles=64)
    heads: tuple[HeadConfig, ...] = ()
    windows: Annotated[tuple[Window, ...], MinLen(1)] = (Window(start=datetime.date(2020, 1, 1)),)
    tags: dict[str, float] = field(default_factory=dict)
