"""The six policies under the names and arguments of Stable-Baselines3 and sb3-contrib."""

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3.common.distributions import Distribution
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.torch_layers import (
    BaseFeaturesExtractor,
    CombinedExtractor,
    FlattenExtractor,
    NatureCNN,
)
from stable_baselines3.common.type_aliases import PyTorchObs, Schedule
from torch import Generator, Tensor, nn

from quantail.checkpoint.archive import Location
from quantail.errors import ConfigError, DataError
from quantail.flow import ActionDistribution, PolicyOutput
from quantail.nets.actor_critic import ActorCritic, PolicyConfig
from quantail.nets.actors import (
    ActorConfig,
    SquashedStateGaussian,
    StateGaussian,
    StateNoise,
    StateNoiseActor,
    explored,
)
from quantail.nets.budget import BudgetConfig
from quantail.nets.cores import CoreConfig
from quantail.nets.cost import CostCritic
from quantail.nets.critics import CriticConfig, QuantileCritic
from quantail.sb3.distributions import raw_actions, stored_actions, to_sb3
from quantail.sb3.environment import in_space
from quantail.sb3.network import (
    NetArch,
    activation_name,
    core_config,
    critic_has_memory,
    layer_sizes,
)
from quantail.sb3.policy_saving import load_policy, save_policy
from quantail.sb3.predicting import split_state, unflatten, untold
from quantail.targets.twin import Twin, twin_mean


