"""The generated bars follow the law that the configuration states.

Bounds are wide multiples of the standard error of each statistic at these sizes, so a right law
fails with a chance below 1e-6 for a random seed, and never for the seeds used here.
"""

from typing import Any

import numpy as np
import pytest
from scipy import stats

from quantail.errors import ConfigError, DataError
from quantail.market.bars import Bars
from quantail.market.sources import SyntheticSource
from quantail.market.sources.laws import (
    CrashRegimes,
    Garch,
    GeometricBrownian,
    JumpDiffusion,
    LawConfig,
    OrnsteinUhlenbeck,
    RegimeSwitching,
)
from quantail.types import FloatArray

LAWS: list[LawConfig] = [
    GeometricBrownian(),
    OrnsteinUhlenbeck(),
    Garch(),
    RegimeSwitching(),
    JumpDiffusion(),
    CrashRegimes(),
]


def bar_returns(
    law: LawConfig, symbols: int, bars: int, seed: int = 7, steps: int = 4
) -> FloatArray:
    """Return log returns of bars [S, T]."""
    path = law.path(np.random.default_rng(seed), symbols, bars, steps)
    return np.diff(path[:, ::steps], axis=1)


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.kind)
def test_bars_are_consistent_and_symbols_differ(law: LawConfig) -> None:
    bars = SyntheticSource(law=law, symbols=3, bars=500, seed=3).load()
    assert bars.symbols == ("SYN0", "SYN1", "SYN2")
    assert bars.n_bars == 1500
    prices = bars.close.reshape(3, 500)
    opens = bars.open.reshape(3, 500)
    assert np.array_equal(opens[:, 1:], prices[:, :-1])
    assert opens[:, 0].tolist() == [100.0] * 3
    assert (bars.high > bars.low).all()
    assert np.abs(np.corrcoef(np.diff(np.log(prices)))[np.triu_indices(3, 1)]).max() < 0.25
    assert bars.time[499] - bars.time[0] == np.timedelta64(499, "h")


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.kind)
def test_the_seed_decides_everything(law: LawConfig) -> None:
    def fingerprint(seed: int) -> str:
        return SyntheticSource(law=law, bars=200, seed=seed).load().fingerprint()

    np.random.seed(1)  # noqa: NPY002 - the global generator must have no say
    first = fingerprint(5)
    np.random.seed(2)  # noqa: NPY002
    assert fingerprint(5) == first
    assert fingerprint(6) != first


def test_brownian_returns_are_normal_with_the_stated_moments() -> None:
    returns = bar_returns(GeometricBrownian(drift=0.002, volatility=0.02), 20, 5_000)
    count = returns.size
    # E[log return] = μ − σ²/2 = 0.002 − 0.0002
    assert returns.mean() == pytest.approx(0.0018, abs=5 * 0.02 / np.sqrt(count))
    assert returns.std() == pytest.approx(0.02, rel=5 / np.sqrt(2 * count))
    standard = (returns.ravel() - 0.0018) / 0.02
    assert stats.kstest(standard, "norm").pvalue > 1e-3
    lagged = np.corrcoef(returns[:, 1:].ravel(), returns[:, :-1].ravel())[0, 1]
    assert abs(lagged) < 5 / np.sqrt(count)


@pytest.mark.parametrize("law", [GeometricBrownian(volatility=0.05), JumpDiffusion(jump_rate=0.2)])
def test_prices_without_drift_are_martingales(law: LawConfig) -> None:
    growth = np.exp(bar_returns(law, 50, 4_000))
    assert growth.mean() == pytest.approx(1.0, abs=5 * growth.std() / np.sqrt(growth.size))


def test_reversion_decays_and_has_its_stationary_spread() -> None:
    law = OrnsteinUhlenbeck(reversion=0.2, volatility=0.03)
    level = law.path(np.random.default_rng(1), 50, 4_000, 4)[:, ::4][:, 200:]
    # Exact: corr(x_t, x_{t+1}) = exp(−κ), var = σ² / (2κ)
    lagged = np.corrcoef(level[:, 1:].ravel(), level[:, :-1].ravel())[0, 1]
    assert lagged == pytest.approx(np.exp(-0.2), abs=0.01)
    assert level.std() == pytest.approx(0.03 / np.sqrt(0.4), rel=0.02)
    assert level.mean() == pytest.approx(0.0, abs=0.003)


