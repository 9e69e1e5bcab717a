"""Errors of the Stable-Baselines3 skin."""

from quantail.errors import ConfigError


class SettingError(ConfigError, AssertionError):
    """A setting that Stable-Baselines3 refuses by an assertion; who catches that still does."""
