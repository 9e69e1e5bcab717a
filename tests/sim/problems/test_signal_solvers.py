"""The exact solutions of the signal problems against printed tables and slower solvers."""

import math

import numpy as np
import pytest
from scipy.stats import norm

from quantail.sim.problems.band_solver import (
    solve_band,
    solve_boundary,
    solve_threshold,
    threshold_value,
)
from quantail.sim.problems.quadratic_solver import (
    LinearRule,
    optimal_rule,
    rule_value,
    solve_quadratic,
)
from tests.sim.problems.slow_solvers import band_by_grid, quadratic_by_iteration

LAST_DIGIT = 1.01e-5  # tables with five decimals, one in the last


@pytest.mark.parametrize(
    ("phi", "cost", "rate", "aim", "values"),
    [
        (0.10, 4.0, 0.3904, 0.8649, (0.37406, 0.34127, 0.27778, 0.10000)),
        (0.30, 2.0, 0.5000, 0.7692, (0.29586, 0.27500, 0.22727, -0.10000)),
    ],
)
def test_quadratic_cost_table(phi, cost, rate, aim, values):
    solution = solve_quadratic(phi, 1.0, cost)
    assert solution.optimal.trade_rate == pytest.approx(rate, abs=1e-4)
    assert solution.optimal.aim == pytest.approx(aim, abs=1e-4)
    names = ("optimal", "myopic", "scaled_markowitz", "markowitz")
    assert [solution.values[name] for name in names] == pytest.approx(values, abs=LAST_DIGIT)
    assert solution.base == "myopic"


@pytest.mark.parametrize("discount", [1.0, 0.99, 0.8])
@pytest.mark.parametrize(
    ("phi", "risk", "cost"), [(0.1, 1.0, 4.0), (0.5, 2.5, 0.3), (1.0, 1.0, 1.0)]
)
def test_quadratic_rule_is_the_fixed_point_of_riccati_iteration(phi, risk, cost, discount):
    rule = optimal_rule(phi, risk, cost, discount)
    rate, aim = quadratic_by_iteration(phi, risk, cost, discount)
    assert (rule.trade_rate, rule.aim) == pytest.approx((rate, aim), rel=1e-12)


def test_quadratic_rule_equals_the_papers_discounted_formula():
    # The paper discounts the cost one step less than the return: its cost is ours times 1 − ρ.
    phi, risk, paper_cost, rho = 0.2, 1.5, 3.0, 0.07
    g = risk * (1 - rho) + paper_cost * rho
    root = math.sqrt(g * g + 4 * risk * paper_cost * (1 - rho) ** 2)
    a = (-g + root) / (2 * (1 - rho))
    rule = optimal_rule(phi, risk, paper_cost / (1 - rho), 1 - rho)
    assert rule.trade_rate == pytest.approx(a / paper_cost, rel=1e-12)
    assert rule.aim == pytest.approx(1 / (risk * (1 + phi * a / risk)), rel=1e-12)


def test_no_linear_rule_beats_the_quadratic_optimum():
    best = solve_quadratic(0.1, 1.0, 4.0).values["optimal"]
    for rate in np.linspace(0.05, 1.0, 20):
        for aim in np.linspace(0.1, 1.5, 15):
            assert rule_value(LinearRule(rate, aim), 0.1, 1.0, 4.0) <= best + 1e-15


def test_free_trading_takes_the_whole_step_at_once():
    rule = optimal_rule(0.1, 2.0, 0.0)
    assert rule == LinearRule(trade_rate=1.0, aim=0.5)


@pytest.mark.parametrize(
    ("cost", "threshold", "value", "sign"),
    [(0.5, 0.29, 0.70222, 0.65432), (1.0, 0.44, 0.64019, 0.51075)],
)
def test_proportional_cost_table(cost, threshold, value, sign):
    solution = solve_threshold(0.1, cost)
    assert solution.threshold == pytest.approx(threshold, abs=0.005)
    assert solution.values["optimal"] == pytest.approx(value, abs=LAST_DIGIT)
    assert solution.values["sign"] == pytest.approx(sign, abs=LAST_DIGIT)
    assert solution.no_cost_bound == pytest.approx(0.79788, abs=LAST_DIGIT)


