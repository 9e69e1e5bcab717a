"""A market with crash regimes: what an agent that minds its tail gives up, and what it is spared.

Fragile times show in the range of the bars. To stay in then is worth a little on average, and now
and then the price falls by a seventh. ``python -m tests.learning.crash rules`` shows what fixed
rules earn. ``python -m tests.learning.crash SEED ...`` trains an agent with and one without tail
risk for each seed, compares them on the same fresh paths and judges all seeds.
"""

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from scipy import stats
from stable_baselines3.common.vec_env import VecEnv

from quantail import DistributionalPPO
from quantail.market.bars import Bars
from quantail.market.features import ParkinsonVolatility, build_features, compute_features
from quantail.market.sources import SyntheticSource
from quantail.market.sources.laws import CrashRegimes
from quantail.nets.critics import QuantileCritic
from quantail.optim.schedules import Schedules, StepLinear
from quantail.risk.config import DualConfig, RiskConfig, TargetSearch
from quantail.sb3.evaluate import advance_budget
from quantail.sb3.vec_env import MarketVecEnv
from quantail.sim.actions import DiscreteActions
from quantail.sim.config import SimConfig
from quantail.sim.costs import ConstantSpread, CostConfig, NoSlippage, TakerFee
from quantail.sim.episodes import EpisodeConfig
from quantail.sim.problems.laws import sample_cvar
from quantail.sim.rewards import SimpleReturn
from quantail.sim.simulator import MarketSim
from quantail.types import FloatArray

ALPHA = 0.05
LENGTH = 50
"""Bars of an episode."""
LEVELS = (0.0, 0.5, 1.0)
"""Positions to choose from, as shares of the equity."""
LAW = CrashRegimes(
    drifts=(0.001, -0.00001),
    volatilities=(0.0025, 0.01),
    enter=0.012,
    leave=0.02,
    crash_rate=0.006,
    crash_mean=-0.15,
    crash_volatility=0.02,
)
FEATURES = (ParkinsonVolatility(window=1), ParkinsonVolatility(window=3))
WARMUP = 3
SIM = SimConfig(
    actions=DiscreteActions(levels=LEVELS, hold=False),
    costs=CostConfig(
        fee=TakerFee(bps=0.1), spread=ConstantSpread(half_bps=0.1), slippage=NoSlippage()
    ),
    reward=SimpleReturn(),  # linear in the position: nothing but tail risk makes an agent careful
    # The account is judged when its episode is over, so nothing follows that could be valued.
    episodes=EpisodeConfig(length=LENGTH, end="final", warmup=WARMUP),
)
RISK = RiskConfig(
    alpha=ALPHA, limit=-0.08, dual=DualConfig(start=1.0), search=TargetSearch(settle=0.02)
)
"""The limit is half of the CVaR of staying in; it is also the target, from the first update on."""
UPDATES = 80
ENTROPY = 0.005
"""Of the bonus; it falls to 0 from 60 to 90 % of training. Without it a policy that has learned to
hold in calm times stops trying anything else before it has met the crashes."""
EPISODES = 5_000
"""Fresh episodes by which an agent is judged: 250 of them in the tail."""


def seen(volatility: FloatArray) -> FloatArray:
    """Return how an agent sees the volatility of bars: doublings of that of calm ones."""
    with np.errstate(invalid="ignore"):
        return np.log2(volatility / LAW.volatilities[0])


EDGE = float(seen(np.sqrt(np.prod(LAW.volatilities))))
"""Above it a fixed rule takes the market for fragile."""


def market(seed: int, symbols: int, bars: int) -> tuple[Bars, FloatArray]:
    """Return drawn bars and what an agent sees of them, [R, 2]."""
    drawn = SyntheticSource(law=LAW, seed=seed, symbols=symbols, bars=bars, interval="1m").load()
    return drawn, seen(compute_features(drawn, build_features(FEATURES)).values)


def training_env(seed: int, symbols: int = 400, n_envs: int = 512) -> VecEnv:
    """Return accounts that start anywhere in the bars, 5,000 of each symbol."""
    bars, features = market(seed, symbols, 5000)
    sim = MarketSim(bars, features, config=SIM, n_envs=n_envs, seed=seed)
    return MarketVecEnv(sim)


