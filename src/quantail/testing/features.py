"""The leak guard for users' own test suites."""

from collections.abc import Sequence

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
        DataError: Naming every leaking column and its first offending bar.
        ConfigError: If two columns have one name, or ``settings.allow`` has no effect.
    """
    parts = features if isinstance(features, Sequence) else [features]
    built = build_features(parts)
    report = refuse_leaks(built, bars, settings)
    compute_features(bars, built)
    return report
