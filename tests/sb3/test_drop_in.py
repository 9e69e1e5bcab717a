"""Habits of Stable-Baselines3's users that must go on working."""

import inspect
from copy import deepcopy
from io import StringIO
from typing import Any

import numpy as np
import pytest
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.logger import HumanOutputFormat

from quantail import DistributionalPPO
from quantail.diagnostics import risk_schema, schema
from quantail.diagnostics.schema import declared

AGENTS = [PPO, DistributionalPPO]


@pytest.mark.parametrize("kind", AGENTS)
def test_the_same_positional_call_works(kind: Any) -> None:
    env = make_vec_env("Pendulum-v1", 2, seed=0)
    network, training = ("MlpPolicy", env), (1e-3, 16, 8, 2, 0.9, 0.8, 0.1, 0.3, False, 0.01)
    rest = (0.4, 0.7, True, 4, None, None, 0.5, 50, None, {"net_arch": [8]}, 0, 3, "cpu", True)
    model = kind(*network, *training, *rest)
    model.learn(32)
    names = list(inspect.signature(PPO.__init__).parameters)[3:]
    assert len(names) == len(training + rest)
    for name, value in zip(names, training + rest, strict=True):
        if hasattr(model, name) and isinstance(value, float | int):
            found = getattr(model, name)
            assert (found(1.0) if callable(found) else found) == value, name


def test_every_metric_has_a_row_of_its_own_in_the_console() -> None:
    """Names are cut there, and Stable-Baselines3 raises when two become equal."""
    parts = [part for module in (schema, risk_schema) for part in vars(module).values()]
    groups = {
        part for part in parts if isinstance(part, type) and part.__name__.endswith("Metrics")
    }
    tags = list(declared(*groups))
    assert len(tags) > 80
    text = StringIO()
    HumanOutputFormat(text).write(dict.fromkeys(tags, 1.0), dict.fromkeys(tags, ()), 0)
    assert text.getvalue().count("| 1 ") == len(tags)


class Reads(BaseCallback):
    """Reads what callbacks of users read."""

    def __init__(self) -> None:
        super().__init__()
        self.batches = 0

    def _on_step(self) -> bool:
        assert (
            len(self.locals["infos"]) == len(self.locals["rewards"]) == self.training_env.num_envs
        )
        assert self.model.num_timesteps == self.num_timesteps
        return True

    def _on_rollout_end(self) -> None:
        for batch in self.model.rollout_buffer.get(16):
            values, log_probs, _ = self.model.policy.evaluate_actions(
                batch.observations, batch.actions
            )
            torch.testing.assert_close(log_probs, batch.old_log_prob, atol=1e-5, rtol=1e-4)
            torch.testing.assert_close(values.flatten(), batch.old_values, atol=1e-5, rtol=1e-4)
            self.batches += 1


@pytest.mark.parametrize("kind", AGENTS)
def test_callbacks_sample_the_buffer_and_ask_the_policy(kind: Any) -> None:
    env = make_vec_env("Pendulum-v1", 2, seed=0)
    model = kind("MlpPolicy", env, n_steps=32, batch_size=16, n_epochs=1, device="cpu")
    reads = Reads()
    model.learn(128, callback=reads)
    assert reads.batches == 2 * 64 // 16


def test_copies_of_a_policy_and_evaluation() -> None:
    env = make_vec_env("CartPole-v1", 2, seed=0)
    model = DistributionalPPO("MlpLstmPolicy", env, n_steps=16, batch_size=16, n_epochs=1, seed=0)
    model.learn(32)
    again = deepcopy(model.policy)
    observation = np.zeros((3, 4), np.float32)
    for first, second in zip(
        again.predict(observation, deterministic=True)[1],
        model.policy.predict(observation, deterministic=True)[1],
        strict=True,
    ):
        np.testing.assert_array_equal(first, second)
    mean, _ = evaluate_policy(model, make_vec_env("CartPole-v1", 1, seed=0), n_eval_episodes=2)
    assert mean >= 8
