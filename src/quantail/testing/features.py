"""The leak guard for users' own test suites."""

from collections.abc import Sequence

from quantail.errors import DataError
from quantail.market.bars import Bars
from quantail.market.features import BuildsFeature, Feature, build_features, compute_features
from quantail.market.leakage import LeakCheck, LeakReport, refuse_leaks


def check_features(
    features: Sequence[BuildsFeature | Feature] | BuildsFeature | Feature,
    bars: Bars,
    settings: LeakCheck | None = None,
) -> LeakReport:
    """Check that features keep their contract on the given bars.

    Each column must be free of look-ahead (see :mod:`quantail.market.leakage`), and the declared
    names, shapes and warm-up must fit what the function returns.

    Args:
        features: One feature or several: configurations, or functions under ``@feature``.
        bars: Bars to try them on; a few hundred of a symbol suffice.
        settings: How hard to look; None takes the defaults.

    Returns:
        What was looked at.

    Raises:
        DataError: Naming every leaking column and its first offending bar, or a column without a
            value straight after its declared warm-up.
        ConfigError: If two columns have one name, or ``settings.allow`` has no effect.
    """
    parts = features if isinstance(features, Sequence) else [features]
    built = build_features(parts)
    report = refuse_leaks(built, bars, settings)
    for part in built:
        _refuse_short_warmup(part, bars)
    return report


def _refuse_short_warmup(feature: Feature, bars: Bars) -> None:
    """Refuse a column without a value straight after its warm-up, in every symbol that has one."""
    table = compute_features(bars, [feature])
    rows = bars.offsets[:-1] + feature.warmup
    rows = rows[rows < bars.offsets[1:]]
    for k, name in enumerate(feature.names):
        if rows.size and not table.valid[rows, k].any():
            raise DataError(
                f"feature {name!r} has no value at bar {feature.warmup}, straight after its "
                f"declared warm-up of {feature.warmup} bars, in any of {rows.size} symbol(s). "
                "Declare a longer warm-up."
            )
