"""An agent under a limit on a mean cost finds the known optimum; without it, it does not."""

import pytest

from quantail.sim.problems.laws import sample_cvar
from tests.learning.costs import CASES, CVAR, LIMIT, STEPS, best_mean, outcome, train

# By chance the last episodes may lie two standard errors beyond a limit that is kept.
pytestmark = pytest.mark.filterwarnings("ignore:training ends with")


def test_a_few_updates_go_to_the_limit_and_no_further() -> None:
    """Without a limit the same agent spends more than twice as much by then."""
    spent = []
    for name in ("limited_soon", "free"):
        model = train(CASES[name], 0, n_envs=128, updates=40, n_epochs=3)
        played = outcome(model, CASES[name], 0)
        assert played.costs is not None
        spent.append((float(played.costs.mean()), float(played.returns.mean())))
    (cost, mean), (free_cost, free_mean) = spent
    assert cost == pytest.approx(LIMIT, rel=0.2)
    assert mean > 0.85 * best_mean(LIMIT)
    assert free_cost > 2.5 * LIMIT
    assert free_mean > mean


@pytest.mark.verify
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_optimum_under_a_limit_is_found(seed: int) -> None:
    case = CASES["limited"]
    played = outcome(train(case, seed), case, seed)
    assert played.costs is not None
    assert played.costs.mean() == pytest.approx(LIMIT, rel=0.05)
    assert played.returns.mean() == pytest.approx(best_mean(LIMIT), rel=0.05)


@pytest.mark.verify
def test_without_the_limit_it_is_broken() -> None:
    case = CASES["free"]
    played = outcome(train(case, 0), case, 0)
    assert played.costs is not None
    assert played.costs.mean() > 0.95 * STEPS


@pytest.mark.verify
@pytest.mark.parametrize(
    ("name", "keeps_cost", "keeps_cvar"),
    [("both", True, True), ("cost_alone", True, False), ("cvar_alone", False, True)],
)
def test_limits_on_cost_and_on_cvar_are_kept_together(
    name: str, keeps_cost: bool, keeps_cvar: bool
) -> None:
    case = CASES[name]
    played = outcome(train(case, 0), case, 0)
    assert played.costs is not None
    assert CVAR.limit is not None
    assert (played.costs.mean() <= 1.05 * LIMIT) == keeps_cost
    assert (sample_cvar(played.returns, CVAR.alpha) >= CVAR.limit - 0.05) == keeps_cvar
    # No limit is kept by doing nothing: the noisy bet adds to what the other one can earn.
    assert played.returns.mean() >= best_mean(LIMIT)
