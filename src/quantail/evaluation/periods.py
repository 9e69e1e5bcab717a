"""How many bars a year has, by the calendar of the market."""

from typing import Final

import numpy as np

from quantail.market.bars import Bars
from quantail.market.calendars import AlwaysOpen, Weekdays

_DAY: Final = np.timedelta64(1, "D")
_DAYS_PER_YEAR: Final = 365.25
_SESSIONS_PER_YEAR: Final = 252.0
_NIGHT: Final = np.timedelta64(4, "h")
"""A pause of at least this length ends a session; the longest lunch break of an exchange is 2 h."""


def periods_per_year(bars: Bars) -> float:
    """Return bars per year.

    Around the clock: 365.25 days over the length of a bar. Weekdays: 5/7 of that. An exchange: 252
    sessions times the mean number of bars of a session in the data. Bars longer than a day: 365.25
    days over their length, whatever the calendar.
    """
    per_day = float(_DAY / bars.interval)
    if isinstance(bars.calendar, AlwaysOpen) or bars.interval > _DAY:
        return _DAYS_PER_YEAR * per_day
    if isinstance(bars.calendar, Weekdays):
        return _DAYS_PER_YEAR * 5.0 / 7.0 * per_day
    if bars.interval == _DAY:
        return _SESSIONS_PER_YEAR
    longest = bars.symbols[int(np.argmax(np.diff(bars.offsets)))]
    time = bars.time[bars.rows(longest)]
    pauses = np.diff(time) - bars.interval >= _NIGHT
    return _SESSIONS_PER_YEAR * len(time) / (1 + int(pauses.sum()))
