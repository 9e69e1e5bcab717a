"""The contract of a reward, for those who add one."""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from quantail.errors import ConfigError
from quantail.market.bars import Bars
from quantail.sim.config import SimConfig
from quantail.sim.costs import FREE, ConstantSpread, CostConfig, NoSlippage, TakerFee
from quantail.sim.episodes import EpisodeConfig
from quantail.sim.random import env_seeds
from quantail.sim.rewards import AnyReward
from quantail.sim.simulator import MarketSim
from quantail.types import BoolArray, FloatArray

N_ENVS: Final = 5
N_STEPS: Final = 120
SEED: Final = 3
_LINEAR = CostConfig(fee=TakerFee(), spread=ConstantSpread(), slippage=NoSlippage())


@dataclass(frozen=True, slots=True)
class RewardReport:
    """What the check saw of a reward that keeps its contract."""

    largest: float
    """Largest reward in size, of a random policy."""
    mean_cost_effect: float
    """How much lower the reward of the first trade is with costs than without, on average."""


@dataclass(frozen=True, slots=True)
class _Run:
    reward: FloatArray
    """[T, N]"""
    raw: FloatArray
    """[T, N] before clipping."""


def check_reward(reward: AnyReward, bars: Bars) -> RewardReport:
    """Check that a reward keeps the promises of its family on the given bars.

    It is finite; the same seeds give the same rewards, whatever other accounts do beside; an
    account that never trades earns nothing; the unit of money does not matter; costs never raise
    the reward of a first trade; a bound is applied once, to the raw value, which stays in the
    record.

    Args:
        reward: A configuration of the union ``RewardConfig``.
        bars: Bars to trade on, a few hundred of each symbol.

    Raises:
        ConfigError: Names the first promise that is broken, and the numbers.
    """
    config = SimConfig(reward=reward, costs=_LINEAR, episodes=EpisodeConfig(length=40))
    actions = np.random.default_rng(SEED).uniform(-1.0, 1.0, (N_STEPS, N_ENVS))
    run = _run(bars, config, actions, env_seeds(SEED, N_ENVS))
    _promise(reward, "be finite", run.reward, np.isfinite(run.reward))
    _check_determinism(bars, config, actions, run)
    _check_money(bars, config, actions, run)
    _check_stillness(bars, config)
    effect = _check_costs(bars, config, actions)
    _check_clip(bars, config, actions, run)
    return RewardReport(float(np.abs(run.reward).max()), effect)


def _run(bars: Bars, config: SimConfig, actions: FloatArray, seeds: list[int]) -> _Run:
    sim = MarketSim(bars, config=config, n_envs=actions.shape[1], seed=seeds)
    steps = [(out.reward.copy(), out.column("reward_raw")) for out in map(sim.step, actions)]
    reward, raw = (np.stack(part) for part in zip(*steps, strict=True))
    return _Run(reward, raw)


def _check_determinism(bars: Bars, config: SimConfig, actions: FloatArray, run: _Run) -> None:
    seeds = env_seeds(SEED, N_ENVS)
    again = _run(bars, config, actions, seeds).reward
    _promise(config.reward, "be the same for the same seeds", again, again == run.reward)
    alone = _run(bars, config, actions[:, -1:], seeds[-1:]).reward
    same = alone == run.reward[:, -1:]
    _promise(config.reward, "not depend on the other accounts of the batch", alone, same)


def _check_money(bars: Bars, config: SimConfig, actions: FloatArray, run: _Run) -> None:
    account = replace(config.account, initial_equity=1e3 * config.account.initial_equity)
    rich = replace(config, account=account)
    found = _run(bars, rich, actions, env_seeds(SEED, N_ENVS)).reward
    same = np.isclose(found, run.reward, rtol=1e-7, atol=1e-10)
    _promise(config.reward, "be the same when all money is counted in another unit", found, same)


def _check_stillness(bars: Bars, config: SimConfig) -> None:
    still = np.zeros((N_STEPS, N_ENVS))
    found = _run(bars, config, still, env_seeds(SEED, N_ENVS)).reward
    _promise(config.reward, "be 0 for an account that never trades", found, found == 0.0)


def _check_clip(bars: Bars, config: SimConfig, actions: FloatArray, run: _Run) -> None:
    bound = float(np.median(np.abs(run.raw)))
    clipped = replace(config, reward_clip=bound)
    found = _run(bars, clipped, actions, env_seeds(SEED, N_ENVS))
    _promise(config.reward, "keep its raw value when bounded", found.raw, found.raw == run.raw)
    expected = np.clip(run.raw, -bound, bound)
    same = found.reward == expected
    _promise(config.reward, "be bounded once, after costs", found.reward, same)


def _check_costs(bars: Bars, config: SimConfig, actions: FloatArray) -> float:
    seeds = env_seeds(SEED, N_ENVS)
    free = _run(bars, replace(config, costs=FREE), actions[:1], seeds).reward
    costly = _run(bars, config, actions[:1], seeds).reward
    effect = free - costly
    _promise(config.reward, "not be raised by costs", costly, effect >= -1e-12)
    return float(effect.mean())


def _promise(reward: AnyReward, promise: str, found: FloatArray, kept: BoolArray) -> None:
    if kept.all():
        return
    step, env = np.argwhere(~kept)[0]
    raise ConfigError(
        f"reward {reward.kind!r} must {promise}; at step {step} of env {env} it was "
        f"{float(found[step, env])!r}, and {int((~kept).sum())} value(s) in all break this. "
        "Correct its compiled function."
    )
