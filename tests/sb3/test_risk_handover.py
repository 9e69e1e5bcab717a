"""Tail risk when weights or files are handed on: ν and scale go with the weights, λ does not."""

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from quantail import DistributionalPPO
from quantail.risk.config import DualConfig, RiskConfig
from quantail.risk.control import RiskState
from quantail.risk.cost import CostDual, CostLimit
from quantail.risk.dual import DualState
from quantail.sb3.problem_vec_env import ProblemVecEnv
from quantail.sim.problems import GambleChain
from tests.learning.costs import CASES, STEPS, games

# Runs as short as these end with words on what they could not find out.
pytestmark = pytest.mark.filterwarnings("ignore::quantail.errors.QuantailWarning")

ROWS = 16 * 5
"""One rollout: an episode of each environment, of which α = 0.1 needs twenty."""


def env(n_envs: int = 16, seed: int = 0) -> ProblemVecEnv:
    return ProblemVecEnv(GambleChain().build(n_envs, seed))


def agent(**given: Any) -> DistributionalPPO:
    settings: dict[str, Any] = {"n_steps": 5, "batch_size": 80, "n_epochs": 1, "gamma": 0.9}
    settings |= {"seed": 0, "device": "cpu", "cvar_alpha": 0.1}
    return DistributionalPPO("MlpPolicy", env(), **{**settings, **given})


def trained(updates: int = 6, **given: Any) -> DistributionalPPO:
    return agent(**(given or {"cvar_weight": 0.3})).learn(updates * ROWS)


def known(model: DistributionalPPO) -> tuple[float, float]:
    """Return ν and scale of the policy."""
    budget = model.policy.net.budget
    assert budget is not None
    return float(budget.target), float(budget.scale)


def starts(model: DistributionalPPO) -> set[float]:
    """Return the targets from which running episodes have started."""
    assert model._carry is not None
    assert model._carry.budget is not None
    return set(model._carry.budget.target.tolist())


def more(model: DistributionalPPO, updates: int = 1) -> DistributionalPPO:
    return model.learn(updates * ROWS, reset_num_timesteps=False)


@pytest.mark.parametrize("by", ["set_parameters", "load_state_dict", "file"])
def test_the_target_and_scale_of_given_weights_stay(by: str, tmp_path: Path) -> None:
    donor = trained()
    target, scale = known(donor)
    assert (target, scale) != (0.0, 1.0)
    receiver = agent(cvar_weight=0.3, seed=1)
    if by == "set_parameters":
        receiver.set_parameters(donor.get_parameters())
    elif by == "load_state_dict":
        receiver.policy.load_state_dict(donor.policy.state_dict())
    else:
        donor.save(tmp_path / "agent", exclude=["train_state"])
        receiver = DistributionalPPO.load(tmp_path / "agent", env=env(), device="cpu")
    more(receiver)
    assert not receiver.train_state.risk.active
    assert starts(receiver) == {target}
    assert receiver.logger.name_to_value["risk/target"] == target
    assert known(receiver) == (target, scale)
    more(receiver)
    state = receiver.train_state.risk
    assert state.active
    assert state.search.low <= target <= state.search.high
    assert (state.search.target, state.scale) == known(receiver) == (target, scale)
    more(receiver)  # the search goes on from there
    assert known(receiver) == (
        receiver.train_state.risk.search.target,
        receiver.train_state.risk.scale,
    )
    assert known(receiver)[1] != scale


def test_a_target_below_the_limit_of_the_receiver_is_not_kept() -> None:
    donor = trained()
    target, scale = known(donor)
    limit = target + 0.1
    receiver = agent(cvar_limit=limit, seed=1)
    receiver.set_parameters(donor.get_parameters())
    more(receiver, 2)
    assert known(receiver) == (limit, scale)
    assert receiver.train_state.risk.dual.multiplier == DualConfig().start


def test_weights_of_an_agent_that_knew_nothing_yet_bring_nothing() -> None:
    receiver, fresh = agent(cvar_weight=0.3), agent(cvar_weight=0.3)
    receiver.set_parameters(agent(cvar_weight=0.3).get_parameters())
    more(receiver, 2)
    more(fresh, 2)
    assert receiver.train_state == fresh.train_state
    assert receiver.train_state.risk.active


def test_an_active_agent_takes_them_over_too() -> None:
    donor, receiver = trained(), trained(8, cvar_limit=-1.4)
    target, scale = known(donor)
    before = receiver.train_state.risk
    assert target not in (before.search.target, *starts(receiver))
    receiver.set_parameters(donor.get_parameters())
    receiver.learn(ROWS)
    assert receiver.logger.name_to_value["risk/target"] == target
    assert target in starts(receiver)
    after = receiver.train_state.risk
    assert len(after.returns) > len(before.returns)
    assert after.scale == pytest.approx(scale, rel=0.25)


