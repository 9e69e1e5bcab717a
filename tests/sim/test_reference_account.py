"""The kernel against a plain Python account, step by step."""

import dataclasses

import numpy as np
import pytest

from quantail.sim.account import AccountConfig, FillConfig
from quantail.sim.actions import ContinuousActions, DiscreteActions
from quantail.sim.config import ObservationConfig, SimConfig
from quantail.sim.costs import CostConfig, MakerFee, NoSlippage
from quantail.sim.episodes import EpisodeConfig
from quantail.sim.no_trade import NoTradeConfig
from quantail.sim.rewards import (
    DifferentialSharpe,
    DrawdownPenalty,
    PotentialShaped,
    SimpleReturn,
)
from quantail.sim.simulator import MarketSim
from quantail.sim.state import LAST_ROW, ROW
from tests.reference.account import ReferenceAccount
from tests.sim.markets import FILLS, FULL_COSTS, LEVERED, RECORDED_COSTS, make_bars, make_features

CASES = {
    "default": SimConfig(),
    **{f"levered_{name}": dataclasses.replace(LEVERED, fill=fill) for name, fill in FILLS.items()},
    "long_only_recorded_spread": SimConfig(
        actions=ContinuousActions(long_only=True), costs=RECORDED_COSTS, reward=SimpleReturn()
    ),
    "limits_and_steps": SimConfig(
        account=AccountConfig(
            max_leverage=2.0,
            max_notional=12_000.0,
            max_turnover=0.5,
            minimum_notional=50.0,
            minimum_trade=0.01,
            unit_step=0.5,
        ),
        costs=CostConfig(fee=MakerFee(), slippage=NoSlippage()),
        reward=DrawdownPenalty(coefficient=0.5),
        observation=ObservationConfig(window=4),
    ),
    "discrete_masked_late": SimConfig(
        actions=DiscreteActions(levels=(-1.0, -0.5, 0.0, 1.0)),
        fill=FillConfig(delay=2),
        reward=DifferentialSharpe(eta=0.05),
        turnover_penalty=0.002,
        reward_clip=0.5,
    ),
    "ignored_mask_gross_reward": SimConfig(
        costs=FULL_COSTS.__class__(borrow_rate=0.5),
        costs_in_reward=False,
        no_trade=NoTradeConfig(policy="ignore"),
        reward=PotentialShaped(gamma=0.97),
    ),
}
BOOKS = (
    "equity_before", "equity", "price_pnl", "fees", "spread", "slippage", "funding", "borrow",
    "shortfall", "traded", "position", "reward_raw", "turnover_penalty", "cost_fraction",
)  # fmt: skip


@pytest.mark.parametrize("end", ["cut", "final"])
@pytest.mark.parametrize("name", CASES)
def test_kernel_equals_plain_python(name, end):
    """Over 5,000 compared steps in all the cases, through jumps, masks, ruins and last steps."""
    episodes = EpisodeConfig(length=60, end=end)
    config = dataclasses.replace(CASES[name], episodes=episodes, debug=True)
    bars = make_bars(150, 2, seed=3, volatility=0.04, jumps=0.02, no_trade="late" in name)
    features = make_features(bars)
    n_envs, n_steps, n_compared, n_last = 12, 60, 0, 0
    sim = MarketSim(bars, features, config=config, n_envs=n_envs, seed=5, autoreset="disabled")
    places = zip(sim.state.count(ROW).tolist(), sim.state.count(LAST_ROW).tolist(), strict=True)
    accounts = [
        ReferenceAccount(bars, features, config, row=row, last_row=last) for row, last in places
    ]
    for account, seen in zip(accounts, sim.out.observation, strict=True):
        np.testing.assert_allclose(seen, account.observation(), rtol=1e-6, atol=1e-6)
    rng = np.random.default_rng(7)
    alive = np.ones(n_envs, bool)
    for _ in range(n_steps):
        if isinstance(config.actions, DiscreteActions):
            actions = rng.integers(0, config.actions.n_actions, n_envs)
        else:
            actions = rng.uniform(-1, 1, n_envs)
        out = sim.step(actions)
        for i in np.flatnonzero(alive):
            expected = accounts[i].step(actions[i])
            n_compared += 1
            scale = max(abs(expected["equity_before"]), expected["traded"], 1.0)
            for term in BOOKS:
                got = out.column(term)[i]
                assert abs(got - expected[term]) <= 1e-9 * max(scale, abs(expected[term])), term
            assert abs(out.reward[i] - expected["reward"]) <= 1e-9 * max(1, abs(expected["reward"]))
            assert out.terminated[i] == expected["terminated"]
            assert out.truncated[i] == expected["truncated"]
            assert out.sample_weight[i] == expected["sample_weight"]
            seen = out.observation[i]
            np.testing.assert_allclose(seen, expected["observation"], rtol=1e-6, atol=1e-6)
            alive[i] = not (expected["terminated"] or expected["truncated"])
            n_last += expected["terminated" if end == "final" else "truncated"]
    assert n_compared * len(CASES) >= 5_000, n_compared
    assert n_last > 0
