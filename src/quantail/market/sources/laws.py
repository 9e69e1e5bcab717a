"""Laws of synthetic log prices: pure functions of their parameters and a random generator.

Parameters are per bar: a drift of 0.001 is 0.1 % a bar. Every law returns the path of the log price
relative to its start on a grid of ``K`` steps per bar, ``[S, T·K + 1]``, first value 0; OHLC is
then read off this grid, so bars are consistent by construction.
"""

from typing import Annotated, Any, Final, Literal, TypeAlias

import numba
import numpy as np
from annotated_types import Ge, Gt, Le, Lt, MinLen

from quantail.config_class import BY_KIND, config
from quantail.errors import ConfigError, ConfigProblem
from quantail.types import FloatArray, IntArray

_NJIT: Final[Any] = numba.njit(cache=True)


@config
class GeometricBrownian:
    """Independent normal log returns; with drift 0 the price is a martingale.

    d log P = (μ − σ²/2) dt + σ dW, so E[P_{t+1} / P_t] = exp(μ).
    """

    kind: Literal["gbm"] = "gbm"
    drift: float = 0.0
    """μ: log of the expected growth of a bar."""
    volatility: Annotated[float, Gt(0)] = 0.01
    """σ: standard deviation of a bar's log return."""

    def path(self, rng: np.random.Generator, symbols: int, bars: int, steps: int) -> FloatArray:
        """Return log prices [S, T·K + 1] relative to the start."""
        noise = rng.standard_normal((symbols, bars * steps)) * self.volatility / np.sqrt(steps)
        return _from_start(noise + (self.drift - 0.5 * self.volatility**2) / steps)


@config
class OrnsteinUhlenbeck:
    """The log price returns to its start, so that there is something to learn.

    dx = −κ x dt + σ dW, sampled exactly; the stationary variance is σ² / (2κ).
    """

    kind: Literal["ou"] = "ou"
    reversion: Annotated[float, Gt(0)] = 0.05
    """κ: share of the distance that is expected to vanish in a bar, for small κ."""
    volatility: Annotated[float, Gt(0)] = 0.01
    """σ: standard deviation of the noise of a bar, for small κ."""

    def path(self, rng: np.random.Generator, symbols: int, bars: int, steps: int) -> FloatArray:
        """Return log prices [S, T·K + 1] relative to the start."""
        decay = float(np.exp(-self.reversion / steps))
        scale = self.volatility * np.sqrt((1.0 - decay**2) / (2.0 * self.reversion))
        noise = scale * rng.standard_normal((symbols, bars * steps))
        return np.asarray(_autoregression_nb(noise, decay))


@config
class Garch:
    """GARCH(1,1) with Student-t shocks: calm and wild times, and fat tails.

    r_t = μ + √h_t z_t,   h_t = ω + α (r_{t−1} − μ)² + β h_{t−1},   ω = σ² (1 − α − β),
    where z_t is Student-t with ν degrees of freedom, scaled to variance 1. Inside a bar the path is
    a Brownian bridge of variance h_t to the bar's return.
    """

    kind: Literal["garch"] = "garch"
    drift: float = 0.0
    """μ: mean log return of a bar; the mean of exp(r) does not exist for Student-t."""
    volatility: Annotated[float, Gt(0)] = 0.01
    """σ: unconditional standard deviation of a bar's log return."""
    alpha: Annotated[float, Ge(0), Lt(1)] = 0.08
    """Weight of the last squared shock."""
    beta: Annotated[float, Ge(0), Lt(1)] = 0.9
    """Weight of the last variance."""
    degrees_of_freedom: Annotated[float, Gt(2)] = 5.0
    """ν: the fewer, the fatter the tails."""

    def check(self) -> None:
        """Refuse a variance without a mean."""
        if self.alpha + self.beta >= 1.0:
            message = f"and beta together must be less than 1; were {self.alpha} and {self.beta}"
            raise ConfigError([ConfigProblem("alpha", message)])

    def path(self, rng: np.random.Generator, symbols: int, bars: int, steps: int) -> FloatArray:
        """Return log prices [S, T·K + 1] relative to the start."""
        degrees = self.degrees_of_freedom
        shocks = rng.standard_t(degrees, (symbols, bars)) * np.sqrt((degrees - 2.0) / degrees)
        variance = np.asarray(_garch_nb(shocks, self.volatility**2, self.alpha, self.beta))
        returns = self.drift + np.sqrt(variance) * shocks
        noise = rng.standard_normal((symbols, bars, steps)) * np.sqrt(variance / steps)[..., None]
        # Bridge: take the noise's own sum out of each bar and put the bar's return in.
        bridge = noise + ((returns - noise.sum(axis=-1)) / steps)[..., None]
        return _from_start(bridge.reshape(symbols, bars * steps))


