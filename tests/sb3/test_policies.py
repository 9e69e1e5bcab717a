"""Policies under the names and arguments of Stable-Baselines3 and sb3-contrib."""

import inspect
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from sb3_contrib.common.recurrent.policies import RecurrentActorCriticPolicy
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.torch_layers import NatureCNN

from quantail import DistributionalPPO
from quantail.errors import ConfigError, DataError, QuantailWarning
from quantail.sb3.environment import in_space
from quantail.sb3.policy import CnnPolicy, MlpLstmPolicy, MlpPolicy

OBSERVATIONS = spaces.Box(-1.0, 1.0, (3,))
ACTIONS = {
    "box": spaces.Box(-1.0, 3.0, (2, 2)),
    "discrete": spaces.Discrete(4),
    "multi_discrete": spaces.MultiDiscrete([2, 3]),
    "multi_binary": spaces.MultiBinary(3),
}


def made(kind: type[MlpPolicy] = MlpPolicy, actions: str = "box", **given: Any) -> MlpPolicy:
    torch.manual_seed(0)
    policy = kind(OBSERVATIONS, ACTIONS[actions], lambda _: 1e-3, **given)
    policy.set_training_mode(False)
    return policy


@pytest.mark.parametrize("theirs", [ActorCriticPolicy, RecurrentActorCriticPolicy])
def test_arguments_stand_in_the_same_order(theirs: type) -> None:
    names = list(inspect.signature(theirs.__init__).parameters)
    ours = list(inspect.signature(MlpLstmPolicy.__init__).parameters)
    assert ours[: len(names)] == names


@pytest.mark.parametrize("use_sde", [False, True])
@pytest.mark.parametrize("squash", [False, True])
def test_evaluate_actions_agrees_with_forward_for_boxes(use_sde: bool, squash: bool) -> None:
    policy = made(use_sde=use_sde, squash_output=squash, log_std_init=-1.0)
    observations = torch.rand(7, 3)
    actions, values, log_probs = policy(observations)
    assert actions.shape == (7, 2, 2)
    assert values.shape == (7, 1)
    assert not squash or actions.abs().max() < 1
    again, evaluated, entropy = policy.evaluate_actions(observations, actions)
    torch.testing.assert_close(again, values)
    torch.testing.assert_close(evaluated, log_probs, rtol=1e-4, atol=1e-4)
    assert entropy.shape == (7,)
    torch.testing.assert_close(policy.predict_values(observations), values)


@pytest.mark.parametrize("actions", list(ACTIONS))
def test_distribution_is_the_one_that_acts(actions: str) -> None:
    policy = made(actions=actions)
    for parameter in policy.net.actor.parameters():
        torch.nn.init.normal_(parameter)
    observations = torch.rand(5, 3)
    stored, _, log_probs = policy(observations)
    theirs = policy.get_distribution(observations)
    flat = stored.reshape(5, -1) if stored.ndim > 1 else stored
    torch.testing.assert_close(theirs.log_prob(flat.float()), log_probs)
    mode = theirs.get_actions(deterministic=True).reshape(stored.shape)
    torch.testing.assert_close(mode, policy(observations, deterministic=True)[0].to(mode.dtype))


@pytest.mark.parametrize("actions", list(ACTIONS))
@pytest.mark.parametrize("deterministic", [False, True])
def test_predicted_actions_lie_in_the_space(actions: str, deterministic: bool) -> None:
    policy = made(actions=actions)
    predicted, _ = policy.predict(np.zeros((6, 3), np.float32), deterministic=deterministic)
    assert all(ACTIONS[actions].contains(action) for action in predicted)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64"])
def test_actions_have_the_number_type_of_the_space(dtype: str) -> None:
    bounds = {"low": -3, "high": 3} if dtype == "int64" else {"low": -0.1, "high": 0.1}
    space = spaces.Box(**bounds, shape=(2,), dtype=np.dtype(dtype).type)
    given = np.array([[-9.0, 1.6], [0.02, 9.0]], np.float32)
    actions = in_space(given, space)
    assert actions.dtype == space.dtype
    assert all(space.contains(action) for action in actions)
    if dtype == "int64":
        assert actions.tolist() == [[-3, 2], [0, 3]]


