"""A policy over whole windows: every bar once, all windows side by side on one simulator."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from quantail.errors import DataError
from quantail.evaluation.measures import equity_curve
from quantail.evaluation.policies import ActingPolicy, Forecast, Moment
from quantail.evaluation.record import Series, Track, Window
from quantail.market.bars import Bars
from quantail.sim.config import SimConfig
from quantail.sim.episodes import LAST_BAR
from quantail.sim.simulator import MarketSim
from quantail.sim.state import BANKRUPT, END_REASONS, LIQUIDATED, RECORD, ROW
from quantail.sim.stress import StressConfig
from quantail.types import BoolArray, Float32Array, FloatArray, IntArray

StateT = TypeVar("StateT")
ItemT = TypeVar("ItemT")

_MOST_STEPS: Final = 4_000_000
"""Account steps whose records are held at once, some 300 MB."""

# column of a series -> column of the simulator's record, both as amounts of money
_MONEY: Final = {
    "turnover": "traded",
    "fee": "fees",
    "spread": "spread",
    "slippage": "slippage",
    "funding": "funding",
    "borrow": "borrow",
}
_KEPT: Final = ("equity_before", "equity", "position", *_MONEY.values())
_COLUMNS: Final = tuple(RECORD.index(name) for name in _KEPT)


@dataclass(frozen=True, slots=True, eq=False)
class MarketTask:
    """What policies are judged on: bars, what is seen of them, windows and the account's rules."""

    bars: Bars
    features: Float32Array | FloatArray | None
    """[bars, F] as the agent was trained on them."""
    windows: tuple[tuple[str, slice], ...]
    """Symbol and rows of each window; a symbol may have several."""
    config: SimConfig
    """As in training; stress is switched off, costs are full."""

    @staticmethod
    def of_rows(
        bars: Bars,
        features: Float32Array | FloatArray | None,
        rows: IntArray,
        config: SimConfig,
    ) -> "MarketTask":
        """Build a task from start and stop rows [W, 2], as :class:`~quantail.market.Fold` has them.

        Raises:
            DataError: When there is no window.
        """
        if not len(rows):
            raise DataError("an evaluation needs at least one window; there is none. Check splits.")
        owner = np.searchsorted(bars.offsets, rows[:, 0], side="right") - 1
        windows = tuple(
            (bars.symbols[symbol], slice(int(start), int(stop)))
            for symbol, (start, stop) in zip(owner, rows, strict=True)
        )
        return MarketTask(bars, features, windows, config)

    def simulator(self, copies: int = 1, cost_scale: float = 1.0) -> MarketSim:
        """Return one account for each window, ``copies`` times."""
        calm = dataclasses.replace(self.config, stress=StressConfig())
        sim = MarketSim.over_windows(self.bars, self.features, self.windows * copies, calm)
        sim.set_cost_scale(cost_scale)
        sim.reset()  # so that the first observation shows the scaled costs
        return sim

    def delayed(self, delay: int) -> "MarketTask":
        """Return the same task with orders that fill ``delay`` bars later."""
        fill = self.config.fill
        later = dataclasses.replace(fill, delay=fill.delay + delay)
        return dataclasses.replace(self, config=dataclasses.replace(self.config, fill=later))


@dataclass(frozen=True, slots=True, eq=False)
class MarketRun:
    """What N accounts did, step by step; an account that has ended rests."""

    record: FloatArray
    """[T, N, K] the columns of ``_KEPT``."""
    rewards: FloatArray
    """[T, N]"""
    alive: BoolArray
    """[T, N] the step was a real one."""
    first_rows: IntArray
    """[N] the bar at whose close the first decision was made."""
    last_rows: IntArray
    """[N] the last bar of the window."""
    ended: tuple[str, ...]
    """Why an account ended before its window; empty if it did not."""
    forecasts: tuple[Forecast, ...]
    """At steps 0, h, 2h, ...; empty if none were asked for or the policy has none."""

    def column(self, name: str) -> FloatArray:
        """Return one column, [T, N]."""
        column: FloatArray = self.record[..., _KEPT.index(name)]
        return column


