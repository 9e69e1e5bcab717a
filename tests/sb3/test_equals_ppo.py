"""Set to the same estimator, an update of ours is the update of Stable-Baselines3's PPO.

Both start from the same weights and learn from the same rollout; what must agree is every
parameter afterwards, so advantages, all loss terms, clipping of gradients and Adam are compared.
"""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.wrappers import TimeLimit
from numpy.typing import NDArray
from stable_baselines3 import PPO
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.logger import configure
from torch import Tensor, nn

from quantail import DistributionalPPO
from quantail.nets.critics import ScalarCritic

N_STEPS, N_ENVS = 64, 4
ROWS = N_STEPS * N_ENVS
PLAIN: dict[str, Any] = {
    "critic": ScalarCritic(scale_rate=0.0),
    "twin": "off",
    "policy_kwargs": {"normalize_observations": False},
}
NAMES = {
    "net.actor_mlp.layers.0": "mlp_extractor.policy_net.0",
    "net.actor_mlp.layers.1": "mlp_extractor.policy_net.2",
    "net.critics.0.mlp.layers.0": "mlp_extractor.value_net.0",
    "net.critics.0.mlp.layers.1": "mlp_extractor.value_net.2",
    "net.critics.0.head.linear": "value_net",
    "net.actor.scores": "action_net",
    "net.actor.location": "action_net",
    "net.actor.log_std": "log_std",
}
ENVS = ["CartPole-v1", "Pendulum-v1"]

Weights = dict[str, Tensor]


def under_their_names(model: DistributionalPPO) -> dict[str, nn.Parameter]:
    found = {}
    for name, parameter in model.policy.named_parameters():
        (mine,) = (start for start in NAMES if name.startswith(start))
        found[NAMES[mine] + name.removeprefix(mine)] = parameter
    return found


def weights(parameters: Mapping[str, nn.Parameter]) -> Weights:
    return {name: parameter.detach().clone() for name, parameter in parameters.items()}


def gradients(parameters: Mapping[str, nn.Parameter]) -> Weights:
    return {name: p.grad for name, p in parameters.items() if p.grad is not None}


class BeforeUpdate(BaseCallback):
    """Keeps weights and rollout as they are when acting ends."""

    def _on_rollout_end(self) -> None:
        assert isinstance(self.model, DistributionalPPO)
        self.weights = weights(under_their_names(self.model))
        self.buffer = deepcopy(self.model.rollout_buffer)

    def _on_step(self) -> bool:
        return True