def test_exploration_weights_act_until_they_are_drawn_anew() -> None:
    policy = made(use_sde=True)
    observation = np.full((1, 3), 0.5, np.float32)
    first, second = policy.predict(observation)[0], policy.predict(observation)[0]
    np.testing.assert_array_equal(first, second)
    policy.reset_noise()
    assert not np.array_equal(policy.predict(observation)[0], first)
    with pytest.raises(ConfigError, match=r"reset_noise\(\) needs use_sde=True"):
        made().reset_noise()


@pytest.mark.parametrize(("frequency", "distinct"), [(-1, 1), (4, 4)])
def test_state_noise_is_kept_for_as_many_steps_as_asked(frequency: int, distinct: int) -> None:
    class Constant(gym.Env[Any, Any]):
        observation_space = OBSERVATIONS
        action_space = spaces.Box(-100.0, 100.0, (1,))
        seen: list[float] = []  # noqa: RUF012 - one list for the test

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            return np.ones(3, np.float32), {}

        def step(self, action: Any) -> Any:
            self.seen.append(float(action[0]))
            return np.ones(3, np.float32), 0.0, False, False, {}

    env = Constant()
    DistributionalPPO(
        "MlpPolicy", env, n_steps=16, batch_size=16, use_sde=True, sde_sample_freq=frequency, seed=0
    ).learn(16)
    assert len(set(env.seen)) == distinct
    assert env.seen[:4] == [env.seen[0]] * 4


@pytest.mark.parametrize(
    ("given", "sizes"),
    [
        ({}, ([64, 64], [64, 64])),
        ({"net_arch": [8]}, ([8], [8])),
        ({"net_arch": {"pi": [8]}}, ([8], [])),
        ({"net_arch": {"vf": [4, 2], "pi": []}}, ([], [4, 2])),
    ],
)
def test_net_arch(given: dict[str, Any], sizes: tuple[list[int], list[int]]) -> None:
    policy = made(**given)
    assert (policy.net_arch["pi"], policy.net_arch["vf"]) == sizes
    assert policy.net.actor_mlp.output_size == (sizes[0] or [3])[-1]
    assert policy.net.critics[0].mlp.output_size == (sizes[1] or [3])[-1]


def test_the_old_form_of_net_arch_warns() -> None:
    with pytest.warns(QuantailWarning, match="old form of Stable-Baselines3"):
        assert made(net_arch=[{"pi": [4], "vf": [8]}]).net_arch == {"pi": [4], "vf": [8]}


def images(**given: Any) -> CnnPolicy:
    space = spaces.Box(0, 255, (1, 36, 36), np.uint8)
    return CnnPolicy(space, ACTIONS["discrete"], lambda _: 1e-3, **given)


def test_feature_extractor_is_shared_registered_once_and_orthogonal() -> None:
    policy = images()
    assert isinstance(policy.features_extractor, NatureCNN)
    assert policy.features_extractor is policy.net.actor_encoder.extractor
    assert policy.net.critic_encoder is None
    assert policy.net_arch == {"pi": [], "vf": []}
    assert not any(name.startswith("features_extractor") for name in policy.state_dict())
    weight = policy.features_extractor.linear[0].weight
    product = weight.T @ weight
    torch.testing.assert_close(product, 2 * torch.eye(len(product)), atol=1e-4, rtol=0)
    apart = images(share_features_extractor=False, ortho_init=False)
    assert apart.net.critic_encoder is not None
    loose = apart.features_extractor.linear[0].weight
    assert not torch.allclose(loose.T @ loose, 2 * torch.eye(len(product)), atol=1e-2)