def run_market(
    sim: MarketSim, policy: ActingPolicy[Any], forecast_every: int | None = None
) -> MarketRun:
    """Let a policy trade all windows of a simulator from first to last bar.

    Args:
        sim: From :meth:`MarketTask.simulator`.
        policy: Who acts.
        forecast_every: Steps h between two forecasts that are kept; None keeps none.
    """
    return run_markets([sim], policy, forecast_every)[0]


def run_markets(
    sims: Sequence[MarketSim], policy: ActingPolicy[StateT], forecast_every: int | None = None
) -> list[MarketRun]:
    """Run one policy on several simulators over the same windows, in one batch.

    A network's step costs much the same for ten accounts as for a hundred, so the variants of a
    sensitivity curve go side by side.
    """
    logs = [_Log.of(sim) for sim in sims]
    n_steps = logs[0].rewards.shape[0]
    assert all(log.rewards.shape[0] == n_steps for log in logs), "the windows must be the same"
    ends = np.cumsum([sim.n_envs for sim in sims])
    state: StateT | None = None
    for step in range(n_steps):
        moment = Moment(
            np.concatenate([sim.out.observation for sim in sims]),
            np.concatenate([sim.state.count(ROW) for sim in sims]),
            np.full(ends[-1], step == 0),
        )
        actions, after = policy.act(moment, state)
        if forecast_every is not None and step % forecast_every == 0:
            _keep_forecast(logs, policy.forecast(after), ends)
        rewards = [
            log.step(sim, step, part)
            for log, sim, part in zip(logs, sims, np.split(actions, ends[:-1]), strict=True)
        ]
        state = policy.receive(after, np.concatenate(rewards))
    return [log.close() for log in logs]


def _keep_forecast(logs: Sequence["_Log"], forecast: Forecast | None, ends: IntArray) -> None:
    if forecast is None:
        return
    for log, start, stop in zip(logs, [0, *ends[:-1]], ends, strict=True):
        log.forecasts.append(Forecast(forecast.atoms[start:stop], forecast.weights[start:stop]))


@dataclass(slots=True, eq=False)
class _Log:
    """What one simulator did so far."""

    record: FloatArray
    rewards: FloatArray
    alive: BoolArray
    first_rows: IntArray
    last_rows: IntArray
    running: BoolArray
    """[N]"""
    reasons: IntArray
    """[N] codes of END_REASONS."""
    forecasts: list[Forecast]

    @staticmethod
    def of(sim: MarketSim) -> "_Log":
        """Start at the first bars."""
        sim.reset()
        first = sim.state.count(ROW)
        last = sim.market.table[:, LAST_BAR].copy()
        shape = (int((last - first).max()), sim.n_envs)
        return _Log(
            record=np.zeros((*shape, len(_KEPT))),
            rewards=np.zeros(shape),
            alive=np.zeros(shape, np.bool_),
            first_rows=first,
            last_rows=last,
            running=np.ones(sim.n_envs, np.bool_),
            reasons=np.zeros(sim.n_envs, np.int64),
            forecasts=[],
        )

    def step(self, sim: MarketSim, step: int, actions: NDArray[Any]) -> FloatArray:
        """Take a step and return its rewards, [N]."""
        out = sim.step(actions)
        self.alive[step] = self.running
        rewards: FloatArray = np.where(self.running, out.reward, 0.0)
        self.rewards[step] = rewards
        self.record[step] = out.record[:, _COLUMNS]
        self.reasons = np.where(self.running, out.end_reason, self.reasons)
        self.running = self.running & ~(out.terminated | out.truncated)
        return rewards

    def close(self) -> MarketRun:
        """Return the whole run."""
        assert not self.running.any(), "every window ends after as many steps as it has bars"
        ruined = {BANKRUPT, LIQUIDATED}
        codes = self.reasons.tolist()
        ended = tuple(END_REASONS[code] if code in ruined else "" for code in codes)
        return MarketRun(
            self.record, self.rewards, self.alive, self.first_rows, self.last_rows, ended,
            tuple(self.forecasts),
        )  # fmt: skip