class Orders:
    """Hands the order of our minibatches on to PPO."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.drawn: list[NDArray[np.int64]] = []
        self._randperm = torch.randperm
        monkeypatch.setattr(torch, "randperm", self.record)
        monkeypatch.setattr(np.random, "permutation", lambda count: self.drawn.pop(0))

    def record(self, count: int, **how: Any) -> Tensor:
        drawn = self._randperm(count, **how)
        assert count == ROWS
        # Our rows run over environments first, theirs over steps.
        step, env = np.divmod(drawn.numpy(), N_ENVS)
        self.drawn.append(env * N_STEPS + step)
        return drawn


def both_updated(
    env_id: str,
    monkeypatch: pytest.MonkeyPatch,
    **given: Any,
) -> tuple[Weights, dict[str, nn.Parameter], dict[str, nn.Parameter]]:
    """Return the weights before, and the parameters after our update and after that of PPO."""

    def env() -> Any:
        # Episodes that are also cut within the rollout.
        return make_vec_env(
            env_id, N_ENVS, seed=1, wrapper_class=lambda e: TimeLimit(e.unwrapped, 30)
        )

    settings = {"n_steps": N_STEPS, "seed": 3, "device": "cpu", **given}
    ours = DistributionalPPO("MlpPolicy", env(), **settings, **PLAIN)
    theirs = PPO("MlpPolicy", env(), **settings)
    with torch.no_grad():  # a policy near zero would move too little for its ratio to matter
        for parameter in ours.policy.net.actor.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    orders, seen = Orders(monkeypatch), BeforeUpdate()
    ours.learn(ROWS, callback=seen)
    assert len(orders.drawn) == ours.n_epochs

    theirs.policy.load_state_dict(seen.weights)
    theirs.rollout_buffer = filled_by_ppo(seen.buffer, ours, theirs)
    theirs.set_logger(configure(None, []))
    theirs.train()
    assert not orders.drawn
    return seen.weights, under_their_names(ours), dict(theirs.policy.named_parameters())


def filled_by_ppo(buffer: RolloutBuffer, ours: DistributionalPPO, theirs: PPO) -> RolloutBuffer:
    """Return a rollout with values, log-probabilities and advantages as PPO computes them."""
    observations = torch.as_tensor(buffer.observations).flatten(0, 1)
    actions = torch.as_tensor(buffer.actions).flatten(0, 1)
    if isinstance(ours.action_space, spaces.Discrete):
        actions = actions.long().flatten()
    with torch.no_grad():
        values, log_probs, _ = theirs.policy.evaluate_actions(observations, actions)
        last = theirs.policy.predict_values(torch.as_tensor(ours._last_obs))
    again = deepcopy(buffer)
    again.values[:] = values.view(N_STEPS, N_ENVS)
    again.log_probs[:] = log_probs.view(N_STEPS, N_ENVS)
    assert ours._last_episode_starts is not None
    again.compute_returns_and_advantage(last.flatten(), ours._last_episode_starts)
    for name in ("values", "log_probs", "advantages", "returns"):
        size = np.abs(getattr(again, name)).max()
        np.testing.assert_allclose(getattr(buffer, name), getattr(again, name), atol=1e-5 * size)
    return again


def largest_error(ours: Weights, theirs: Weights) -> float:
    """Return the largest error, in units of the largest entry of its tensor."""
    assert set(ours) == set(theirs)
    sizes = {name: tensor.abs().max() for name, tensor in theirs.items()}
    assert all(size > 0 for size in sizes.values()), sizes
    return max(((ours[k] - theirs[k]).abs().max() / sizes[k]).item() for k in theirs)


@pytest.mark.parametrize("max_grad_norm", [0.5, 1e9])
@pytest.mark.parametrize("env_id", ENVS)
def test_the_first_gradient_is_that_of_ppo(
    env_id: str, max_grad_norm: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, ours, theirs = both_updated(
        env_id,
        monkeypatch,
        max_grad_norm=max_grad_norm,
        batch_size=ROWS,
        n_epochs=1,
        ent_coef=0.02,
        normalize_advantage=False,
    )
    assert largest_error(gradients(ours), gradients(theirs)) < 1e-5


@pytest.mark.parametrize("env_id", ENVS)
def test_normalized_advantages_differ_by_the_size_of_the_sample_alone(
    env_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, ours, theirs = both_updated(
        env_id, monkeypatch, max_grad_norm=1e9, batch_size=ROWS, n_epochs=1
    )
    # Ours divide by the deviation over n rows, theirs by that over n - 1; values do not care.
    factor = (ROWS / (ROWS - 1)) ** 0.5
    expected = {
        name: gradient if "value" in name else factor * gradient
        for name, gradient in gradients(theirs).items()
    }
    assert largest_error(gradients(ours), expected) < 1e-5


@pytest.mark.parametrize("env_id", ENVS)
def test_a_whole_update_in_minibatches_is_that_of_ppo(
    env_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, ours, theirs = both_updated(
        env_id,
        monkeypatch,
        learning_rate=1e-3,
        batch_size=64,
        n_epochs=4,
        ent_coef=0.02,
        clip_range=0.1,
        normalize_advantage=False,
    )
    moves = [
        {name: tensor - before[name] for name, tensor in weights(part).items()}
        for part in (ours, theirs)
    ]
    # Adam divides by moments, which blows up rounding where a gradient is nearly zero.
    assert largest_error(*moves) < 1e-4