@pytest.mark.parametrize(("phi", "cost"), [(0.1, 0.5), (0.02, 1.0), (0.7, 0.3)])
def test_threshold_is_the_best_of_all_thresholds(phi, cost):
    # threshold_value is derived from the law of the position, not from the Bellman equation
    solution = solve_threshold(phi, cost)
    at_best = threshold_value(phi, cost, solution.threshold)
    assert at_best == pytest.approx(solution.values["optimal"], abs=1e-12)
    for factor in (0.5, 0.9, 0.99, 1.01, 1.1, 2.0):
        assert threshold_value(phi, cost, factor * solution.threshold) < at_best
    assert threshold_value(phi, cost, 0.0) == pytest.approx(solution.values["sign"], abs=1e-12)


@pytest.mark.parametrize(
    ("cost", "value"),
    [(0.0, 0.79788), (0.1, 0.70187), (0.25, 0.57269), (0.5, 0.39559), (1.0, 0.16663)],
)
def test_positive_control_table_and_closed_form(cost, value):
    solution = solve_threshold(1.0, cost)
    assert solution.values["optimal"] == pytest.approx(value, abs=LAST_DIGIT)
    closed = 2.0 * (norm.pdf(cost) - cost * norm.sf(cost))
    assert solution.values["optimal"] == pytest.approx(closed, abs=1e-12)
    assert solution.threshold == pytest.approx(cost, abs=1e-12)
    assert solution.base == ("sign" if cost < 0.79788 else "flat")


@pytest.mark.parametrize(
    ("cost", "value", "bands"),
    [
        (0.5, 0.388, {0: (-0.27, 0.27), 1: (0.65, 1.20), 2: (1.57, 2.12)}),
        (1.0, 0.323, {0: (-0.38, 0.38), 1: (0.48, 1.25), 2: (1.35, 2.17)}),
    ],
)
def test_no_trade_band_table(cost, value, bands):
    # the printed bands come from a grid of 0.025; ours are exact
    solution = solve_band(0.1, cost, 1.0, 5.0)
    assert solution.values["optimal"] == pytest.approx(value, abs=5e-4)
    low, high = solution.band(np.array(list(bands), dtype=float))
    assert low == pytest.approx([band[0] for band in bands.values()], abs=0.025)
    assert high == pytest.approx([band[1] for band in bands.values()], abs=0.025)


def test_no_trade_band_agrees_with_value_iteration_on_a_grid():
    value, low, high = band_by_grid(phi=0.2, cost=0.4, risk=1.5)
    solution = solve_band(0.2, 0.4, 1.5, 5.0 / 1.5)
    assert solution.values["optimal"] == pytest.approx(value, abs=1e-3)
    ours = solution.band(np.array([0.0, 1.0]))
    assert ours[0] == pytest.approx(low, abs=0.06)
    assert ours[1] == pytest.approx(high, abs=0.06)


def test_band_scales_with_risk():
    # x → x/γ with p and c unchanged divides the reward by γ
    one, two = solve_band(0.3, 0.4, 1.0, 5.0), solve_band(0.3, 0.4, 2.0, 2.5)
    assert two.values["optimal"] == pytest.approx(one.values["optimal"] / 2.0, rel=1e-10)
    p = np.array([-1.0, 0.3, 2.0])
    assert two.band(p)[0] == pytest.approx(one.band(p)[0] / 2.0, abs=1e-9)


def test_free_trading_closes_the_band():
    solution = solve_band(0.1, 0.0, 1.0, 5.0)
    low, high = solution.band(np.array([0.7]))
    assert low == pytest.approx([0.7], abs=1e-9)
    assert high == pytest.approx([0.7], abs=1e-9)
    assert solution.values["optimal"] == pytest.approx(0.5, abs=1e-5)


def test_boundary_worth_solves_its_equation():
    phi, cost, offset = 0.15, 0.6, 0.4
    solved = solve_boundary(phi, cost, offset)
    p = np.array([-1.0, 0.1, 0.4, 0.9, 2.0])
    rho = 1.0 - phi
    z = np.linspace(-9.0, 9.0, 200001)
    for place, worth in zip(p, solved.worth(p), strict=True):
        after = solved.worth(rho * place + math.sqrt(1.0 - rho * rho) * z[::50])
        density = norm.pdf(z[::50])
        expected = np.sum(density * np.clip(after, -cost, cost)) / density.sum()
        assert worth == pytest.approx(place - offset + expected, abs=2e-6)
    assert solved.worth(np.array([solved.lower, solved.upper])) == pytest.approx([-cost, cost])