class MlpPolicy(BasePolicy):
    """A policy without memory; ``net`` is the network, everything else is Stable-Baselines3's API.

    Arguments up to ``optimizer_kwargs`` stand in the order of Stable-Baselines3's policies.

    Args:
        observation_space: Of the environment.
        action_space: Of the environment.
        lr_schedule: Progress remaining to learning rate.
        net_arch: Hidden layers: a list, or a dict with ``pi`` (actor) and ``vf`` (critics). By
            default two of 64, or none after ``NatureCNN``.
        activation_fn: Tanh, ReLU, LeakyReLU, ELU, GELU or SiLU.
        ortho_init: Orthogonal first weights; else torch's own.
        use_sde: Exploration as a function of the state (gSDE).
        log_std_init: Logarithm of the first standard deviation of Gaussian actions.
        full_std: With ``use_sde``, one deviation for each feature and action.
        use_expln: With ``use_sde``, let deviations above 1 grow like a logarithm.
        squash_output: Squash Gaussian actions into the box by tanh.
        features_extractor_class: Of Stable-Baselines3's kind.
        features_extractor_kwargs: For it.
        share_features_extractor: Actor and critics read one extractor; else each has its own.
        normalize_images: Divide images by 255.
        optimizer_class: Of torch's kind.
        optimizer_kwargs: For it; when not given, Adam gets ``eps=1e-5`` and ``fused=True``, that
            is, the same arithmetic in one pass.
        lstm_hidden_size: Units of an LSTM layer; recurrent policies only, like all that follow up
            to ``core``.
        n_lstm_layers: Layers of the LSTM.
        shared_lstm: The critics read the actor's LSTM; its weights learn from the actor alone.
        enable_critic_lstm: The critics have an LSTM of their own; the default, unless shared. If
            False they read the features themselves.
        lstm_kwargs: ``dropout`` between the layers of the LSTM.
        core: Another recurrent core in place of the LSTM.
        critic: Kind of critic.
        twin: How two critics are combined, or ``"off"`` for one.
        critic_gradient_scale: With ``shared_lstm``, what the critics' gradient is multiplied by
            where it enters the LSTM; 0 by default.
        normalize_observations: Normalize observations inside the policy.
        budget: What an agent with tail risk gives its policy.
        cost: What an agent with a limit on a mean cost gives its policy.
    """

    recurrent: ClassVar[bool] = False
    extractor: ClassVar[type[BaseFeaturesExtractor]] = FlattenExtractor

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        lr_schedule: Schedule,
        net_arch: NetArch | None = None,
        activation_fn: type[nn.Module] = nn.Tanh,
        ortho_init: bool = True,
        use_sde: bool = False,
        log_std_init: float = 0.0,
        full_std: bool = True,
        use_expln: bool = False,
        squash_output: bool = False,
        features_extractor_class: type[BaseFeaturesExtractor] | None = None,
        features_extractor_kwargs: dict[str, Any] | None = None,
        share_features_extractor: bool = True,
        normalize_images: bool = True,
        optimizer_class: type[torch.optim.Optimizer] = torch.optim.Adam,
        optimizer_kwargs: dict[str, Any] | None = None,
        lstm_hidden_size: int | None = None,
        n_lstm_layers: int | None = None,
        shared_lstm: bool = False,
        enable_critic_lstm: bool | None = None,
        lstm_kwargs: dict[str, Any] | None = None,
        *,
        core: CoreConfig | None = None,
        critic: CriticConfig | None = None,
        twin: Twin = "min",
        critic_gradient_scale: float | None = None,
        normalize_observations: bool = True,
        budget: BudgetConfig | None = None,
        cost: CostCritic | None = None,
    ) -> None:
        # What is needed to build the same policy again.
        given = {name: value for name, value in locals().items() if name not in _NOT_GIVEN}
        if optimizer_kwargs is None:
            adam = {"eps": 1e-5, "fused": True}
            optimizer_kwargs = adam if optimizer_class is torch.optim.Adam else {}
        super().__init__(
            observation_space,
            action_space,
            features_extractor_class or self.extractor,
            dict(features_extractor_kwargs or {}),
            normalize_images=normalize_images,
            optimizer_class=optimizer_class,
            optimizer_kwargs=optimizer_kwargs,
            squash_output=squash_output,
        )
        self.given = given
        self.use_sde = use_sde
        self.ortho_init = ortho_init
        default = [] if self.features_extractor_class is NatureCNN else [64, 64]
        self.net_arch = layer_sizes(net_arch, default)
        if critic_gradient_scale is None:
            critic_gradient_scale = 0.0 if shared_lstm else 1.0
        config = PolicyConfig(
            core=core_config(self.recurrent, core, lstm_hidden_size, n_lstm_layers, lstm_kwargs),
            critic=critic or QuantileCritic(),
            actor=ActorConfig(
                squash=squash_output,
                log_std_init=float(log_std_init),
                state_noise=_state_noise(use_sde, full_std, use_expln),
            ),
            twin=twin,
            share_core=shared_lstm,
            share_encoder=share_features_extractor and not shared_lstm,
            critic_memory=critic_has_memory(
                self.recurrent, shared_lstm, enable_critic_lstm, share_features_extractor
            ),
            critic_gradient_scale=critic_gradient_scale,
            actor_layers=tuple(self.net_arch["pi"]),
            critic_layers=tuple(self.net_arch["vf"]),
            activation=activation_name(activation_fn),
            orthogonal_init=ortho_init,
            scale_images=normalize_images,
            normalize_observations=normalize_observations,
            budget=budget,
            cost=cost,
        )
        self.net = ActorCritic(
            observation_space, action_space, config, self.make_features_extractor
        )
        # Under the name that Stable-Baselines3 gives it, but registered once.
        object.__setattr__(self, "features_extractor", self.net.actor_encoder.extractor)
        self._noise: Tensor | None = None
        self.optimizer = optimizer_class(
            self.parameters(),
            lr=lr_schedule(1),  # type: ignore[call-arg]
            **self.optimizer_kwargs,
        )

    def make_features_extractor(self) -> BaseFeaturesExtractor:
        """Build a feature extractor, with orthogonal first weights if they are asked for."""
        extractor = super().make_features_extractor()
        if self.ortho_init:
            extractor.apply(partial(self.init_weights, gain=2**0.5))
        return extractor

    def save(self, path: Location) -> None:
        """Save the policy by itself, without pickle; ``.zip`` is added to a name without suffix."""
        save_policy(self, path)

    @classmethod
    def load(
        cls,
        path: Location,
        device: torch.device | str = "auto",
        custom_objects: Mapping[str, Any] | None = None,
    ) -> Self:
        """Make a policy from a file; nothing that came with the file is run."""
        return load_policy(cls, path, device, custom_objects)

    def _get_constructor_parameters(self) -> dict[str, Any]:
        return {**self.given, "lr_schedule": self._dummy_schedule}

    def forward(
        self, obs: PyTorchObs, deterministic: bool = False
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return actions as stored, values [N, 1] and log-probabilities [N].

        Observations are taken as the first of their episodes.
        """
        output = self._first_step(obs)
        raw = self.draw(output.actions, deterministic)
        actions = stored_actions(output.actions, raw)
        return actions, self._values(output), output.actions.log_prob(raw)

    def predict_values(self, obs: PyTorchObs) -> Tensor:
        """Return the expected return at the start of an episode, [N, 1]."""
        return self._values(self._first_step(obs))

    def evaluate_actions(self, obs: PyTorchObs, actions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return values [N, 1], log-probabilities [N] and entropies [N] of stored actions.

        Observations are taken as the first of their episodes.
        """
        output = self._first_step(obs)
        raw = raw_actions(output.actions, actions)
        return self._values(output), output.actions.log_prob(raw), output.actions.entropy()

    def get_distribution(self, obs: PyTorchObs) -> Distribution:
        """Return the law over actions at the start of an episode, as Stable-Baselines3 has it."""
        return to_sb3(self._first_step(obs).actions, self.action_space)

    def predict(
        self,
        observation: NDArray[Any] | dict[str, NDArray[Any]] | tuple[Any, ...],
        state: tuple[NDArray[Any], ...] | None = None,
        episode_start: NDArray[np.bool_] | None = None,
        deterministic: bool = False,
    ) -> tuple[NDArray[Any], tuple[NDArray[Any], ...] | None]:
        """Return actions for observations, and the state to pass in with the next ones.

        Args:
            observation: One observation or a batch of them.
            state: From the call before; None at the start.
            episode_start: [N] bool, which observations start an episode; None means none does,
                except that without a state all do.
            deterministic: The most likely action instead of a draw.

        Raises:
            DataError: The observation is a tuple, as a single environment's ``reset()`` gives it.
            ConfigError: The state does not fit.
        """
        self.set_training_mode(False)
        if isinstance(observation, tuple):
            raise DataError(
                "observation must be an array or a dict of arrays; was a tuple. This is mixing Gym "
                "API and VecEnv API: a gymnasium environment's reset() returns (obs, info), of "
                "which predict() takes obs"
            )
        tensors, is_vectorized = self.obs_to_tensor(observation)
        n_envs = _count(tensors)
        starts = torch.full((n_envs,), state is None)
        if episode_start is not None:
            starts = torch.as_tensor(np.asarray(episode_start, np.bool_).reshape(-1)).expand(n_envs)
        budget, parts = split_state(self.net.budget, state, starts)
        memory = self.net.initial_state(n_envs)
        if state is not None:
            memory = unflatten(parts, memory)
        with torch.no_grad():
            seen = None if self.net.budget is None else self.net.budget(budget)
            output = self.net.step(tensors, memory, starts.to(self.device), None, seen)
            raw = self.draw(output.actions, deterministic)
            actions = in_space(output.actions.to_env(raw).cpu().numpy(), self.action_space)
        after = tuple(part.cpu().numpy() for core in output.state for part in core)
        if budget is not None:
            after = (*after, untold(budget))
        return (actions if is_vectorized else actions.squeeze(0)), (after or None)

    def reset_noise(self, n_envs: int = 1, generator: Generator | None = None) -> None:
        """Draw new exploration weights, one set per environment, which act until the next call.

        Raises:
            ConfigError: The policy explores without regard to the state.
        """
        actor = self.net.actor
        if not isinstance(actor, StateNoiseActor):
            raise ConfigError("reset_noise() needs use_sde=True; it was False")
        self._noise = actor.draw_weights(n_envs, generator)

    def draw(self, law: ActionDistribution, deterministic: bool = False) -> Tensor:
        """Return the mode, or a raw action drawn with the current exploration weights, if any."""
        if deterministic:
            return law.mode()
        if not isinstance(law, StateGaussian | SquashedStateGaussian):
            return law.sample()
        if self._noise is None:
            self.reset_noise()
        assert self._noise is not None
        fits = len(self._noise) == len(law.features)
        return explored(law, self._noise if fits else self._noise[0])

    def _predict(self, observation: PyTorchObs, deterministic: bool = False) -> Tensor:
        return self.forward(observation, deterministic)[0]

    def _values(self, output: PolicyOutput) -> Tensor:
        return twin_mean(output.values, self.net.config.twin).float().unsqueeze(-1)

    def _first_step(self, obs: PyTorchObs) -> PolicyOutput:
        n_envs = _count(obs)
        starts = torch.ones(n_envs, dtype=torch.bool, device=self.device)
        budget = None if self.net.budget is None else self.net.budget.at_target(n_envs)
        return self.net.step(obs, self.net.initial_state(n_envs), starts, None, budget)


_NOT_GIVEN = ("self", "__class__", "lr_schedule")


class CnnPolicy(MlpPolicy):
    """A policy without memory for images."""

    extractor = NatureCNN


class MultiInputPolicy(MlpPolicy):
    """A policy without memory for Dict observations."""

    extractor = CombinedExtractor


class MlpLstmPolicy(MlpPolicy):
    """A recurrent policy."""

    recurrent = True


class CnnLstmPolicy(CnnPolicy):
    """A recurrent policy for images."""

    recurrent = True


class MultiInputLstmPolicy(MultiInputPolicy):
    """A recurrent policy for Dict observations."""

    recurrent = True


POLICIES: dict[str, type[BasePolicy]] = {
    "MlpPolicy": MlpPolicy,
    "CnnPolicy": CnnPolicy,
    "MultiInputPolicy": MultiInputPolicy,
    "MlpLstmPolicy": MlpLstmPolicy,
    "CnnLstmPolicy": CnnLstmPolicy,
    "MultiInputLstmPolicy": MultiInputLstmPolicy,
}


def _count(observations: PyTorchObs) -> int:
    part = next(iter(observations.values())) if isinstance(observations, dict) else observations
    return len(part)


def _state_noise(use_sde: bool, full_std: bool, use_expln: bool) -> StateNoise | None:
    if use_sde:
        return StateNoise(per_action=full_std, expln=use_expln)
    if use_expln or not full_std:
        raise ConfigError(
            "full_std and use_expln have no effect without use_sde=True; they were "
            f"{full_std} and {use_expln}. Leave them out"
        )
    return None