def test_shared_lstm_learns_from_the_actor_alone_unless_told() -> None:
    def gradient(**given: Any) -> bool:
        policy = made(MlpLstmPolicy, shared_lstm=True, **given)
        policy.predict_values(torch.rand(4, 3)).sum().backward()
        return any(p.grad is not None and p.grad.any() for p in policy.net.actor_core.parameters())

    assert not gradient()
    assert gradient(critic_gradient_scale=0.5)


def test_critic_without_lstm_and_dropout() -> None:
    given = {"n_lstm_layers": 2, "lstm_kwargs": {"dropout": 0.3}}
    policy = made(MlpLstmPolicy, enable_critic_lstm=False, lstm_hidden_size=4, **given)
    assert policy.net.initial_state(2).critic == ()
    assert policy.net.config.core.dropout == 0.3


def test_a_policy_can_be_built_again_from_its_parameters() -> None:
    policy = made(MlpLstmPolicy, lstm_hidden_size=6, net_arch=[5], use_sde=True, full_std=False)
    again = MlpLstmPolicy(**policy._get_constructor_parameters())
    again.load_state_dict(policy.state_dict())
    observation = np.zeros((2, 3), np.float32)
    np.testing.assert_array_equal(
        policy.predict(observation, deterministic=True)[0],
        again.predict(observation, deterministic=True)[0],
    )


@pytest.mark.parametrize(
    ("kind", "given", "error", "message"),
    [
        (MlpPolicy, {"use_expln": True}, ConfigError, "use_expln have no effect without use_sde"),
        (MlpPolicy, {"net_arch": {"qf": [4]}}, ConfigError, "keys pi and vf; had qf"),
        (MlpPolicy, {"shared_lstm": True}, ConfigError, "need a recurrent policy"),
        (MlpPolicy, {"lstm_kwargs": {"dropout": 0.1}}, ConfigError, "need a recurrent policy"),
        (
            MlpLstmPolicy,
            {"lstm_kwargs": {"bias": False}},
            ConfigError,
            "may hold dropout; had bias",
        ),
        (
            MlpLstmPolicy,
            {"shared_lstm": True, "enable_critic_lstm": True},
            AssertionError,
            "exclude each other",
        ),
        (
            MlpLstmPolicy,
            {"shared_lstm": True, "share_features_extractor": False},
            AssertionError,
            "needs share_features_extractor=True",
        ),
    ],
)
def test_contradictions_are_refused(
    kind: type[MlpPolicy], given: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        made(kind, **given)


def test_policy_classes_that_training_would_not_read_are_refused() -> None:
    class Overriding(MlpPolicy):
        def forward(self, obs: Any, deterministic: bool = False) -> Any:
            return super().forward(obs, deterministic)

    class Derived(MlpLstmPolicy):
        """Changes nothing."""

    cases = ((ActorCriticPolicy, "derived from those of quantail"), (Overriding, "forward would"))
    for wrong, message in cases:
        with pytest.raises(ConfigError, match=message):
            DistributionalPPO(wrong, "Pendulum-v1")
    DistributionalPPO(Derived, "Pendulum-v1")


def test_a_tuple_is_no_observation() -> None:
    with pytest.raises(DataError, match="mixing Gym API and VecEnv API"):
        made().predict(make_vec_env("Pendulum-v1", 1).envs[0].reset())


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"clip_range_vf": -0.2}, "clip_range_vf must be positive; was -0.2"),
        ({"n_steps": 1}, "normalize_advantage needs at least 2 rows"),
    ],
)
def test_what_sb3_asserts_is_refused_as_an_assertion_too(
    given: dict[str, Any], message: str
) -> None:
    for error in (AssertionError, ConfigError):
        with pytest.raises(error, match=message):
            DistributionalPPO("MlpPolicy", "Pendulum-v1", **given)


def test_a_truncated_minibatch_warns() -> None:
    with pytest.warns(QuantailWarning, match="there will be a truncated mini-batch of size 1"):
        DistributionalPPO("MlpPolicy", "Pendulum-v1", n_steps=64, batch_size=63)
