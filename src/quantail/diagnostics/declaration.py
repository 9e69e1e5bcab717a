"""How a metric is declared, and how a filled group becomes tags and values."""

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from quantail.errors import ConfigError

Better = Literal["higher", "lower", "neither"]
Aggregation = Literal["mean", "sum", "min", "max", "last"]

_KEY: Final = "metric"
_TAG: Final = re.compile(r"[a-z]+(/[a-z0-9_]+)+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """What a number means and how to treat it."""

    tag: str
    """Name on every dashboard, ``group/name``."""
    unit: str
    """``nats``, ``steps``, ``fraction``, ...; ``1`` for pure numbers."""
    sentence: str
    """What it is, in one sentence."""
    better: Better
    healthy: tuple[float, float] | None
    """Range outside which the number deserves a look; None where there is none."""
    aggregate: Aggregation
    """How several values of one update become one."""

    def __post_init__(self) -> None:
        if not _TAG.fullmatch(self.tag):
            raise ValueError(f"metric tag {self.tag!r} must read group/name in lower case")
        if not self.sentence.endswith("."):
            raise ValueError(f"metric {self.tag}: the sentence must end with a period")
        if self.healthy is not None and not self.healthy[0] < self.healthy[1]:
            raise ValueError(f"metric {self.tag}: healthy range {self.healthy} is empty")


def metric(
    tag: str,
    unit: str,
    sentence: str,
    *,
    better: Better = "neither",
    healthy: tuple[float, float] | None = None,
    aggregate: Aggregation = "mean",
) -> Any:
    """Declare a metric as a dataclass field."""
    declaration = Metric(
        tag=tag, unit=unit, sentence=sentence, better=better, healthy=healthy, aggregate=aggregate
    )
    return dataclasses.field(metadata={_KEY: declaration})


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricFamily:
    """Metrics that differ in a few names only, such as one per layer."""

    pattern: str
    """Tag with names in braces."""
    unit: str
    sentence: str

    def tag(self, **names: str | int) -> str:
        """Return the tag of one member."""
        return self.pattern.format(**names)


def declared(*groups: type) -> dict[str, Metric]:
    """Return tag -> declaration for all metrics of ``groups``.

    Raises:
        ValueError: A field without declaration, or one tag declared twice.
    """
    found: dict[str, Metric] = {}
    for group in groups:
        for field in dataclasses.fields(group):
            where = f"{group.__name__}.{field.name}"
            if _KEY not in field.metadata:
                raise ValueError(f"{where} is not declared with metric(...)")
            declaration: Metric = field.metadata[_KEY]
            if declaration.tag in found:
                raise ValueError(f"{where} declares {declaration.tag} a second time")
            found[declaration.tag] = declaration
    return found


def tag_of(group: type, field: str) -> str:
    """Return the tag of a declared field, for code that reads a metric by name."""
    found: dict[str, str] = {f.name: f.metadata[_KEY].tag for f in dataclasses.fields(group)}
    return found[field]


def tagged(record: Any) -> dict[str, float]:
    """Return tag -> value for a filled group; metrics that are None this time are left out."""
    return {
        field.metadata[_KEY].tag: float(value)
        for field in dataclasses.fields(record)
        if (value := getattr(record, field.name)) is not None
    }


def find_metric(tag: str, known: Mapping[str, Metric], parameter: str) -> Metric:
    """Return the declaration of ``tag``; ``parameter`` is the setting that asked for it.

    Raises:
        ConfigError: No such metric is declared.
    """
    if tag not in known:
        allowed = ", ".join(sorted(known)) or "none yet"
        raise ConfigError(f"{parameter} must name a declared metric ({allowed}); was {tag!r}")
    return known[tag]
