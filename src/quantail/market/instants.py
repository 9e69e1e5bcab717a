"""Reading one instant from a setting: written out, in UTC, and within what nanoseconds hold.

numpy wraps years outside 1677 to 2262 around without a word, and reads words such as "now", with
which no run could be repeated; neither gets past here.
"""

import re
from typing import Final

import numpy as np

YEARS: Final = (1678, 2261)
"""First and last year of which every instant fits 64 bits of nanoseconds since 1970."""
INSTANT_RULE: Final = (
    f"an instant in UTC without a zone, such as 2024-01-31T22:00, between {YEARS[0]} and {YEARS[1]}"
)

_WRITTEN: Final = re.compile(
    r"(\d{4})(-\d\d(-\d\d([T ]\d\d(:\d\d(:\d\d(\.\d{1,9})?)?)?)?)?)?", re.ASCII
)


def read_instant(text: str) -> np.datetime64 | None:
    """Read an instant such as 2024-01-31 or 2024-01-31T22:00; None where there is none."""
    match = _WRITTEN.fullmatch(text)
    if match is None or not YEARS[0] <= int(match[1]) <= YEARS[1]:
        return None
    try:
        return np.datetime64(text, "ns")
    except ValueError:
        return None
