"""When trading is not allowed: daily windows, minutes around funding, the bars' own column.

A mask is judged at the moment of the fill. What the agent may know when it decides is judged at the
nominal time of the next fill, so that no mask tells it anything about bars to come.
"""

import re
from typing import Annotated, Final, Literal

import numpy as np
from annotated_types import Ge, Lt, MinLen

from quantail.config_class import config
from quantail.errors import ConfigError, ConfigProblem
from quantail.market.bars import Bars
from quantail.sim.account import FillConfig
from quantail.types import BoolArray, TimeArray

_DAY: Final = 24 * 60
_CLOCK: Final = re.compile(r"([01]\d|2[0-3]):([0-5]\d)")


def _minutes(text: str, field: str) -> int:
    """Return minutes since midnight of 'HH:MM'."""
    found = _CLOCK.fullmatch(text)
    if not found:
        problem = f"must be a time of day as HH:MM in UTC; was {text!r}"
        raise ConfigError([ConfigProblem(field, problem)])
    return int(found[1]) * 60 + int(found[2])


@config
class DailyWindow:
    """A stretch of the day, in UTC; a stop before the start runs over midnight."""

    start: str
    stop: str
    days: Annotated[tuple[Annotated[int, Ge(0), Lt(7)], ...], MinLen(1)] = (0, 1, 2, 3, 4, 5, 6)
    """Days of the week on which the window starts; Monday is 0."""

    def check(self) -> None:
        """Refuse times that are none, and an empty window."""
        if _minutes(self.start, "start") == _minutes(self.stop, "stop"):
            problem = f"must differ from start; both were {self.stop!r}"
            raise ConfigError([ConfigProblem("stop", problem)])

    def covers(self, time: TimeArray) -> BoolArray:
        """Return which instants lie in [start, stop)."""
        start, stop = _minutes(self.start, "start"), _minutes(self.stop, "stop")
        since_start = _minute_of_week(time)[:, None] - (np.array(self.days) * _DAY + start)
        duration = (stop - start) % _DAY
        return np.asarray(((since_start % (7 * _DAY)) < duration).any(axis=1))


@config
class FundingWindow:
    """Minutes around the times at which funding is charged."""

    times: Annotated[tuple[str, ...], MinLen(1)] = ("00:00", "08:00", "16:00")
    before: Annotated[int, Ge(0), Lt(_DAY)] = 5
    """Minutes before each time."""
    after: Annotated[int, Ge(0), Lt(_DAY)] = 5
    """Minutes after each time."""

    def check(self) -> None:
        """Refuse times that are none, and an empty window."""
        for text in self.times:
            _minutes(text, "times")
        if self.before + self.after == 0:
            problem = "and after must not both be 0; the window would be empty"
            raise ConfigError([ConfigProblem("before", problem)])

    def covers(self, time: TimeArray) -> BoolArray:
        """Return which instants lie in [t - before, t + after) of any time t."""
        centers = np.array([_minutes(text, "times") for text in self.times])
        since = (_minute_of_week(time)[:, None] - (centers - self.before)) % _DAY
        return np.asarray((since < self.before + self.after).any(axis=1))


@config
class NoTradeConfig:
    """Where trading is not allowed, and what then happens. The bars' own column always counts."""

    policy: Literal["block", "ignore"] = "block"
    """block: the action becomes hold, orders under way are dropped, the row gets sample weight 0;
    ignore: such steps are only counted."""
    closed: tuple[DailyWindow, ...] = ()
    funding: FundingWindow | None = None


def _minute_of_week(time: TimeArray) -> "np.ndarray[tuple[int, ...], np.dtype[np.float64]]":
    minutes = time.astype("datetime64[ns]").astype(np.int64) / 60e9
    # The epoch was a Thursday.
    return np.asarray((minutes + 3 * _DAY) % (7 * _DAY))


def _in_windows(time: TimeArray, no_trade: NoTradeConfig) -> BoolArray:
    inside = np.zeros(len(time), np.bool_)
    for window in no_trade.closed:
        inside |= window.covers(time)
    if no_trade.funding is not None:
        inside |= no_trade.funding.covers(time)
    return inside


def blocked_rows(
    bars: Bars, no_trade: NoTradeConfig, fill: FillConfig
) -> tuple[BoolArray, BoolArray]:
    """Return which bars allow no fill, and where the agent can foresee it, both [R].

    The second array is what is known at the close of a bar about a fill in the next one: windows at
    the nominal time of the next fill, and the column of the bar that has just closed.
    """
    moment = bars.time + bars.interval if fill.price == "close" else bars.time
    column = np.zeros(bars.n_bars, np.bool_) if bars.no_trade is None else bars.no_trade
    blocked = _in_windows(moment, no_trade) | column
    if fill.at_mark:
        return blocked, blocked
    return blocked, _in_windows(moment + bars.interval, no_trade) | column
