"""What trading and holding cost: fee, half-spread, slippage, interest.

Each cost is a fraction of the traded notional and never negative. What depends on the bar alone is
computed once for all rows, from bars that had closed before the bar of the fill; what depends on
the trade is computed by :mod:`quantail.sim.trade_costs`.
"""

from typing import Annotated, Literal, TypeAlias

import numpy as np
from annotated_types import Ge, Gt, Le, Lt
from numpy.lib.stride_tricks import sliding_window_view

from quantail.config_class import BY_KIND, config
from quantail.errors import DataError
from quantail.market.bars import Bars
from quantail.types import FloatArray

_BPS = 1e-4

BasisPoints: TypeAlias = Annotated[float, Ge(0), Lt(5_000)]
Window: TypeAlias = Annotated[int, Ge(2)]


@config
class TakerFee:
    """Every trade takes liquidity."""

    kind: Literal["taker"] = "taker"
    bps: BasisPoints = 10.0
    """Fee in basis points of the traded notional."""

    @property
    def fraction(self) -> float:
        """Fee as a fraction of the notional."""
        return self.bps * _BPS

    @property
    def taker_share(self) -> float:
        """Part of a trade that pays the half-spread."""
        return 1.0


@config
class MakerFee:
    """Every trade rests in the book; it pays no spread."""

    kind: Literal["maker"] = "maker"
    bps: BasisPoints = 1.0
    """Fee in basis points of the traded notional."""

    @property
    def fraction(self) -> float:
        """Fee as a fraction of the notional."""
        return self.bps * _BPS

    @property
    def taker_share(self) -> float:
        """Part of a trade that pays the half-spread."""
        return 0.0


@config
class MixedFee:
    """A fixed share of every trade rests in the book."""

    kind: Literal["mixed"] = "mixed"
    maker_bps: BasisPoints = 1.0
    taker_bps: BasisPoints = 10.0
    maker_share: Annotated[float, Gt(0), Lt(1)] = 0.5
    """Part of each trade that pays the maker fee and no spread."""

    @property
    def fraction(self) -> float:
        """Fee as a fraction of the notional."""
        maker = self.maker_share * self.maker_bps
        return (maker + self.taker_share * self.taker_bps) * _BPS

    @property
    def taker_share(self) -> float:
        """Part of a trade that pays the half-spread."""
        return 1.0 - self.maker_share


FeeConfig: TypeAlias = Annotated[TakerFee | MakerFee | MixedFee, BY_KIND]


@config
class ConstantSpread:
    """The same half-spread at all times."""

    kind: Literal["constant"] = "constant"
    half_bps: BasisPoints = 5.0
    """Half of the bid-ask spread in basis points of the price."""


@config
class RecordedSpread:
    """Half of the spread that the bars carry."""

    kind: Literal["recorded"] = "recorded"


@config
class VolatilitySpread:
    """half = minimum + coefficient · σ, with σ the volatility of one bar before the fill."""

    kind: Literal["volatility"] = "volatility"
    minimum_bps: BasisPoints = 1.0
    coefficient: Annotated[float, Gt(0), Le(10)] = 0.05
    window: Window = 20
    """Closed bars over which the volatility is measured."""


SpreadConfig: TypeAlias = Annotated[ConstantSpread | RecordedSpread | VolatilitySpread, BY_KIND]


@config
class NoSlippage:
    """Trades do not move the price."""

    kind: Literal["none"] = "none"


@config
class SquareRootImpact:
    """slippage = coefficient · σ · √(units / mean volume of one bar)."""

    kind: Literal["square_root"] = "square_root"
    coefficient: Annotated[float, Gt(0), Le(100)] = 1.0
    max_participation: Annotated[float, Gt(0), Le(1)] = 0.25
    """Largest trade as a share of the mean volume; what is above is not filled, and counted."""
    window: Window = 20
    """Closed bars over which volatility and mean volume are measured."""


SlippageConfig: TypeAlias = Annotated[NoSlippage | SquareRootImpact, BY_KIND]