def make_track(
    task: MarketTask,
    run: MarketRun,
    *,
    name: str,
    label: str,
    hindsight: bool = False,
    copy: int = 0,
) -> Track:
    """Turn a run, or one of its copies of the windows, into a track.

    An account that was ruined stays in the portfolio with a return of zero until its window ends:
    dropping it would forget the loss's weight in all later means.
    """
    n_windows = len(task.windows)
    envs = range(copy * n_windows, (copy + 1) * n_windows)
    windows, parts, rows = [], [], []
    start = 0
    for env, (symbol, _) in zip(envs, task.windows, strict=True):
        window_rows = np.arange(run.first_rows[env] + 1, run.last_rows[env] + 1)
        stop = start + len(window_rows)
        windows.append(Window(symbol, start, stop, run.ended[env]))
        parts.append(_account(run, env, len(window_rows), task.config.account.initial_equity))
        rows.append(window_rows)
        start = stop
    columns = {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
    row = np.concatenate(rows)
    bars = Series(time=task.bars.time[row], price=task.bars.close[row], **columns)
    price_return = task.bars.close[row] / task.bars.close[row - 1] - 1.0
    return Track(
        name=name,
        label=label,
        unit="return",
        hindsight=hindsight,
        windows=tuple(windows),
        bars=bars,
        portfolio=equal_weight(bars, price_return),
    )


def _account(run: MarketRun, env: int, n_bars: int, initial: float) -> dict[str, FloatArray]:
    """Return the columns [n_bars] of one account, zero after its end."""
    alive = run.alive[:n_bars, env]
    before = np.where(alive, run.column("equity_before")[:n_bars, env], initial)
    equity = run.column("equity")[:n_bars, env] / initial
    final = equity[np.flatnonzero(alive)[-1]]
    position = np.where(alive, run.column("position")[:n_bars, env], 0.0)
    net = run.column("equity")[:n_bars, env] / before - 1.0
    columns = {
        "net_return": np.where(alive, net, 0.0),
        "equity": np.where(alive, equity, final),
        "position": position,
        "exposure": np.abs(position),
    }
    for name, recorded in _MONEY.items():
        amount = run.column(recorded)[:n_bars, env]
        columns[name] = np.where(alive, amount, 0.0) / before
    return columns


def equal_weight(bars: Series, price_return: FloatArray) -> Series:
    """Return the mean over the windows that trade in each bar, by time.

    The price of the portfolio is an index of the prices with equal weights, 1 before the first bar.
    """
    instants: NDArray[Any] = bars.time
    time, place = np.unique(instants, return_inverse=True)
    count = np.bincount(place)

    def mean(values: FloatArray) -> FloatArray:
        total: FloatArray = np.bincount(place, values) / count
        return total

    names = ("position", "exposure", "turnover", *list(_MONEY)[1:])
    net = mean(bars.net_return)
    return Series(
        time=time,
        net_return=net,
        equity=equity_curve(net),
        price=equity_curve(mean(price_return)),
        **{name: mean(getattr(bars, name)) for name in names},
    )


def memory_groups(task: MarketTask, variants: Sequence[ItemT]) -> list[Sequence[ItemT]]:
    """Cut variants, each a run over all windows, into groups whose records fit into memory."""
    longest = max(window.stop - window.start for _, window in task.windows)
    size = max(1, _MOST_STEPS // (longest * len(task.windows)))
    return [variants[start : start + size] for start in range(0, len(variants), size)]


def backtest(
    task: MarketTask, policy: ActingPolicy[Any], *, name: str = "agent", label: str = "Agent"
) -> Track:
    """Run a policy over all windows and return its track."""
    return make_track(task, run_market(task.simulator(), policy), name=name, label=label)
