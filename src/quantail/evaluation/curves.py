"""How an agent is judged on a market, and how it fares under other assumptions.

Here are the settings and the evidence of a judgment; the other assumptions are multiples of the
costs, and orders that fill later.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Final, TypeAlias

from annotated_types import Ge

from quantail.config_class import config
from quantail.errors import ConfigError, ConfigProblem
from quantail.evaluation.agent_policy import AgentPolicy
from quantail.evaluation.backtest import (
    MarketRun,
    MarketTask,
    make_track,
    memory_groups,
    run_markets,
)
from quantail.evaluation.bootstrap import BootstrapConfig
from quantail.evaluation.calibration import Stretches, horizon
from quantail.evaluation.constant import ConstantPosition
from quantail.evaluation.record import CostCurve, DelayCurve, SensitivityPoint, Track
from quantail.evaluation.tables import break_even, sensitivity_point
from quantail.sb3.agent import DistributionalPPO
from quantail.types import FloatArray

Variant: TypeAlias = tuple[float, int]
"""Factor on the costs and bars of additional delay."""

OWN: Final[Variant] = (1.0, 0)
"""The agent as it is."""


@config
class MarketEvaluation:
    """How an agent is judged on a market."""

    bootstrap: BootstrapConfig = BootstrapConfig()
    """How intervals are computed."""
    cost_factors: tuple[Annotated[float, Ge(0)], ...] = (0.0, 0.5, 1.0, 2.0, 4.0)
    """Multiples of fee, spread and slippage; must include 1. Empty for no curve."""
    delays: tuple[Annotated[int, Ge(0)], ...] = (0, 1, 2)
    """Bars that orders fill later than ``fill.delay`` says; must include 0. Empty for no curve."""
    momentum_window: Annotated[int, Ge(1)] = 20
    """Bars over which the momentum baseline looks back."""
    sampled: bool = True
    """Also run the agent with drawn actions, as it acted in training."""

    def check(self) -> None:
        """Refuse curves out of order or without their reference point."""
        for name, values, reference in (
            ("cost_factors", self.cost_factors, 1.0),
            ("delays", self.delays, 0),
        ):
            if values and (list(values) != sorted(set(values)) or reference not in values):
                problem = f"must rise and include {reference:g}, or be empty; was {values!r}"
                raise ConfigError([ConfigProblem(name, problem)])

    @property
    def variants(self) -> list[Variant]:
        """All points of both curves, and the agent as it is."""
        on_costs = [(factor, 0) for factor in self.cost_factors]
        on_delays = [(1.0, delay) for delay in self.delays]
        return list(dict.fromkeys([OWN, *on_costs, *on_delays]))


@dataclass(frozen=True, slots=True, eq=False)
class Evidence:
    """What the judgment of one agent rests on; with it, several judgments can be made one."""

    variants: Mapping[Variant, Track]
    """The agent under every assumption, over the same windows."""
    stretches: Stretches | None
    """What the critic foretold and what came; None where it foretells nothing."""
    trial_returns: FloatArray | None
    """[T, trials] of the agents that it was chosen from, over common bars."""
    constant: ConstantPosition | None
    """What the agent holds nearly always, if it does."""


def run_variants(
    task: MarketTask, agent: DistributionalPPO, settings: MarketEvaluation
) -> tuple[MarketRun, dict[Variant, Track]]:
    """Run the agent as it is, at other multiples of the costs and with later fills, side by side.

    Returns:
        The agent's own run, and a track for each variant, its own among them.
    """
    own: list[MarketRun] = []
    tracks: dict[Variant, Track] = {}
    for group in memory_groups(task, settings.variants):
        sims = [task.delayed(delay).simulator(cost_scale=factor) for factor, delay in group]
        policy = AgentPolicy(agent, budget_steps=task.config.episodes.length)
        runs = run_markets(sims, policy, horizon(agent.gamma))
        for variant, run in zip(group, runs, strict=True):
            tracks[variant] = make_track(task, run, name="agent", label="Agent")
            if variant == OWN:
                own.append(run)
    return own[0], tracks


def sensitivity_curves(
    tracks: Mapping[Variant, Track], settings: MarketEvaluation, periods_per_year: float
) -> tuple[CostCurve | None, DelayCurve | None]:
    """Return the curves through the variants; None for one that was not asked for."""

    def points(variants: Sequence[tuple[float, Variant]]) -> tuple[SensitivityPoint, ...]:
        return tuple(
            sensitivity_point(at, tracks[key].portfolio, periods_per_year, settings.bootstrap)
            for at, key in variants
        )

    costs = points([(factor, (factor, 0)) for factor in settings.cost_factors])
    delays = points([(delay, (1.0, delay)) for delay in settings.delays])
    return (
        CostCurve(costs, break_even(costs)) if costs else None,
        DelayCurve(delays) if delays else None,
    )
