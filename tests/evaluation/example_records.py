"""Small, complete records for tests of saving and reporting."""

import dataclasses
import math

import numpy as np

from quantail.evaluation.record import (
    SERIES_NUMBERS,
    Calibration,
    Comparison,
    CostCurve,
    DelayCurve,
    Estimate,
    Evaluation,
    Measures,
    OptimumFraction,
    Overfitting,
    SensitivityPoint,
    Series,
    Track,
    Verdict,
    Window,
)


def example_series(n: int, seed: int, start: str = "2024-01-01") -> Series:
    rng = np.random.default_rng(seed)
    columns = {name: rng.normal(0.0, 0.01, n) for name in SERIES_NUMBERS}
    columns["equity"] = np.cumprod(1.0 + columns["net_return"])
    columns["price"] = 100.0 * np.exp(np.cumsum(rng.normal(0.0, 0.01, n)))
    time = np.datetime64(start, "ns") + np.arange(n) * np.timedelta64(1, "D")
    return Series(time=time, **columns)


def example_track(name: str, n: int = 30) -> Track:
    windows = (Window("AAA", 0, n), Window("BBB", n, 2 * n, "bankrupt"))
    return Track(
        name=name,
        label=name.replace("_", " "),
        unit="return",
        hindsight=name == "best_constant",
        windows=windows,
        bars=example_series(2 * n, 1),
        portfolio=example_series(n, 2),
    )


def example_measures() -> Measures:
    names = [field.name for field in dataclasses.fields(Measures)][:-2]
    estimates = {name: Estimate(0.1 * i, -0.2, 0.3 * i) for i, name in enumerate(names)}
    estimates["calmar"] = Estimate(math.nan)
    return Measures(**estimates, n_bars=30, periods_per_year=252.0)


def example_evaluation() -> Evaluation:
    estimate = Estimate(0.02, -0.01, 0.05)
    points = tuple(SensitivityPoint(float(f), 0.1 - f, estimate, estimate) for f in (0, 1, 2))
    names = ("agent", "flat", "buy_and_hold", "best_constant")
    return Evaluation(
        role="test",
        split="fold 1",
        unit="return",
        symbols=("AAA", "BBB"),
        seeds=(1, 2),
        n_trials=3,
        confidence=0.95,
        periods_per_year=252.0,
        main_baseline="flat",
        tracks=tuple(example_track(name) for name in names),
        measures={name: example_measures() for name in names},
        comparisons=(Comparison("flat", estimate, estimate, estimate, 0.2, 3.5, 0.95),),
        verdict=Verdict("No evidence of skill.", "no_evidence", False, {"p_value": 0.2}),
        cost_curve=CostCurve(points, None),
        delay_curve=DelayCurve(points),
        calibration=Calibration(
            levels=(0.1, 0.5, 0.9),
            coverage=(0.15, 0.5, 0.8),
            pit=(0.25, 0.25, 0.5),
            predicted_quantiles=(-1.0, 0.0, 1.0),
            realized_quantiles=(-1.5, 0.0, 1.5),
            predicted_mean=0.0,
            realized_mean=0.1,
            predicted_cvar=-2.0,
            realized_cvar=-2.5,
            cvar_level=0.05,
            n=40,
            horizon=60,
            error=0.05,
        ),
        optimum=OptimumFraction(estimate, 0.16, "memoryless", 0.11, 0.17, 0.169, 100, 1000),
        overfitting=Overfitting(3, 0.4, 0.05, None),
        notes=("BBB: the account was ruined on 2024-01-20.",),
    )
