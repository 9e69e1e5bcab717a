"""Problems charge what an account of the market would be charged."""

import numpy as np
import pytest

from quantail.sim.account import FillConfig
from quantail.sim.config import SimConfig
from quantail.sim.costs import ConstantSpread, CostConfig, NoSlippage, TakerFee
from quantail.sim.episodes import EpisodeConfig
from quantail.sim.problems import ProportionalCost
from quantail.sim.problems.trading import proportional_cost
from quantail.sim.simulator import MarketSim
from quantail.sim.state import UNITS
from tests.sim.markets import EXACT, bars_of_closes


def test_a_problem_charges_what_the_books_of_an_account_say():
    """An asset of constant price 1, so that units are positions and only costs move the equity."""
    fee = TakerFee(bps=25.0)
    config = SimConfig(
        account=EXACT,
        fill=FillConfig(price="close", delay=0),
        costs=CostConfig(fee=fee, spread=ConstantSpread(half_bps=0.0), slippage=NoSlippage()),
        episodes=EpisodeConfig(length=None, start="first"),
        debug=True,
    )
    sim = MarketSim(bars_of_closes(np.ones(60)), config=config, n_envs=3, autoreset="disabled")
    rng = np.random.default_rng(0)
    for _ in range(50):
        before = sim.state.value(UNITS)
        out = sim.step(rng.uniform(-1, 1, 3))
        charged = out.column("fees") + out.column("spread") + out.column("slippage")
        due = proportional_cost(fee.fraction, before, sim.state.value(UNITS))
        np.testing.assert_allclose(due, charged, rtol=1e-12)
        assert (charged > 0.0).all()


@pytest.mark.parametrize("scale", [1.0, 0.3])
def test_the_reward_of_a_problem_holds_that_cost(scale):
    free, costly = (ProportionalCost(cost=cost).build(5, seed=2) for cost in (0.0, 0.7))
    costly.set_cost_scale(scale)
    free.reset()
    costly.reset()
    position = np.zeros(5)
    rng = np.random.default_rng(1)
    for _ in range(20):
        actions = rng.uniform(-1, 1, (5, 1)).astype(np.float32)
        difference = free.step(actions).reward - costly.step(actions).reward
        after = actions[:, 0].astype(np.float64)
        np.testing.assert_allclose(difference, 0.7 * scale * np.abs(after - position), atol=1e-12)
        position = after