@config
class RegimeSwitching:
    """Drift and volatility follow a hidden Markov chain that stays or moves to any other regime."""

    kind: Literal["regimes"] = "regimes"
    drifts: Annotated[tuple[float, ...], MinLen(2)] = (0.001, -0.001)
    """μ of each regime: log of the expected growth of a bar."""
    volatilities: Annotated[tuple[float, ...], MinLen(2)] = (0.008, 0.016)
    """σ of each regime."""
    stay: Annotated[float, Gt(0), Lt(1)] = 0.98
    """Chance that a bar has the regime of the bar before."""

    def check(self) -> None:
        """Refuse lists of different length and volatilities that are not positive."""
        if len(self.drifts) != len(self.volatilities):
            count = f"{len(self.drifts)} and {len(self.volatilities)}"
            message = f"must have one value for each of the drifts; the lengths were {count}"
            raise ConfigError([ConfigProblem("volatilities", message)])
        if not all(np.isfinite(self.drifts)) or not all(0 < v < np.inf for v in self.volatilities):
            message = "must be positive, and drifts finite"
            raise ConfigError(
                [ConfigProblem("volatilities", f"{message}; was {self.volatilities}")]
            )

    def regimes(self, rng: np.random.Generator, symbols: int, bars: int) -> IntArray:
        """Return the hidden regime of each bar [S, T], the first one uniform."""
        count = len(self.drifts)
        moves = rng.integers(1, count, (symbols, bars)) * (rng.random((symbols, bars)) >= self.stay)
        moves[:, 0] = rng.integers(0, count, symbols)
        return np.asarray(np.cumsum(moves, axis=1) % count, dtype=np.int64)

    def path(self, rng: np.random.Generator, symbols: int, bars: int, steps: int) -> FloatArray:
        """Return log prices [S, T·K + 1] relative to the start."""
        regime = np.repeat(self.regimes(rng, symbols, bars), steps, axis=1)
        drift, volatility = np.array(self.drifts)[regime], np.array(self.volatilities)[regime]
        noise = rng.standard_normal(regime.shape) * volatility / np.sqrt(steps)
        return _from_start(noise + (drift - 0.5 * volatility**2) / steps)


@config
class JumpDiffusion:
    """Merton's: geometric Brownian motion and a Poisson stream of normal jumps.

    d log P = (μ − σ²/2 − λ m) dt + σ dW + dJ with m = exp(μ_J + σ_J²/2) − 1, so that
    E[P_{t+1} / P_t] = exp(μ) whatever the jumps.
    """

    kind: Literal["jumps"] = "jumps"
    drift: float = 0.0
    """μ: log of the expected growth of a bar."""
    volatility: Annotated[float, Gt(0)] = 0.01
    """σ: standard deviation of a bar's log return without jumps."""
    jump_rate: Annotated[float, Gt(0), Le(10)] = 0.01
    """λ: expected jumps in a bar."""
    jump_mean: float = -0.02
    """μ_J: mean of a jump of the log price."""
    jump_volatility: Annotated[float, Ge(0)] = 0.03
    """σ_J: standard deviation of a jump of the log price."""

    def path(self, rng: np.random.Generator, symbols: int, bars: int, steps: int) -> FloatArray:
        """Return log prices [S, T·K + 1] relative to the start."""
        shape = (symbols, bars * steps)
        growth = float(np.expm1(self.jump_mean + 0.5 * self.jump_volatility**2))
        drift = self.drift - 0.5 * self.volatility**2 - self.jump_rate * growth
        noise = rng.standard_normal(shape) * self.volatility / np.sqrt(steps)
        jumps = rng.poisson(self.jump_rate / steps, shape)
        sizes = jumps * self.jump_mean
        sizes = sizes + np.sqrt(jumps) * self.jump_volatility * rng.standard_normal(shape)
        return _from_start(noise + sizes + drift / steps)