@config
class CostConfig:
    """All costs. Funding is charged whenever the bars carry it."""

    fee: FeeConfig = TakerFee()
    spread: SpreadConfig = ConstantSpread()
    slippage: SlippageConfig = SquareRootImpact()
    borrow_rate: Annotated[float, Ge(0), Le(10)] = 0.0
    """Interest per year on the notional of a short position."""
    margin_rate: Annotated[float, Ge(0), Le(10)] = 0.0
    """Interest per year on borrowed cash, that is on negative cash."""

    @property
    def warmup(self) -> int:
        """Bars that must have closed before the first trade: ``window`` returns need one more."""
        parts = (self.spread, self.slippage)
        windows = [p.window for p in parts if isinstance(p, VolatilitySpread | SquareRootImpact)]
        return max(windows) + 1 if windows else 0


FREE = CostConfig(fee=TakerFee(bps=0.0), spread=ConstantSpread(half_bps=0.0), slippage=NoSlippage())
"""No cost at all: for checks against published figures, never for training."""


def trailing_volatility(bars: Bars, window: int) -> FloatArray:
    """Return σ before each bar, [R]: the root mean square of the last ``window`` log returns.

    Row r uses closes up to r - 1; the first ``window + 1`` rows of a symbol are NaN.
    """
    sigma = np.full(bars.n_bars, np.nan)
    for symbol in bars.symbols:
        rows = bars.rows(symbol)
        returns = np.diff(np.log(bars.close[rows]))
        if len(returns) > window:
            squares = sliding_window_view(returns[:-1] ** 2, window).mean(axis=-1)
            sigma[rows.start + window + 1 : rows.stop] = np.sqrt(squares)
    return sigma


def trailing_volume(bars: Bars, window: int) -> FloatArray:
    """Return the mean volume of the ``window`` bars before each bar, [R]; the first are NaN."""
    mean = np.full(bars.n_bars, np.nan)
    for symbol in bars.symbols:
        rows = bars.rows(symbol)
        volume = bars.volume[rows]
        if len(volume) > window:
            mean[rows.start + window : rows.stop] = sliding_window_view(volume[:-1], window).mean(
                -1
            )
    return mean


def half_spread(bars: Bars, costs: CostConfig) -> FloatArray:
    """Return the half-spread that a trade in each bar pays, as a fraction of the price, [R]."""
    match costs.spread:
        case ConstantSpread(half_bps=bps):
            half = np.full(bars.n_bars, bps * _BPS)
        case RecordedSpread():
            if bars.spread is None:
                raise DataError(
                    "costs.spread.kind 'recorded' needs bars with a spread; these have none. "
                    "Give a spread column, or choose costs.spread.kind 'constant'."
                )
            half = 0.5 * bars.spread
        case VolatilitySpread(minimum_bps=bps, coefficient=coefficient, window=window):
            half = bps * _BPS + coefficient * trailing_volatility(bars, window)
    return half * costs.fee.taker_share


def impact(bars: Bars, costs: CostConfig) -> tuple[FloatArray, FloatArray]:
    """Return slippage per √unit and the largest trade in units, both [R].

    slippage of q units = impact · √q, so impact = coefficient · σ / √(mean volume).
    """
    match costs.slippage:
        case NoSlippage():
            return np.zeros(bars.n_bars), np.full(bars.n_bars, np.inf)
        case SquareRootImpact(coefficient=coefficient, max_participation=share, window=window):
            _check_volume(bars)
            volume = trailing_volume(bars, window)
            sigma = trailing_volatility(bars, window)
            # A stretch without volume fills nothing: its largest trade is zero.
            root = np.sqrt(np.where(volume > 0, volume, np.inf))
            return coefficient * sigma / root, share * volume


def _check_volume(bars: Bars) -> None:
    for symbol in bars.symbols:
        if not bars.volume[bars.rows(symbol)].any():
            raise DataError(
                f"volume of {symbol} is zero in every bar, so slippage cannot be computed. Give "
                "the volume, or choose costs.slippage.kind 'none'."
            )
