"""Features of the user's own: a decorated function, found by module, file or entry point.

A function takes the bars of one symbol as a data frame (index: open time in UTC; columns: open,
high, low, close, volume and, where the source has them, spread, funding, adjusted_close, no_trade)
and returns one value for each bar::

    @feature(name="body", warmup=0)
    def body(bars: pd.DataFrame) -> pd.Series:
        return (bars["close"] - bars["open"]) / (bars["high"] - bars["low"])

Such a function is code, run with the user's rights: name only files and packages you trust.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.machinery import SourceFileLoader
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, Final, Literal, TypeAlias

import numpy as np
import pandas as pd
from annotated_types import MinLen

from quantail.config_class import config
from quantail.errors import ConfigError, ConfigProblem, DataError
from quantail.market.features.columns import Columns, Feature
from quantail.types import FloatArray

ENTRY_POINTS: Final = "quantail.features"
"""Group in which an installed package announces its features."""

_USUAL_FAULTS: Final = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    ImportError,
    LookupError,
    NameError,
    OSError,
    RuntimeError,
    SyntaxError,
    TypeError,
    ValueError,
)
"""What code of the user's own is likely to raise."""

Argument: TypeAlias = int | float | str | bool
FrameFunction: TypeAlias = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class UserFeature:
    """A function with its declared column names and warm-up; call it as before."""

    function: FrameFunction
    names: tuple[str, ...]
    warmup: int | Callable[..., int]

    def __call__(self, bars: pd.DataFrame, **arguments: Argument) -> Any:
        """Call the function itself."""
        return self.function(bars, **arguments)

    def build(
        self, arguments: Mapping[str, Argument] | None = None, names: tuple[str, ...] = ()
    ) -> Feature:
        """Bind ``arguments``; ``names`` replaces the declared column names when given."""
        given = dict(arguments or {})
        if names and len(names) != len(self.names):
            raise ConfigError(
                [
                    ConfigProblem(
                        "names",
                        f"must give {len(self.names)} name(s), one for each of "
                        f"{list(self.names)}; was {list(names)}",
                    )
                ]
            )
        final = names or self.names
        try:
            warmup = self.warmup(**given) if callable(self.warmup) else self.warmup
        except _USUAL_FAULTS as error:
            raise ConfigError(
                [
                    ConfigProblem(
                        "arguments",
                        f"feature {final[0]!r} cannot tell its warm-up from {given}: "
                        f"{type(error).__name__}: {error}. Give the arguments its warmup takes",
                    )
                ]
            ) from error
        return Feature(
            final,
            _checked_warmup(warmup, final[0]),
            lambda columns: _values(self.function, columns, given, final),
            custom=True,
        )


def feature(
    *, name: str | tuple[str, ...], warmup: int | Callable[..., int]
) -> Callable[[FrameFunction], UserFeature]:
    """Declare a function to be a feature.

    Args:
        name: Name of the column, or names when the function returns several.
        warmup: Rows at the start of a symbol without a value; a function of the arguments when it
            depends on them, for example ``lambda window: window - 1``.
    """
    names = (name,) if isinstance(name, str) else tuple(name)
    if not names or not all(names) or len(set(names)) < len(names):
        raise ConfigError(f"@feature: name must be one or more different words; was {name!r}")
    if not callable(warmup):
        _checked_warmup(warmup, names[0])
    return lambda function: UserFeature(function, names, warmup)


@config
class CustomFeature:
    """A feature of the user's own."""

    kind: Literal["custom"] = "custom"
    function: Annotated[str, MinLen(1)]
    """Where it is: ``package.module:function``, ``path/to/file.py:function``, or the name of an
    entry point in the group ``quantail.features``."""
    arguments: Mapping[str, Argument] = field(default_factory=dict)
    """Keyword arguments of the function."""
    names: tuple[str, ...] = ()
    """Column names in place of the declared ones, to use one function several times."""

    def build(self) -> Feature:
        """Import the function and bind its arguments."""
        return load_feature(self.function).build(self.arguments, self.names)


