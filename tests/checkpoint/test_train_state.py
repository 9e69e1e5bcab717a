"""What controllers and tail risk remember is saved with an agent, and acts on after loading."""

import io
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from quantail import DistributionalPPO
from quantail.checkpoint.archive import Checkpoint, CheckpointError, from_bytes, to_bytes
from quantail.config import ExplainedVariance
from quantail.losses.imitation import AdvantageWeighted, Cloning
from quantail.optim.entropy_control import EntropyBoost, EntropyControl, EntropyDecay, Plateau
from quantail.optim.guard import Guard
from quantail.optim.kl_control import EpochFactor, KlControl, KlLearningRate, KlPenalty
from quantail.optim.schedules import Schedules, StepLinear
from quantail.risk.config import RiskConfig
from quantail.risk.cost import CostLimit
from quantail.rollout.demonstrations import Demonstrations
from quantail.state import TrainState
from tests.checkpoint.agents import SMALL, agent, assert_same_state, env_of

# So few episodes end here that limits never act or cannot be judged; their state is kept anyhow.
pytestmark = pytest.mark.filterwarnings(
    "ignore:cost.limit = 9.0 had no effect", "ignore:tail risk had no effect",
    "ignore:cvar_limit = .* cannot be judged", "ignore:the target of tail risk",
)  # fmt: skip

ROWS = 2 * SMALL["n_steps"]
STARTS = np.arange(8) == 0
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "controllers": (
        "MlpPolicy",
        {
            "critic_learning_rate": 1e-3,
            "schedules": Schedules(clip_range=StepLinear(start=0.3, end=0.1, end_step=500)),
            "kl_control": KlControl(target=1e-6, penalty=KlPenalty(), epochs=EpochFactor()),
            "entropy_control": EntropyControl(
                floor=0.001, decay=EntropyDecay(updates=9, plateau=Plateau(window=3))
            ),
            "ent_coef": 0.01,
            "imitation": AdvantageWeighted(coefficient=0.1),
            "guard": Guard(limit=5, rollbacks=1),
            "explained_variance": ExplainedVariance(groups="env"),
        },
    ),
    "learning rate by KL": (
        "MlpLstmPolicy",
        {
            "kl_control": KlControl(target=1e-6, stop=None, learning_rate=KlLearningRate()),
            "entropy_control": EntropyControl(boost=EntropyBoost()),
            "ent_coef": 0.01,
        },
    ),
    "cloning": (
        "MlpLstmPolicy",
        {
            "imitation": Cloning(coefficient=0.1, batch_size=4),
            "demonstrations": Demonstrations.from_arrays(
                np.zeros((8, 3), np.float32), np.zeros(8, np.int64), STARTS
            ),
        },
    ),
    "mean cost": ("MlpPolicy", {"cost": CostLimit(limit=9.0)}),
    "tail risk": ("MlpPolicy", {"cvar_limit": -1.0}),
    "tail risk in full": ("MlpLstmPolicy", {"risk": RiskConfig(alpha=0.2, weight=0.5)}),
}


def saved(model: Any) -> io.BytesIO:
    file = io.BytesIO()
    model.save(file)
    return file


@pytest.mark.parametrize("kind", KINDS)
def test_settings_and_state_come_back(kind: str) -> None:
    policy, given = KINDS[kind]
    model = agent(policy=policy, **given).learn(2 * ROWS)
    assert model.train_state.updates == 2
    loaded = DistributionalPPO.load(saved(model), env=env_of())
    assert loaded.train_state == model.train_state
    assert loaded.learner_config == model.learner_config
    assert loaded.policy.net.config == model.policy.net.config
    assert_same_state(model, loaded)
    loaded.learn(ROWS, reset_num_timesteps=False)
    assert loaded.train_state.updates == 3


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "cloning"])
def test_a_loaded_agent_goes_on_as_the_saved_one(kind: str) -> None:
    policy, given = KINDS[kind]
    model = agent(policy=policy, **given).learn(2 * ROWS)
    loaded = DistributionalPPO.load(saved(model), env=env_of())
    forgetful = DistributionalPPO.load(saved(model), env=env_of())
    forgetful.train_state = TrainState()
    for other in (model, loaded, forgetful):
        other.set_env(env_of())
        other._generator.manual_seed(7)
        torch.manual_seed(7)
        other.learn(2 * ROWS, reset_num_timesteps=True)
    assert loaded.train_state == model.train_state
    assert_same_state(model, loaded)
    # Without the state something goes another way.
    assert forgetful.train_state != replace(
        model.train_state,
        updates=forgetful.train_state.updates,
        env_steps=forgetful.train_state.env_steps,
    )


def test_a_state_of_another_shape_is_refused() -> None:
    whole = from_bytes(saved(agent()).getvalue())
    state: Any = whole.state
    del state["progress"]["train_state"]["fields"]["guard"]
    file = io.BytesIO(to_bytes(Checkpoint(state, whole.tensors)))
    with pytest.raises(CheckpointError, match="train_state: TrainState has the fields .*guard"):
        DistributionalPPO.load(file)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("train_state", "train_state must be a TrainState"),
        ("_n_updates", "_n_updates must be a num"),
    ],
)
def test_progress_that_is_none_is_refused(name: str, message: str) -> None:
    whole = from_bytes(saved(agent()).getvalue())
    state: Any = whole.state
    state["progress"][name] = "x"
    file = io.BytesIO(to_bytes(Checkpoint(state, whole.tensors)))
    with pytest.raises(CheckpointError, match=f"{message}.*; was 'x'"):
        DistributionalPPO.load(file)