@config
class CrashRegimes:
    """A calm regime and a fragile one, in which the price may crash.

    The regimes are a Markov chain that starts in its stationary law. In a fragile bar the log price
    drops by a normal jump J with a known chance c, at a random step of the bar. E[P_{t+1} / P_t] is
    exp(μ) of the bar's regime whatever the crashes, so the fragile regime may pay on average and
    still have the worst of the left tail:

        log P_{t+1} / P_t = μ − σ²/2 − log(1 + c m) + σ z + crash,   m = E[exp(J)] − 1.
    """

    kind: Literal["crashes"] = "crashes"
    drifts: tuple[float, float] = (0.001, 0.0)
    """μ of the calm and of the fragile regime: log of the expected growth of a bar."""
    volatilities: tuple[Annotated[float, Gt(0)], Annotated[float, Gt(0)]] = (0.004, 0.012)
    """σ of each: standard deviation of a bar's log return without a crash."""
    enter: Annotated[float, Gt(0), Lt(1)] = 0.02
    """Chance that a fragile bar follows a calm one."""
    leave: Annotated[float, Gt(0), Lt(1)] = 0.03
    """Chance that a calm bar follows a fragile one."""
    crash_rate: Annotated[float, Gt(0), Le(1)] = 0.01
    """c: chance of a crash in a fragile bar."""
    crash_mean: float = -0.15
    """Mean of J, the jump of the log price in a crash."""
    crash_volatility: Annotated[float, Ge(0)] = 0.03
    """Standard deviation of J."""

    @property
    def fragile_share(self) -> float:
        """Share of fragile bars in the long run."""
        return self.enter / (self.enter + self.leave)

    def regimes(self, rng: np.random.Generator, symbols: int, bars: int) -> IntArray:
        """Return the regime of each bar [S, T], 0 calm and 1 fragile."""
        dice = rng.random((symbols, bars))
        return np.asarray(_two_regimes_nb(dice, self.fragile_share, self.enter, self.leave))

    def path(self, rng: np.random.Generator, symbols: int, bars: int, steps: int) -> FloatArray:
        """Return log prices [S, T·K + 1] relative to the start."""
        regime = self.regimes(rng, symbols, bars)
        volatility = np.array(self.volatilities)[regime]
        growth = float(np.expm1(self.crash_mean + 0.5 * self.crash_volatility**2))
        drift = np.array(self.drifts)[regime] - 0.5 * volatility**2
        drift -= np.where(regime == 1, np.log1p(self.crash_rate * growth), 0.0)
        noise = (
            rng.standard_normal((symbols, bars, steps)) * (volatility / np.sqrt(steps))[..., None]
        )
        crashed = np.nonzero((regime == 1) & (rng.random(regime.shape) < self.crash_rate))
        count = crashed[0].size
        sizes = self.crash_mean + self.crash_volatility * rng.standard_normal(count)
        noise[(*crashed, rng.integers(0, steps, count))] += sizes
        return _from_start((noise + (drift / steps)[..., None]).reshape(symbols, bars * steps))


LawConfig: TypeAlias = Annotated[
    GeometricBrownian | OrnsteinUhlenbeck | Garch | RegimeSwitching | JumpDiffusion | CrashRegimes,
    BY_KIND,
]


def _from_start(increments: FloatArray) -> FloatArray:
    """Sum increments [S, M] to a path [S, M + 1] that starts at 0."""
    path = np.zeros((increments.shape[0], increments.shape[1] + 1))
    np.cumsum(increments, axis=1, out=path[:, 1:])
    return path


@_NJIT  # type: ignore[untyped-decorator]
def _autoregression_nb(noise: FloatArray, decay: float) -> FloatArray:
    symbols, count = noise.shape
    path = np.zeros((symbols, count + 1))
    for s in range(symbols):
        for k in range(count):
            path[s, k + 1] = decay * path[s, k] + noise[s, k]
    return path


@_NJIT  # type: ignore[untyped-decorator]
def _garch_nb(shocks: FloatArray, mean: float, alpha: float, beta: float) -> FloatArray:
    symbols, count = shocks.shape
    variance = np.empty((symbols, count))
    for s in range(symbols):
        level = mean
        for t in range(count):
            variance[s, t] = level
            level = mean * (1.0 - alpha - beta) + level * (alpha * shocks[s, t] ** 2 + beta)
    return variance


@_NJIT  # type: ignore[untyped-decorator]
def _two_regimes_nb(dice: FloatArray, share: float, enter: float, leave: float) -> IntArray:
    symbols, bars = dice.shape
    regimes = np.empty((symbols, bars), np.int64)
    for s in range(symbols):
        fragile = dice[s, 0] < share
        for t in range(bars):
            if t > 0:
                fragile = dice[s, t] >= leave if fragile else dice[s, t] < enter
            regimes[s, t] = fragile
    return regimes
