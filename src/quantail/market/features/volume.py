"""Volume: on-balance volume and z-score."""

from typing import Annotated, Literal

import numpy as np
from annotated_types import Ge

from quantail.config_class import config
from quantail.market.features.columns import Feature
from quantail.market.features.windows import lagged, ratio, rolling_mean_nb, rolling_moments_nb
from quantail.types import FloatArray


@config
class OnBalanceVolume:
    """Volume signed by the direction of the close."""

    kind: Literal["obv"] = "obv"
    window: Annotated[int, Ge(1)] | None = 20
    """Share of signed volume in the window's volume, between -1 and 1; null sums from the first
    bar (the classic OBV, in units of volume: it wanders and has no fixed scale)."""

    def build(self) -> Feature:
        """One column."""
        window = self.window
        if window is None:
            return Feature(("obv",), 0, lambda bars: on_balance_volume(bars.close, bars.volume))
        return Feature(
            (f"obv_{window}",),
            window,
            lambda bars: signed_volume_share(bars.close, bars.volume, window),
        )


@config
class VolumeZScore:
    """How unusual the bar's volume is against the window that ends with it."""

    kind: Literal["volume_z_score"] = "volume_z_score"
    window: Annotated[int, Ge(2)] = 20
    """Bars in the window, the newest included."""

    def build(self) -> Feature:
        """One column."""
        return Feature(
            (f"volume_z_score_{self.window}",),
            self.window - 1,
            lambda bars: volume_z_score(bars.volume, self.window),
        )


def on_balance_volume(close: FloatArray, volume: FloatArray) -> FloatArray:
    """``OBV_t = OBV_{t-1} + sign(close_t - close_{t-1})·volume_t``, starting at ``volume_0``.

    Args:
        close: Prices [T].
        volume: Volumes [T].

    Returns:
        On-balance volume [T].
    """
    signed = np.sign(close - lagged(close, 1)) * volume
    signed[:1] = volume[:1]
    return np.cumsum(signed)


def signed_volume_share(close: FloatArray, volume: FloatArray, window: int) -> FloatArray:
    """Change of on-balance volume over the window, divided by the window's volume.

    Args:
        close: Prices [T].
        volume: Volumes [T].
        window: Bars in the window.

    Returns:
        Share [T] in [-1, 1], NaN for the first ``window`` rows and where nothing was traded.
    """
    signed = np.sign(close - lagged(close, 1)) * volume
    return ratio(rolling_mean_nb(signed, window), rolling_mean_nb(volume, window))


def volume_z_score(volume: FloatArray, window: int) -> FloatArray:
    """``(volume - mean) / std`` with the population deviation over the window.

    Args:
        volume: Volumes [T].
        window: Bars in the window.

    Returns:
        Scores [T], NaN for the first ``window - 1`` rows and where volume did not vary.
    """
    mean, variance = rolling_moments_nb(volume, window)
    return ratio(volume - mean, np.sqrt(variance))