def load_feature(reference: str) -> UserFeature:
    """Find a decorated function.

    Args:
        reference: ``package.module:function``, ``path/to/file.py:function`` or an entry point.

    Raises:
        ConfigError: If there is none, or if it is not decorated.
    """
    place, separator, name = reference.rpartition(":")
    if separator and (not place or not name or (place.startswith(".") and not _is_file(place))):
        raise _refusal(
            reference, "must be package.module:function or path/to/file.py:function; correct it"
        )
    if not separator:
        found = _entry_point(reference)
    else:
        module = _module_of_file(Path(place)) if _is_file(place) else _module(place)
        if not hasattr(module, name):
            raise _refusal(reference, f"{place} has no {name!r}; correct the name after the colon")
        found = getattr(module, name)
    if not isinstance(found, UserFeature):
        raise _refusal(
            reference,
            f"must be a function under @feature(name=..., warmup=...) of "
            f"quantail.market.features; it is a {type(found).__name__}. Decorate it",
        )
    return found


def _entry_point(name: str) -> Any:
    found = entry_points(group=ENTRY_POINTS)
    matches = [point for point in found if point.name == name]
    if len(matches) == 1:
        try:
            return matches[0].load()
        except _USUAL_FAULTS as error:
            raise _failed_load(name, error) from error
    known = ", ".join(sorted(found.names)) or "none installed"
    what = "is announced by several packages" if matches else "is no entry point"
    raise _refusal(
        name,
        f"{what} of the group {ENTRY_POINTS} (there: {known}); write package.module:function or "
        "path/to/file.py:function",
    )


def _module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise _refusal(
            name, f"cannot be imported: {error}. Install the package, or give a path to a .py file"
        ) from error
    except _USUAL_FAULTS as error:
        raise _failed_load(name, error) from error


def _module_of_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise _refusal(str(path), f"is no file (looked at {path.absolute()}); correct the path")
    module = ModuleType(f"quantail_user_{path.stem}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module  # dataclasses in the file look their module up by name
    try:
        SourceFileLoader(module.__name__, str(path)).exec_module(module)
    except _USUAL_FAULTS as error:
        del sys.modules[module.__name__]
        raise _failed_load(str(path), error) from error
    return module


def _is_file(place: str) -> bool:
    return place.endswith(".py")


def _failed_load(reference: str, error: BaseException) -> ConfigError:
    return _refusal(reference, f"failed to load: {type(error).__name__}: {error}. Correct its code")


def _values(
    function: FrameFunction,
    columns: Columns,
    arguments: Mapping[str, Argument],
    names: tuple[str, ...],
) -> FloatArray:
    try:
        result = function(columns.to_frame(), **arguments)
    except _USUAL_FAULTS as error:
        raise DataError(
            f"feature {names[0]!r} failed on {columns.n_bars} bar(s) of symbol {columns.symbol!r}: "
            f"{type(error).__name__}: {error}. It must work on any number of bars above its "
            "warm-up; correct it, or declare a longer warm-up."
        ) from error
    if isinstance(result, pd.Series | pd.DataFrame) and not result.index.equals(
        pd.DatetimeIndex(columns.time, name="time").tz_localize("UTC")
    ):
        raise DataError(
            f"feature {names[0]!r} must return its values on the index of the bars it was given; "
            f"it returned another index of {len(result)} row(s) for symbol {columns.symbol!r}. "
            "Reindex to bars.index, filling from the past alone."
        )
    try:
        return np.asarray(result, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(
            f"feature {names[0]!r} must return numbers (a Series, a DataFrame or an array); it "
            f"returned a {type(result).__name__}: {error}."
        ) from error


def _checked_warmup(warmup: object, name: str) -> int:
    if isinstance(warmup, bool) or not isinstance(warmup, int) or warmup < 0:
        raise ConfigError(
            f"feature {name!r}: warmup must be a whole number of at least 0; was {warmup!r}"
        )
    return warmup


def _refusal(reference: str, message: str) -> ConfigError:
    return ConfigError([ConfigProblem("function", f"{reference!r} {message}")])