def saved(model: DistributionalPPO) -> io.BytesIO:
    file = io.BytesIO()
    model.save(file)
    file.seek(0)
    return file


def loaded(file: io.BytesIO, **changes: Any) -> DistributionalPPO:
    file.seek(0)
    return DistributionalPPO.load(file, device="cpu", **changes)


def test_a_limit_in_place_of_a_weight_starts_at_its_first_multiplier() -> None:
    model = trained()
    again = loaded(saved(model), cvar_weight=None, cvar_limit=-1.0)
    old, new = model.train_state.risk, again.train_state.risk
    start = DualConfig().start
    assert new.dual == DualState(multiplier=start, integral=start)
    assert new == replace(old, dual=new.dual)
    assert known(again) == known(model)
    again.set_env(env())
    again.learn(ROWS)
    assert again.logger.name_to_value["train/cvar_lambda"] == pytest.approx(start)


def test_changes_of_what_is_wanted_start_the_multiplier_anew_and_others_do_not() -> None:
    dual = DualConfig(hold=0.0, integral=5.0, cap=1.0, patience=2)
    risk = RiskConfig(alpha=0.1, limit=9.0, dual=dual)
    model = agent(cvar_alpha=None, risk=risk).learn(12 * ROWS)
    file, state = saved(model), model.train_state.risk
    assert state.warned_infeasible
    assert state.dual.updates_at_cap >= 2
    for same in (risk, replace(risk, search=replace(risk.search, share=0.5))):
        assert loaded(file, risk=same).train_state.risk == state
    assert loaded(file).train_state.risk == state
    slower = replace(dual, start=0.1, patience=3)
    changed = {
        "limit": (replace(risk, limit=1.0), 0.3),
        "alpha": (replace(risk, alpha=0.2), 0.3),
        "dual": (replace(risk, dual=slower), 0.1),
        "weight": (RiskConfig(alpha=0.1, weight=0.5), 0.0),
    }
    for name, (other, start) in changed.items():
        found = loaded(file, risk=other).train_state.risk
        expected = replace(
            state, dual=DualState(multiplier=start, integral=start), warned_infeasible=False
        )
        assert found == expected, name


def test_settings_that_were_left_out_of_the_file_count_as_changed() -> None:
    model, file = trained(8, cvar_limit=-1.4), io.BytesIO()
    model.train_state = replace(
        model.train_state, risk=replace(model.train_state.risk, dual=DualState(multiplier=2.0))
    )
    model.save(file, exclude=["cvar_limit"])
    assert loaded(file, cvar_limit=-1.4).train_state.risk.dual.multiplier == DualConfig().start
    assert loaded(saved(model), cvar_limit=-1.4).train_state == model.train_state
    custom = {"cvar_limit": -1.0}
    assert loaded(saved(model), custom_objects=custom).train_state.risk.dual.integral == 0.3


def test_an_inactive_agent_still_starts_by_itself() -> None:
    model = agent(cvar_weight=0.3)
    again = loaded(saved(model), cvar_weight=None, cvar_limit=-1.0)
    assert again.train_state.risk == RiskState()


def test_a_changed_cost_limit_starts_its_price_anew() -> None:
    dual = CostDual(start=0.5, integral=5.0, cap=1.0, patience=2)
    cost = CostLimit(limit=-1.0, dual=dual)
    model = DistributionalPPO(
        "MlpPolicy", games(CASES["limited"], 16, 0), n_steps=2 * STEPS, batch_size=64, n_epochs=1,
        seed=0, device="cpu", cost=cost,
    )  # fmt: skip
    model.learn(8 * 16 * 2 * STEPS)
    file, state = saved(model), model.train_state.cost
    assert state.warned_infeasible
    assert loaded(file, cost=cost).train_state.cost == state
    fresh = DualState(multiplier=0.5, integral=0.5)
    for other in (
        CostLimit(limit=3.0, dual=dual),
        CostLimit(limit=-1.0, dual=replace(dual, cap=2)),
    ):
        found = loaded(file, cost=other).train_state
        assert found.cost == replace(state, dual=fresh, warned_infeasible=False)
        assert found == replace(model.train_state, cost=found.cost)


def test_the_first_rollout_after_a_handover_shows_the_scale_of_the_weights() -> None:
    """What the policy sees of a budget is what it saw in the agent it came from."""
    donor = trained()
    receiver = agent(cvar_weight=0.3, seed=1)
    receiver.set_parameters(donor.get_parameters())
    budgets = torch.linspace(-3, 3, 7)
    nets = [model.policy.net.budget for model in (donor, more(receiver, 2))]
    assert nets[0] is not None
    assert nets[1] is not None
    np.testing.assert_array_equal(nets[0](budgets), nets[1](budgets))