def fresh_env(seed: int, episodes: int = EPISODES) -> VecEnv:
    """Return accounts of which each has a stretch of bars of its own, the same at every reset."""
    symbols, each = 100, WARMUP + LENGTH + 1
    bars, features = market(10_000 + seed, symbols, -(-episodes // symbols) * each)
    rows = range(0, bars.n_bars, each)
    names = [bars.symbols[row * symbols // bars.n_bars] for row in rows]
    windows = [(name, slice(row, row + each)) for name, row in zip(names, rows, strict=True)]
    dealt = replace(SIM.episodes, start="first", symbols="dealt")
    config = replace(SIM, episodes=dealt)
    sim = MarketSim(bars, features, windows=windows, config=config, n_envs=len(windows))
    return MarketVecEnv(sim)


def rule_returns(env: VecEnv, fragile: int) -> FloatArray:
    """Return what a rule earns in each account: all in calm times, a level in fragile ones."""
    observations: Any = env.reset()
    total = np.zeros(env.num_envs)
    for _ in range(LENGTH):
        is_fragile = observations[:, 1] > EDGE
        observations, rewards, _, _ = env.step(np.where(is_fragile, fragile, len(LEVELS) - 1))
        total += rewards
    return total


def train(
    env: VecEnv, seed: int, risk: RiskConfig | None, updates: int = UPDATES
) -> DistributionalPPO:
    """Train an agent; the two kinds differ in ``risk`` alone."""
    rows = env.num_envs * LENGTH
    steps = updates * rows
    fading = StepLinear(
        start=ENTROPY, end=0.0, start_step=int(0.6 * steps), end_step=int(0.9 * steps)
    )
    model = DistributionalPPO(
        "MlpPolicy",
        env,
        learning_rate=lambda left: 1e-3 * max(left, 0.05),
        n_steps=LENGTH,
        batch_size=rows // 4,
        n_epochs=2,
        gamma=1.0,
        gae_lambda=0.95,
        seed=seed,
        device="cpu",
        critic=QuantileCritic(levels="tail", tail_alpha=ALPHA),
        twin="off",
        schedules=Schedules(entropy=fading),
        # What is learned in calm times holds in fragile ones too until they prove different; around
        # their common mean, calm and fragile observations would have nothing in common.
        policy_kwargs={"normalize_observations": False},
        risk=risk,
    )
    return model.learn(steps)


@dataclass(frozen=True)
class Earned:
    """What an agent earned on fresh paths."""

    mean: float
    cvar: float
    calm: float
    """Mean position in times that the fixed rules take for calm."""
    fragile: float
    """The same in fragile times."""


def earned(model: DistributionalPPO, env: VecEnv) -> Earned:
    """Play one episode in each account with the most likely actions."""
    returns = np.zeros(env.num_envs)
    held, count = np.zeros(2), np.zeros(2)
    observations: Any = env.reset()
    starts, state = np.ones(env.num_envs, np.bool_), None
    for _ in range(LENGTH):
        actions, state = model.predict(observations, state, starts, deterministic=True)
        fragile = (observations[:, 1] > EDGE).astype(np.int64)
        held += np.bincount(fragile, np.array(LEVELS)[actions], 2)
        count += np.bincount(fragile, minlength=2)
        observations, rewards, starts, _ = env.step(actions)
        state = advance_budget(model, state, rewards)
        returns += rewards
    calm, fragile = held / count
    return Earned(float(returns.mean()), sample_cvar(returns, ALPHA), float(calm), float(fragile))


def pair(seed: int, updates: int = UPDATES) -> tuple[Earned, Earned]:
    """Train without and with tail risk; judge both on the same fresh paths."""
    torch.set_num_threads(1)
    training, fresh = training_env(seed), fresh_env(seed)
    neutral = earned(train(training, seed, None, updates), fresh)
    return neutral, earned(train(training, seed, RISK, updates), fresh)


@dataclass(frozen=True)
class Verdict:
    """Agents with tail risk against those without, paired by seed; 95 % intervals (Student)."""

    difference: tuple[float, float]
    """Of the means, with less without."""
    loss: float
    """Share of the mean that was given up, over all seeds."""
    spared: float
    """Share of CVaR by which it is better, mean over the seeds."""
    improvement: tuple[float, float]
    """Its interval."""

    @property
    def is_equal_mean(self) -> bool:
        """The interval of the difference reaches 0, and no more than 5 % was given up."""
        return self.difference[1] >= 0.0 and self.loss <= 0.05


def verdict(pairs: Sequence[tuple[Earned, Earned]]) -> Verdict:
    """Judge pairs of (without, with) tail risk."""
    means = np.array([[one.mean for one in both] for both in pairs])
    tails = np.array([[one.cvar for one in both] for both in pairs])
    better = 1.0 - tails[:, 1] / tails[:, 0]
    return Verdict(
        difference=_interval(means[:, 1] - means[:, 0]),
        loss=float(1.0 - means[:, 1].mean() / means[:, 0].mean()),
        spared=float(better.mean()),
        improvement=_interval(better),
    )


def _interval(values: FloatArray) -> tuple[float, float]:
    low, high = stats.ttest_1samp(values, 0.0).confidence_interval()
    return float(low), float(high)


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201


def _show_rules(episodes: int = 40_000) -> None:
    env = fresh_env(0, episodes)
    always = rule_returns(env, len(LEVELS) - 1)
    for level, position in enumerate(LEVELS):
        got = rule_returns(env, level)
        less, error = (got - always).mean(), (got - always).std() / np.sqrt(got.size)
        cvar = sample_cvar(got, ALPHA)
        _say(
            f"{position:g} when fragile: mean {got.mean():.5f} CVaR {cvar:.4f}, mean "
            f"{less:+.5f} ± {error:.5f} and CVaR {1 - cvar / sample_cvar(always, ALPHA):.0%} "
            "better than always 1"
        )


def _show(seeds: Sequence[int]) -> None:
    pairs = []
    for seed in seeds:
        clock = time.process_time()
        pairs.append(pair(seed))
        cells = [
            f"{one.mean:.5f} | {one.cvar:.4f} | {one.calm:.2f} / {one.fragile:.2f}"
            for one in pairs[-1]
        ]
        _say(f"| {seed} | {' | '.join(cells)} | {time.process_time() - clock:.0f} s |")
    if len(pairs) > 1:
        _say(f"{verdict(pairs)}, equal mean: {verdict(pairs).is_equal_mean}")


if __name__ == "__main__":
    if sys.argv[1] == "rules":
        _show_rules()
    else:
        _show([int(seed) for seed in sys.argv[1:]])
