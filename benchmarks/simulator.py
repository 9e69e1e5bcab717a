"""Steps per processor second of trading environments: ``python benchmarks/simulator.py [seconds]``.

One process, one thread, the same bars and 16 features, random actions, many short rounds taken in
turn. The figure of an environment is that of its best round, the one that other processes disturbed
least; the median is beside it. Ours runs the full cost model: mixed fee, volatility-linked spread,
square-root impact, funding, interest, leverage with a maintenance margin, episodes with auto-reset,
and the books of every step. The others run their own, simpler one: a single env, both as
``gymnasium.make`` gives it with the package's own settings and in its fastest form, the bare class
with a window of one bar.
A competitor that is not installed is left out, with a sentence.
"""

import statistics
import sys
import time
import warnings
from collections.abc import Callable

import gymnasium
import numpy as np
import pandas as pd

from quantail.market.bars import Bars
from quantail.sb3.vec_env import MarketVecEnv
from quantail.sim.account import AccountConfig
from quantail.sim.config import SimConfig
from quantail.sim.costs import CostConfig, MixedFee, VolatilitySpread
from quantail.sim.simulator import MarketSim

N_BARS, N_FEATURES, ROUNDS = 20_000, 16, 60
FULL = SimConfig(
    account=AccountConfig(max_leverage=2.0, maintenance_margin=0.05),
    costs=CostConfig(fee=MixedFee(), spread=VolatilitySpread(), borrow_rate=0.05, margin_rate=0.05),
)
# Runs at least this many steps and returns how many it ran.
Runner = Callable[[int], int]


def make_frame() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    close = 100.0 * np.exp(np.cumsum(rng.normal(0.0, 0.005, N_BARS)))
    open_ = np.r_[100.0, close[:-1]] * np.exp(rng.normal(0.0, 0.001, N_BARS))
    return pd.DataFrame(
        {
            "symbol": "X",
            "time": pd.date_range("2010-01-01", periods=N_BARS, freq="4h"),
            "open": open_,
            "high": np.maximum(open_, close) * 1.002,
            "low": np.minimum(open_, close) * 0.998,
            "close": close,
            "volume": rng.uniform(1e5, 1e6, N_BARS),
            "funding": rng.normal(0.0, 1e-4, N_BARS),
        }
    )


def make_features() -> np.ndarray:
    return np.random.default_rng(1).normal(size=(N_BARS, N_FEATURES)).astype(np.float32)


def ours(frame: pd.DataFrame, n_envs: int, skin: bool) -> Runner:
    sim = MarketSim(Bars.from_frame(frame), make_features(), config=FULL, n_envs=n_envs)
    step = MarketVecEnv(sim).step if skin else sim.step
    actions = np.random.default_rng(2).uniform(-1, 1, (64, n_envs, 1)).astype(np.float32)

    def run(steps: int) -> int:
        calls = max(1, steps // n_envs)
        for k in range(calls):
            step(actions[k % 64])
        return calls * n_envs

    return run


def _single(env) -> Runner:
    actions = np.random.default_rng(2).integers(0, env.action_space.n, 4096).tolist()
    env.reset(seed=0)

    def run(steps: int) -> int:
        for k in range(steps):
            _, _, terminated, truncated, _ = env.step(actions[k % 4096])
            if terminated or truncated:
                env.reset()
        return steps

    return run


def gym_anytrading(frame: pd.DataFrame) -> Runner:
    from gym_anytrading.envs import StocksEnv  # noqa: PLC0415 - optional

    class WithFeatures(StocksEnv):
        def _process_data(self):
            return self.df["Close"].to_numpy(), make_features()

    closes = frame.rename(columns=str.capitalize)
    return _single(WithFeatures(df=closes, window_size=1, frame_bound=(1, N_BARS)))


def gym_anytrading_registered(frame: pd.DataFrame) -> Runner:
    import gym_anytrading  # noqa: F401, PLC0415 - optional; registers stocks-v0

    closes = frame.rename(columns=str.capitalize)
    return _single(gymnasium.make("stocks-v0", df=closes, window_size=10, frame_bound=(10, N_BARS)))


def gym_trading_env(frame: pd.DataFrame) -> Runner:
    with warnings.catch_warnings():  # importing it turns every warning into an error
        from gym_trading_env.environments import TradingEnv  # noqa: PLC0415 - optional
    prices = frame[["open", "high", "low", "close", "volume"]]
    names = [f"feature_{k}" for k in range(N_FEATURES)]
    table = pd.concat([prices, pd.DataFrame(make_features(), columns=names)], axis=1)
    table.index = pd.DatetimeIndex(frame["time"])
    env = TradingEnv(
        table, positions=[-1, 0, 1], trading_fees=1e-3, borrow_interest_rate=1e-5,
        max_episode_duration=256, verbose=0,
    )  # fmt: skip
    return _single(env)


COMPETITORS = {
    "gym-anytrading": gym_anytrading,
    "gym-anytrading by make": gym_anytrading_registered,
    "gym-trading-env": gym_trading_env,
}


def measure(runners: dict[str, Runner], seconds: float) -> dict[str, list[float]]:
    """Steps per processor second of each runner, one value per round."""
    size = {}
    for name, run in runners.items():
        run(1)  # compiles
        start = time.process_time()
        done = run(2_000)
        size[name] = max(1, int(done * seconds / max(time.process_time() - start, 1e-6)))
    rates: dict[str, list[float]] = {name: [] for name in runners}
    for _ in range(ROUNDS):
        for name, run in runners.items():
            start = time.process_time()
            done = run(size[name])
            rates[name].append(done / (time.process_time() - start))
    return rates


def main(seconds: float) -> None:
    frame = make_frame()
    runners = {f"quantail N={n}": ours(frame, n, skin=False) for n in (1, 64, 256, 1024)}
    runners["quantail VecEnv N=256"] = ours(frame, 256, skin=True)
    peers = []
    for name, build in COMPETITORS.items():
        try:
            runners[name] = build(frame)
        except ImportError as missing:
            print(f"{name} is left out: it is not installed ({missing}).")
        else:
            peers.append(name)
    rates = measure(runners, seconds)
    best = {name: max(values) for name, values in rates.items()}
    print(
        "| environment | million steps per CPU s | median |" + "".join(f" x {p} |" for p in peers)
    )
    print(f"|---|---|---|{'---|' * len(peers)}")
    for name, values in rates.items():
        ratios = " | ".join(f"{best[name] / best[peer]:.0f}" for peer in peers)
        median = statistics.median(values)
        print(f"| {name} | {best[name] / 1e6:.3f} | {median / 1e6:.3f} | {ratios} |")
    extra = best["quantail N=256"] / best["quantail VecEnv N=256"] - 1.0
    print(
        f"The VecEnv skin at N=256 costs {extra:.2f} times the simulator's own step on top of it."
    )


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 0.02)
