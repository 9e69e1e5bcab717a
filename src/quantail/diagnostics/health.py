"""Alerts: the declared healthy range of every metric, looked at by the program itself."""

import dataclasses
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

from quantail.diagnostics.schema import declared


class Alert(NamedTuple):
    """A metric outside its healthy range."""

    tag: str
    sentence: str


def alerts(*records: Any) -> Iterator[Alert]:
    """Yield an alert for each metric that is outside its healthy range.

    Args:
        records: Filled groups of metrics; what is None or NaN this time is left out.
    """
    for record in records:
        for field, known in zip(
            dataclasses.fields(record), declared(type(record)).values(), strict=True
        ):
            value = getattr(record, field.name)
            if value is None or known.healthy is None or math.isnan(value):
                continue
            low, high = known.healthy
            if not low <= value <= high:
                yield Alert(
                    known.tag,
                    f"{known.tag} is {float(value):.4g}, outside its healthy range [{low:g}, "
                    f"{high:g}]: {known.sentence}",
                )
