"""Tail risk reaches the policy: agents against exact answers."""

import numpy as np
import pytest
import torch

from quantail.nets.observations import map_observation
from quantail.sim.problems import BettingGame, GaussianWeight
from tests.learning.risk import CASES, outcome, signature, train

SEEDS = (0, 1, 2)
# By chance the last episodes may lie two standard errors beyond a limit that is kept.
pytestmark = pytest.mark.filterwarnings("ignore:training ends with cvar_limit")


def test_a_short_run_already_trades_mean_for_tail() -> None:
    """GambleChain in a fifteenth of the updates: far from the optimum, but on the way."""
    careful = outcome("chain_safe", 0, updates=20, episodes=20_000)
    neutral = outcome("chain_neutral", 0, updates=20, episodes=20_000)
    assert careful.cvar > neutral.cvar + 1.0
    assert neutral.mean > careful.mean + 0.1
    state = careful.model.train_state.risk
    assert state.dual.multiplier > 0.3  # it was held there for the first half
    assert len(state.search.means) == 33
    assert np.isfinite(state.search.means).all()
    budget = careful.model.policy.net.budget
    assert budget is not None
    assert float(budget.target) == state.search.target


@pytest.mark.verify
@pytest.mark.parametrize("seed", SEEDS)
def test_chain_under_a_limit(seed: int) -> None:
    """The optimum under the limit is 1.744 / -1.343."""
    found = outcome("chain", seed)
    assert found.mean >= 1.70
    assert found.cvar >= -1.5


@pytest.mark.verify
def test_chain_without_tail_risk_gambles_always() -> None:
    found = outcome("chain_neutral", 0)
    assert found.mean == pytest.approx(2.0, abs=0.03)
    assert found.cvar == pytest.approx(-2.949, abs=0.1)


@pytest.mark.verify
@pytest.mark.filterwarnings("ignore:cvar_limit")
def test_chain_without_the_budget_in_sight_fails() -> None:
    """The best rule without it gambles a fixed number of times, once: 1.2 / -1.2."""
    found = outcome("chain_blind", 0)
    assert found.mean == pytest.approx(1.2, abs=0.05)
    assert found.cvar == pytest.approx(-1.2, abs=0.05)


@pytest.mark.verify
def test_chain_under_a_strict_limit_is_safe() -> None:
    found = outcome("chain_safe", 0)
    assert found.mean == pytest.approx(1.0, abs=1e-5)
    assert found.cvar == pytest.approx(1.0, abs=1e-5)


@pytest.mark.verify
@pytest.mark.filterwarnings("ignore:cvar_limit")
def test_an_infeasible_limit_is_flagged() -> None:
    found = outcome("chain_infeasible", 0)
    assert found.mean == pytest.approx(1.0, abs=1e-3)  # the best CVaR there is: 1.0
    assert found.model.train_state.risk.warned_infeasible
    assert found.model.logger.name_to_value["risk/infeasible"] == 1.0
    assert np.isfinite(found.returns).all()


@pytest.mark.verify
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("weight", [0.3, 0.5])
def test_betting_with_a_fixed_weight(weight: float, seed: int) -> None:
    """Also: late in the game nothing at the edge of the tail, full size far above it."""
    found = outcome("bets_03" if weight == 0.3 else "bets_05", seed)
    best = BettingGame(risk_weight=weight).solve().plans["optimal"]
    share = (found.mean + weight * found.cvar) / (best.mean + weight * best.cvar)
    assert share >= 0.95
    edge = round(found.model.train_state.risk.search.target)
    late = signature(found.model, np.array([edge, edge + 8.0, edge + 12.0]), 19)
    assert late.tolist() == [0, 2, 2]


@pytest.mark.verify
@pytest.mark.parametrize("seed", SEEDS)
def test_betting_under_a_limit(seed: int) -> None:
    found = outcome("bets_limit", seed)
    assert found.cvar >= -5.3 * 1.03
    assert found.mean >= 2.85


@pytest.mark.verify
def test_the_carry_trade_is_left_alone_under_a_limit_and_taken_without() -> None:
    with_limit, without = outcome("peso", 0), outcome("peso_neutral", 0)
    assert np.abs(with_limit.returns).max() == 0.0
    assert without.mean == pytest.approx(0.0456, abs=0.002)


@pytest.mark.verify
def test_the_critic_sees_a_rare_loss() -> None:
    """At the last step of the carry trade at full size the loss of .30 has probability .02."""
    model = train("peso_neutral", 0)
    problem = CASES["peso_neutral"].problem.build(4, 5)
    observations = torch.as_tensor(problem.reset())
    for _ in range(11):
        observations = torch.as_tensor(problem.step(np.full(4, 4)).observation)
    net = model.policy.net
    rows = map_observation(observations, lambda part: part)
    with torch.no_grad():
        law = net.step(rows, net.initial_state(4), torch.zeros(4, dtype=torch.bool)).values[0]
    atoms, weights = law.atoms()
    probability = (weights * (atoms < -0.145)).sum(-1)
    assert float(probability.mean()) == pytest.approx(0.02, abs=0.01)


@pytest.mark.verify
def test_the_multiplier_settles_at_the_right_weight() -> None:
    found = outcome("gaussian", 0)
    problem = CASES["gaussian"].problem
    assert isinstance(problem, GaussianWeight)
    actions, _ = found.model.predict(problem.build(2, 0).reset(), deterministic=True)
    assert float(actions[0, 0]) == pytest.approx(problem.solve().weight, rel=0.05)
