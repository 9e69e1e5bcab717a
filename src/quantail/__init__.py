"""Quantail trains trading agents that know their left tail.

The public names are imported on first use, so that ``import quantail`` stays quick and the market
side never pays for torch.
"""

from importlib import import_module
from importlib.metadata import version
from typing import Any, Final

__version__: Final = version("quantail")

# public name -> module that defines it
_PUBLIC: Final[dict[str, str]] = {
    "Bars": "quantail.market.bars",
    "DistributionalPPO": "quantail.sb3.agent",
    "MarketSim": "quantail.sim.simulator",
    "MarketVecEnv": "quantail.sb3.vec_env",
    "SimConfig": "quantail.sim.config",
}

__all__ = ["__version__", *_PUBLIC]  # noqa: PLE0604 - the table above is the single list of names


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'quantail' has no attribute {name!r}")
