"""Numbers as text: the one place that decides digits, signs and units.

Text for people: a true minus sign, thousands apart, and a dash where a number does not exist.
"""

import math
from typing import Final, Literal

Kind = Literal["percent", "signed_percent", "ratio", "count"]

ABSENT: Final = "–"
"""Stands for a number that does not exist, such as a Sharpe ratio without any trade."""

_MINUS: Final = "\u2212"


def number(value: float | None, kind: Kind = "ratio", *, like: float | None = None) -> str:
    """Return ``value`` as people read it.

    Args:
        value: The number; None and NaN give a dash, infinities their sign.
        kind: ``percent`` and ``signed_percent`` take fractions (0.05 is 5.0%), ``count`` whole
            numbers, ``ratio`` pure numbers, with three significant digits up to ten.
        like: A number beside which this one stands and whose decimals it shall have.
    """
    if value is None or math.isnan(value):
        return ABSENT
    if math.isinf(value):
        return "∞" if value > 0 else f"{_MINUS}∞"
    size = abs(value if like is None or not math.isfinite(like) else like)
    return _plain(float(value), kind, size).replace("-", _MINUS)


def _plain(value: float, kind: Kind, size: float) -> str:
    if kind == "count":
        return f"{round(value):,}"
    if kind == "ratio":
        return _ratio(value, size)
    text = f"{_fixed(100.0 * value, _percent_digits(size))}%"
    is_plain = kind == "percent" or text.startswith("-") or not text.strip("0.%")
    return text if is_plain else f"+{text}"


def _percent_digits(size: float) -> int:
    # One decimal is enough for a reader; what would round to nothing, as the return of an hour
    # does, gets more, and what grew tenfold none.
    if size >= 10.0:
        return 0
    if size >= 0.01 or size == 0.0:
        return 1
    return 2 if size >= 0.001 else 3


def _fixed(value: float, digits: int) -> str:
    text = f"{value:,.{digits}f}"
    return text.removeprefix("-") if not text.strip("-0.,") else text


def _ratio(value: float, size: float) -> str:
    if value == 0.0:
        return "0"
    if size >= 1e6 or size < 1e-4:
        return f"{value:.2e}"
    if size >= 1000.0:
        return _fixed(value, 0)
    if size >= 9.995:
        return _fixed(value, 1)
    return _fixed(value, 2 if size >= 0.9995 else 2 - math.floor(math.log10(size)))


def interval(low: float, high: float, kind: Kind = "ratio") -> str:
    """Return an interval as ``[low, high]``; a dash when either end does not exist."""
    if math.isnan(low) or math.isnan(high):
        return ABSENT
    larger = max(abs(low), abs(high))
    return f"[{number(low, kind, like=larger)}, {number(high, kind, like=larger)}]"