def test_garch_has_its_variance_clusters_and_fat_tails() -> None:
    law = Garch(volatility=0.02, alpha=0.05, beta=0.9, degrees_of_freedom=8.0, drift=0.001)
    returns = bar_returns(law, 100, 4_000) - 0.001
    assert returns.mean() == pytest.approx(0.0, abs=5 * 0.02 / np.sqrt(returns.size))
    assert returns.std() == pytest.approx(0.02, rel=0.02)
    assert stats.kurtosis(returns, axis=None) > 1.5
    lagged = np.corrcoef(returns[:, 1:].ravel(), returns[:, :-1].ravel())[0, 1]
    assert abs(lagged) < 0.02
    squares = returns**2
    memory = [
        np.corrcoef(squares[:, lag:].ravel(), squares[:, :-lag].ravel())[0, 1] for lag in (1, 11)
    ]
    # Squares correlate, and their correlation decays as (α + β)^lag: 0.95^10 = 0.60.
    assert memory[0] > 0.05
    assert memory[1] / memory[0] == pytest.approx(0.6, abs=0.25)


def test_garch_shocks_follow_the_recursion() -> None:
    law = Garch(volatility=0.02, alpha=0.1, beta=0.8, degrees_of_freedom=6.0)
    returns = bar_returns(law, 1, 3_000)[0]
    variance, shocks = 0.02**2, []
    for value in returns:
        shocks.append(value / np.sqrt(variance))
        variance = 0.02**2 * 0.1 + 0.1 * value**2 + 0.8 * variance
    # A Student-t with 6 degrees has variance 6 / 4; the shocks were scaled to 1.
    assert stats.kstest(np.array(shocks) * np.sqrt(1.5), stats.t(6).cdf).pvalue > 1e-3


def test_regimes_stay_and_move_as_stated() -> None:
    law = RegimeSwitching(drifts=(0.01, -0.01, 0.0), volatilities=(0.01, 0.02, 0.04), stay=0.9)
    regimes = law.regimes(np.random.default_rng(2), 50, 4_000)
    stays = (regimes[:, 1:] == regimes[:, :-1]).mean()
    assert stays == pytest.approx(0.9, abs=5 * 0.3 / np.sqrt(regimes.size))
    moved = regimes[:, 1:] != regimes[:, :-1]
    steps = (regimes[:, 1:] - regimes[:, :-1])[moved] % 3
    assert (steps == 1).mean() == pytest.approx(0.5, abs=0.02)
    assert np.bincount(regimes.ravel()) / regimes.size == pytest.approx([1 / 3] * 3, abs=0.02)

    # The path draws its regimes first, so the same seed tells which bar had which regime.
    returns = bar_returns(law, 50, 4_000, seed=2)
    for regime, (drift, volatility) in enumerate(zip(law.drifts, law.volatilities, strict=True)):
        part = returns[regimes == regime]
        assert part.std() == pytest.approx(volatility, rel=0.02)
        error = 5 * volatility / np.sqrt(part.size)
        assert part.mean() == pytest.approx(drift - volatility**2 / 2, abs=error)


def test_jumps_come_at_their_rate_and_size() -> None:
    law = JumpDiffusion(
        volatility=1e-6, jump_rate=0.05, jump_mean=-0.1, jump_volatility=0.02, drift=0.0
    )
    returns = bar_returns(law, 50, 4_000)
    jumped = np.abs(returns - np.median(returns)) > 1e-4
    # Chance of at least one jump: 1 − exp(−0.05)
    assert jumped.mean() == pytest.approx(1 - np.exp(-0.05), abs=0.003)
    # Mean and variance of the compound Poisson: λ μ_J and λ (μ_J² + σ_J²)
    compensator = 0.05 * np.expm1(-0.1 + 0.02**2 / 2)
    assert returns.mean() + compensator == pytest.approx(
        -0.005, abs=5 * returns.std() / np.sqrt(returns.size)
    )
    assert returns.var() == pytest.approx(0.05 * (0.01 + 0.0004), rel=0.05)


def test_calm_and_fragile_bars_follow_each_other_as_stated() -> None:
    law = CrashRegimes(enter=0.02, leave=0.05)
    regimes = law.regimes(np.random.default_rng(3), 2_000, 200)
    assert law.fragile_share == pytest.approx(2 / 7)
    # The chain starts in its stationary law, so the first bars have it too: s.e. √(.2/2000) = .01.
    assert regimes[:, 0].mean() == pytest.approx(2 / 7, abs=0.05)
    assert regimes.mean() == pytest.approx(2 / 7, abs=0.02)
    before, after = regimes[:, :-1], regimes[:, 1:]
    assert after[before == 0].mean() == pytest.approx(0.02, abs=0.002)
    assert 1 - after[before == 1].mean() == pytest.approx(0.05, abs=0.004)


