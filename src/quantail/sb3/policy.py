"""The six policies under the names and arguments of Stable-Baselines3 and sb3-contrib."""

from typing import Any, ClassVar

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.torch_layers import (
    BaseFeaturesExtractor,
    CombinedExtractor,
    FlattenExtractor,
    NatureCNN,
)
from stable_baselines3.common.type_aliases import PyTorchObs, Schedule
from torch import Tensor, nn

from quantail.errors import ConfigError
from quantail.flow import CoreState, PolicyOutput, PolicyState
from quantail.nets.actor_critic import ActorCritic, PolicyConfig
from quantail.nets.actors import ActorConfig
from quantail.nets.cores import CoreConfig, LstmConfig, NoCoreConfig
from quantail.nets.critics import CriticConfig, QuantileCritic
from quantail.nets.layers import Activation
from quantail.targets.twin import Twin, twin_mean

_ACTIVATIONS: dict[type[nn.Module], Activation] = {
    nn.Tanh: "tanh",
    nn.ReLU: "relu",
    nn.LeakyReLU: "leaky_relu",
    nn.ELU: "elu",
    nn.GELU: "gelu",
    nn.SiLU: "silu",
}


class MlpPolicy(BasePolicy):
    """A policy without memory; ``net`` is the network, everything else is Stable-Baselines3's API.

    Args:
        observation_space: Of the environment.
        action_space: Of the environment.
        lr_schedule: Progress remaining to learning rate.
        use_sde: State-dependent exploration; refused.
        net_arch: Hidden layers: a list, or a dict with ``pi`` (actor) and ``vf`` (critics).
        activation_fn: Tanh, ReLU, LeakyReLU, ELU, GELU or SiLU.
        log_std_init: Logarithm of the first standard deviation of Gaussian actions.
        squash_output: Squash Gaussian actions into the box by tanh.
        features_extractor_class: Of Stable-Baselines3's kind; actor and critics get one each.
        features_extractor_kwargs: For it.
        optimizer_class: Of torch's kind.
        optimizer_kwargs: For it; Adam gets ``eps=1e-5`` when it is not given.
        lstm_hidden_size: Units of an LSTM layer; recurrent policies only.
        n_lstm_layers: Layers of the LSTM; recurrent policies only.
        shared_lstm: Actor and critics read one core; recurrent policies only.
        core: Another recurrent core in place of the LSTM; recurrent policies only.
        critic: Kind of critic.
        twin: How two critics are combined, or ``"off"`` for one.
        normalize_observations: Normalize observations inside the policy.
    """

    recurrent: ClassVar[bool] = False
    extractor: ClassVar[type[BaseFeaturesExtractor]] = FlattenExtractor

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        lr_schedule: Schedule,
        use_sde: bool = False,
        *,
        net_arch: list[int] | dict[str, list[int]] | None = None,
        activation_fn: type[nn.Module] = nn.Tanh,
        log_std_init: float = 0.0,
        squash_output: bool = False,
        features_extractor_class: type[BaseFeaturesExtractor] | None = None,
        features_extractor_kwargs: dict[str, Any] | None = None,
        optimizer_class: type[torch.optim.Optimizer] = torch.optim.Adam,
        optimizer_kwargs: dict[str, Any] | None = None,
        lstm_hidden_size: int | None = None,
        n_lstm_layers: int | None = None,
        shared_lstm: bool = False,
        core: CoreConfig | None = None,
        critic: CriticConfig | None = None,
        twin: Twin = "min",
        normalize_observations: bool = True,
    ) -> None:
        if use_sde:
            raise ConfigError("use_sde is not supported yet; was True. Leave it out")
        if optimizer_kwargs is None:
            optimizer_kwargs = {"eps": 1e-5} if optimizer_class is torch.optim.Adam else {}
        extractor_class = features_extractor_class or self.extractor
        super().__init__(
            observation_space,
            action_space,
            extractor_class,
            features_extractor_kwargs,
            optimizer_class=optimizer_class,
            optimizer_kwargs=optimizer_kwargs,
            squash_output=squash_output,
        )
        layers = net_arch if net_arch is not None else [64, 64]
        layers = layers if isinstance(layers, dict) else {"pi": layers, "vf": layers}
        is_box = isinstance(action_space, spaces.Box)
        config = PolicyConfig(
            core=self._core(core, lstm_hidden_size, n_lstm_layers),
            critic=critic or QuantileCritic(),
            actor=ActorConfig(squash=squash_output, log_std_init=log_std_init)
            if is_box
            else ActorConfig(),
            twin=twin,
            share_core=shared_lstm,
            actor_layers=tuple(layers.get("pi", ())),
            critic_layers=tuple(layers.get("vf", ())),
            activation=_activation(activation_fn),
            normalize_observations=normalize_observations,
        )
        self.net = ActorCritic(
            observation_space,
            action_space,
            config,
            lambda: extractor_class(observation_space, **self.features_extractor_kwargs),
        )
        self.optimizer = optimizer_class(
            self.parameters(),
            lr=lr_schedule(1),  # type: ignore[call-arg]
            **self.optimizer_kwargs,
        )

    def _core(
        self, core: CoreConfig | None, hidden_size: int | None, n_layers: int | None
    ) -> CoreConfig:
        if not self.recurrent:
            given = [core, hidden_size, n_layers]
            if any(value is not None for value in given):
                raise ConfigError(
                    "core, lstm_hidden_size and n_lstm_layers need a recurrent policy, such as "
                    f"MlpLstmPolicy; the policy is {type(self).__name__}"
                )
            return NoCoreConfig()
        if core is not None:
            if hidden_size is not None or n_layers is not None:
                raise ConfigError(
                    "lstm_hidden_size and n_lstm_layers have no effect beside core, which has its "
                    "own sizes; leave them out"
                )
            return core
        return LstmConfig(hidden_size=hidden_size or 64, layers=n_layers or 1)

    def forward(
        self, obs: PyTorchObs, deterministic: bool = False
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return actions, values and log-probabilities at the start of an episode."""
        output = self._first_step(obs)
        raw = output.actions.mode() if deterministic else output.actions.sample()
        values = twin_mean(output.values, self.net.config.twin)
        return output.actions.to_env(raw), values, output.actions.log_prob(raw)

    def predict_values(self, obs: PyTorchObs) -> Tensor:
        """Return the expected return at the start of an episode, [N]."""
        return twin_mean(self._first_step(obs).values, self.net.config.twin)

    def predict(
        self,
        observation: NDArray[Any] | dict[str, NDArray[Any]],
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
        """
        self.set_training_mode(False)
        tensors, is_vectorized = self.obs_to_tensor(observation)
        n_envs = (
            next(iter(tensors.values())).shape[0] if isinstance(tensors, dict) else len(tensors)
        )
        memory = self.net.initial_state(n_envs)
        if state is not None:
            memory = _unflatten([torch.as_tensor(part) for part in state], memory)
        starts = torch.full((n_envs,), state is None)
        if episode_start is not None:
            starts = torch.as_tensor(np.asarray(episode_start, np.bool_).reshape(-1)).expand(n_envs)
        with torch.no_grad():
            output = self.net.step(tensors, memory, starts)
            raw = output.actions.mode() if deterministic else output.actions.sample()
            actions = output.actions.to_env(raw).cpu().numpy()
        after = tuple(part.cpu().numpy() for core in output.state for part in core)
        return (actions if is_vectorized else actions.squeeze(0)), (after or None)

    def _predict(self, observation: PyTorchObs, deterministic: bool = False) -> Tensor:
        return self.forward(observation, deterministic)[0]

    def _first_step(self, obs: PyTorchObs) -> PolicyOutput:
        n_envs = _count(obs)
        starts = torch.ones(n_envs, dtype=torch.bool)
        return self.net.step(obs, self.net.initial_state(n_envs), starts)


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


def _count(observations: PyTorchObs) -> int:
    part = next(iter(observations.values())) if isinstance(observations, dict) else observations
    return len(part)


def _activation(activation_fn: type[nn.Module]) -> Activation:
    if activation_fn not in _ACTIVATIONS:
        allowed = ", ".join(sorted(known.__name__ for known in _ACTIVATIONS))
        raise ConfigError(f"activation_fn must be one of {allowed}; was {activation_fn.__name__}")
    return _ACTIVATIONS[activation_fn]


def _unflatten(parts: list[Tensor], like: PolicyState) -> PolicyState:
    """Cut a flat list of tensors into the cores' states, checking their shapes."""
    expected = [tuple(part.shape) for core in like for part in core]
    given = [tuple(part.shape) for part in parts]
    if given != expected:
        raise ConfigError(
            f"state must have the shapes {expected}, as predict() returned it for as many "
            f"environments; had {given}. Pass None to start anew"
        )
    actor: CoreState = tuple(parts[: len(like.actor)])
    critic: CoreState = tuple(parts[len(like.actor) :])
    return PolicyState(actor, critic)
