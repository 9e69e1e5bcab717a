import numpy as np
import pytest
from scipy import stats

from quantail.evaluation.calibration import calibrate, compare_laws, horizon
from quantail.evaluation.policies import Forecast

LEVELS = (np.arange(64) + 0.5) / 64


def normal_law(mean, deviation):
    """Return quantiles of normal laws, one row for each mean."""
    atoms = np.asarray(mean)[:, None] + deviation * stats.norm.ppf(LEVELS)
    return Forecast(atoms, np.full_like(atoms, 1 / 64))


def test_a_perfect_forecast_is_calibrated():
    rng = np.random.default_rng(0)
    mean = rng.normal(size=4000)
    found = compare_laws(normal_law(mean, 2.0), mean + 2.0 * rng.normal(size=4000), 10)
    assert found.levels == (0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)
    np.testing.assert_allclose(found.coverage, found.levels, atol=0.025)
    np.testing.assert_allclose(found.pit, 0.1, atol=0.02)
    assert found.error < 0.01
    assert found.predicted_mean == pytest.approx(found.realized_mean, abs=0.1)
    assert sum(found.pit) == pytest.approx(1.0)


def test_a_forecast_that_is_too_narrow_is_found_out():
    rng = np.random.default_rng(0)
    found = compare_laws(normal_law(np.zeros(4000), 0.5), rng.normal(size=4000), 10)
    assert found.coverage[1] > 0.15  # where 0.05 was promised: Φ(-1.645/2) = 0.205
    assert found.coverage[-2] < 0.85
    assert found.pit[0] > 0.2
    assert found.pit[-1] > 0.2
    assert found.error > 0.08


def test_quantiles_and_tail_by_hand():
    law = Forecast(np.array([[0.0, 1.0, 2.0, 3.0]]), np.full((1, 4), 0.25))
    # middles .125, .375, .625, .875: only levels between them are judged
    found = compare_laws(law, np.array([1.5]), 3)
    assert found.levels == (0.25, 0.5, 0.75)
    np.testing.assert_allclose(found.predicted_quantiles, [0.5, 1.5, 2.5])
    assert found.coverage == (0.0, 1.0, 1.0)
    assert found.pit[5] == 1.0  # F(1.5) = 0.5
    assert found.predicted_cvar == 0.0
    assert found.realized_cvar == pytest.approx(1.5)


def test_outside_all_atoms():
    law = Forecast(np.array([[0.0, 1.0]] * 2), np.full((2, 2), 0.5))
    found = compare_laws(law, np.array([-5.0, 5.0]), 3)
    assert found.coverage == (0.5, 0.5, 0.5)
    assert found.pit[2] == found.pit[7] == 0.5


def test_the_horizon_leaves_five_percent():
    for gamma in (0.5, 0.9, 0.99):
        steps = horizon(gamma)
        assert gamma**steps <= 0.05 < gamma ** (steps - 1)
    assert horizon(1.0) is None


def test_stretches_are_discounted_and_closed_by_the_critics_mean():
    gamma, steps = 0.5, horizon(0.5)
    assert steps == 5
    n_envs = 12
    rewards = np.random.default_rng(0).normal(size=(11, n_envs))
    alive = np.ones((11, n_envs), bool)
    forecasts = [normal_law(np.full(n_envs, mean), 1.0) for mean in (0.0, 3.0, 7.0)]
    found = calibrate(forecasts, rewards, alive, np.zeros(n_envs, bool), gamma)
    weights = gamma ** np.arange(5)
    returns = np.concatenate(
        [weights @ rewards[:5] + gamma**5 * 3.0, weights @ rewards[5:10] + gamma**5 * 7.0]
    )
    assert found.n == 24
    assert found.horizon == 5
    assert found.realized_mean == pytest.approx(returns.mean())
    assert found.predicted_mean == pytest.approx(1.5, abs=1e-6)


def test_ended_accounts():
    gamma, n_envs = 0.5, 30
    rewards = np.ones((10, n_envs))
    alive = np.ones((10, n_envs), bool)
    # Step 2 ruined the first account, so its return is known; the second's window ended there.
    alive[3:, :2] = False
    rewards[~alive] = 0.0
    terminated = np.zeros(n_envs, bool)
    terminated[0] = True
    forecasts = [normal_law(np.zeros(n_envs), 1.0)] * 2
    found = calibrate(forecasts, rewards, alive, terminated, gamma)
    assert found.n == n_envs - 1
    whole, cut = (gamma ** np.arange(5)).sum(), (gamma ** np.arange(3)).sum()
    assert found.realized_mean == pytest.approx(((n_envs - 2) * whole + cut) / (n_envs - 1))


def test_a_window_that_ends_with_a_stretch_leaves_its_rest_unknown():
    n_envs = 30
    alive = np.ones((10, n_envs), bool)
    alive[5:, :3] = False
    ruined = np.zeros(n_envs, bool)
    ruined[0] = True  # nothing follows a ruin, which is known
    forecasts = [normal_law(np.zeros(n_envs), 1.0)] * 2
    assert calibrate(forecasts, np.ones((10, n_envs)), alive, ruined, 0.5).n == n_envs - 2


@pytest.mark.parametrize(("n_envs", "gamma"), [(5, 0.5), (50, 1.0)], ids=["few", "undiscounted"])
def test_nothing_is_said_about_too_little(n_envs, gamma):
    forecasts = [normal_law(np.zeros(n_envs), 1.0)] * 2
    shape = (10, n_envs)
    none = np.zeros(n_envs, bool)
    assert calibrate(forecasts, np.zeros(shape), np.ones(shape, bool), none, gamma) is None
    assert calibrate((), np.zeros(shape), np.ones(shape, bool), none, 0.5) is None
