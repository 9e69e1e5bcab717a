"""Statistics of recurrent states against a direct computation, and in a real agent."""

import pytest
import torch
from stable_baselines3.common.env_util import make_vec_env

from quantail import DistributionalPPO
from quantail.diagnostics.core_states import core_state_metrics
from quantail.nets.cores import GruConfig, LstmConfig
from tests.catalogue import catalogue
from tests.learner.agents import acted, small


@catalogue("F47")
def test_every_part_and_layer_equals_a_direct_computation() -> None:
    state = acted(small(core=LstmConfig(hidden_size=8, layers=2)), length=8)
    states, starts = state.rollout.chunk_states, state.rollout.episode_starts[::8]
    found = core_state_metrics(states, starts)
    assert len(found) == 2 * 2 * 2 * 3
    cell = states.critic[1][:, 1]
    rows = [cell[c, n] for c in range(4) for n in range(8) if not starts[c, n]]
    flat = torch.cat(rows)
    assert found["lstm/critic_c_layer1_mean"] == pytest.approx(float(flat.mean()), abs=1e-6)
    assert found["lstm/critic_c_layer1_std"] == pytest.approx(float(flat.std(correction=0)))
    norms = [float(row.square().sum().sqrt()) for row in rows]
    assert found["lstm/critic_c_layer1_norm"] == pytest.approx(sum(norms) / len(norms))


def test_a_core_with_one_part_has_no_cell() -> None:
    state = acted(small(core=GruConfig(hidden_size=8)), length=8)
    found = core_state_metrics(state.rollout.chunk_states, state.rollout.episode_starts[::8])
    assert {tag.split("_")[1] for tag in found} == {"h"}


def test_states_about_to_be_reset_do_not_count() -> None:
    state = acted(small(core=LstmConfig(hidden_size=8)), length=8)
    everywhere = torch.ones(4, 8, dtype=torch.bool)
    assert core_state_metrics(state.rollout.chunk_states, everywhere) == {}


@catalogue("F47")
@pytest.mark.parametrize(("policy", "count"), [("MlpLstmPolicy", 12), ("MlpPolicy", 0)])
def test_an_agent_records_them_once_per_rollout(policy: str, count: int) -> None:
    env = make_vec_env("CartPole-v1", 4, seed=0)
    model = DistributionalPPO(policy, env, n_steps=32, batch_size=64, n_epochs=1, seed=0)
    model.learn(256)
    recorded = [tag for tag in model.logger.name_to_value if tag.startswith("lstm/")]
    assert len(recorded) == count