def test_crashes_come_in_fragile_bars_alone_and_leave_the_mean_growth_as_stated() -> None:
    law = CrashRegimes(
        drifts=(0.002, 0.001),
        volatilities=(0.004, 0.01),
        enter=0.1,
        leave=0.1,
        crash_rate=0.02,
        crash_mean=-0.3,
        crash_volatility=0.01,
    )
    regimes = law.regimes(np.random.default_rng(5), 50, 8_000)
    returns = bar_returns(law, 50, 8_000, seed=5)  # draws its regimes first, as above
    calm, fragile = returns[regimes == 0], returns[regimes == 1]
    assert calm.min() > -0.1
    crashed = fragile < -0.15
    assert crashed.mean() == pytest.approx(0.02, abs=5 * 0.14 / np.sqrt(fragile.size))
    for part, drift in ((calm, 0.002), (fragile, 0.001)):
        error = 5 * part.std() / np.sqrt(part.size)
        assert np.exp(part).mean() == pytest.approx(np.exp(drift), abs=error)
    assert calm.std() == pytest.approx(0.004, rel=0.02)
    assert fragile[~crashed].std() == pytest.approx(0.01, rel=0.02)
    # Bars without a crash make up for it: μ − σ²/2 − log(1 + c m), m = exp(−.3 + .01²/2) − 1
    made_up = 0.001 - 0.00005 - np.log(1 + 0.02 * np.expm1(-0.3 + 0.00005))
    assert fragile[~crashed].mean() == pytest.approx(made_up, abs=2e-4)
    assert returns[regimes == 1][crashed].mean() - made_up == pytest.approx(-0.3, abs=2e-3)


def test_many_jumps_in_a_bar_add_their_variances() -> None:
    law = JumpDiffusion(volatility=1e-6, jump_rate=4.0, jump_mean=0.0, jump_volatility=0.02)
    returns = bar_returns(law, 50, 2_000, steps=2)
    assert returns.var() == pytest.approx(4.0 * 0.02**2, rel=0.05)


def test_highs_and_lows_widen_with_the_steps_towards_parkinson() -> None:
    def range_variance(steps: int) -> float:
        bars = SyntheticSource(bars=20_000, steps_per_bar=steps, seed=4).load()
        return float(np.mean(np.log(bars.high / bars.low) ** 2) / (4 * np.log(2)))

    # Parkinson: E[log(high/low)²] = 4 log 2 σ² in continuous time; a grid sees a part of it.
    coarse, fine = range_variance(4), range_variance(128)
    assert coarse < fine < 1e-4
    assert fine == pytest.approx(1e-4, rel=0.15)


def test_volume_and_spread_are_as_stated() -> None:
    bars = SyntheticSource(bars=50_000, volume_mean=50.0, volume_spread=0.4, spread=0.002).load()
    assert bars.volume.mean() == pytest.approx(50.0, rel=0.02)
    assert np.log(bars.volume).std() == pytest.approx(0.4, rel=0.02)
    assert bars.spread is not None
    assert set(bars.spread.tolist()) == {0.002}


def test_settings_reach_the_bars() -> None:
    bars = SyntheticSource(bars=5, interval="15m", start="2021-06-01T12:00", start_price=7.0).load()
    expected = np.datetime64("2021-06-01T12:00") + np.arange(5) * np.timedelta64(15, "m")
    assert np.array_equal(bars.time, expected)
    assert bars.open[0] == 7.0
    assert isinstance(bars, Bars)


def test_a_price_that_runs_away_is_refused() -> None:
    with pytest.raises(DataError, match=r"moved by a factor of exp\(\d+\).*Lower law.volatility"):
        SyntheticSource(law=GeometricBrownian(volatility=0.5), bars=2_000).load()


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Garch(alpha=0.2, beta=0.8), "alpha: and beta together must be less than 1"),
        (lambda: Garch(degrees_of_freedom=2.0), "degrees_of_freedom: must be greater than 2"),
        (
            lambda: RegimeSwitching(drifts=(0.1, 0.2, 0.3)),
            "volatilities: must have one value for each",
        ),
        (lambda: RegimeSwitching(volatilities=(0.1, 0.0)), "volatilities: must be positive"),
        (lambda: CrashRegimes(leave=0.0), "leave: must be greater than 0"),
        (lambda: CrashRegimes(volatilities=(0.1, 0.0)), "volatilities.*: must be greater than 0"),
        (lambda: CrashRegimes(crash_rate=1.1), "crash_rate: must be at most 1"),
        (lambda: GeometricBrownian(volatility=0.0), "volatility: must be greater than 0"),
        (lambda: SyntheticSource(start="later"), "start: must be an instant in UTC"),
        (lambda: SyntheticSource(interval="1M"), "interval: must be a number and s, m, h, d or w"),
        (lambda: SyntheticSource(bars=10_000_000, interval="1d"), "bars: must end before 2200"),
    ],
)
def test_laws_that_cannot_be_are_refused(build: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build()


@pytest.mark.parametrize("given", [(0.1,), (0.1, 0.2, 0.3)])
def test_a_pair_has_two_entries(given: tuple[float, ...]) -> None:
    with pytest.raises(ConfigError, match=r"volatilities: must have 2 entries; was"):
        CrashRegimes(volatilities=given)  # type: ignore[arg-type]
