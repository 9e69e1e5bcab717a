"""N markets at once: accounts that trade over shared bars, with exact books.

The public names are imported on first use, so that reading a configuration or using the problems
does not load the market kernel. Importing the package registers ``Quantail/Market-v0``.
"""

from importlib import import_module
from typing import Any, Final

from gymnasium.envs.registration import register

# public name -> module that defines it
_PUBLIC: Final[dict[str, str]] = {
    "ACCOUNT_STATE": "quantail.sim.account_state",
    "AccountConfig": "quantail.sim.account",
    "CostConfig": "quantail.sim.costs",
    "EpisodeConfig": "quantail.sim.episodes",
    "FillConfig": "quantail.sim.account",
    "MarketEnv": "quantail.sim.gym_env",
    "MarketSim": "quantail.sim.simulator",
    "MarketVectorEnv": "quantail.sim.gym_env",
    "NoTradeConfig": "quantail.sim.no_trade",
    "SimConfig": "quantail.sim.config",
    "StepBuffers": "quantail.sim.state",
    "StressConfig": "quantail.sim.stress",
    "account_state": "quantail.sim.account_state",
    "check_gamma": "quantail.sim.rewards",
    "summarize_costs": "quantail.sim.records",
}

__all__ = [*_PUBLIC]  # noqa: PLE0604 - the table above is the single list of names

register(
    id="Quantail/Market-v0",
    entry_point="quantail.sim.gym_env:MarketEnv",
    vector_entry_point="quantail.sim.gym_env:MarketVectorEnv",
)


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'quantail.sim' has no attribute {name!r}")
