"""Features in plain Python: one row at a time, straight from the definitions."""

import math
import statistics
from datetime import datetime, timedelta


def realized_volatility(close: list[float], t: int, window: int) -> float:
    returns = [math.log(close[i] / close[i - 1]) for i in range(t - window + 1, t + 1)]
    return math.sqrt(sum(r * r for r in returns) / window)


def parkinson_volatility(high: list[float], low: list[float], t: int, window: int) -> float:
    rows = range(t - window + 1, t + 1)
    total = sum(math.log(high[i] / low[i]) ** 2 for i in rows)
    return math.sqrt(total / window / (4 * math.log(2)))


def yang_zhang_volatility(
    open_: list[float],
    high: list[float],
    low: list[float],
    close: list[float],
    *,
    t: int,
    window: int,
) -> float:
    rows = range(t - window + 1, t + 1)
    overnight = statistics.variance(math.log(open_[i] / close[i - 1]) for i in rows)
    body = statistics.variance(math.log(close[i] / open_[i]) for i in rows)
    satchell = sum(
        math.log(high[i] / close[i]) * math.log(high[i] / open_[i])
        + math.log(low[i] / close[i]) * math.log(low[i] / open_[i])
        for i in rows
    )
    k = 0.34 / (1.34 + (window + 1) / (window - 1))
    return math.sqrt(overnight + k * body + (1 - k) * satchell / window)


def z_score(x: list[float], t: int, window: int) -> float:
    values = x[t - window + 1 : t + 1]
    return (x[t] - statistics.fmean(values)) / statistics.pstdev(values)


def signed_volume_share(close: list[float], volume: list[float], t: int, window: int) -> float:
    signed = total = 0.0
    for i in range(t - window + 1, t + 1):
        total += volume[i]
        if close[i] > close[i - 1]:
            signed += volume[i]
        elif close[i] < close[i - 1]:
            signed -= volume[i]
    return signed / total


def bars_since_gap(time: list[datetime], interval: timedelta, t: int, limit: int) -> float | None:
    """Fraction of ``limit``, or None when the last gap may lie before the data."""
    for back in range(t):
        if back >= limit:
            return 1.0
        if time[t - back] - time[t - back - 1] > interval:
            return back / limit
    return 1.0 if t >= limit else None


def clock_angle(moment: datetime, days: int) -> float:
    """Angle of the hand of a clock that turns once in ``days`` days, from Monday 00:00."""
    seconds = moment.hour * 3600 + moment.minute * 60 + moment.second
    if days == 7:
        seconds += moment.weekday() * 86_400
    return 2 * math.pi * seconds / (days * 86_400)
