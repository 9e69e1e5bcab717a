"""The policy: one module that acts and values, with its recurrent state passed in and handed out.

    observation -> normalizer -> encoder -> core -> MLP -> actor head      -> law over actions
                              -> encoder -> core -> MLP -> critic head, 1  -> law of returns
                                                 -> MLP -> critic head, 2  -> law of returns

Actor and critics have encoders and cores of their own, or share one of each. Nothing is kept on the
module by a forward pass: everything it says is in the :class:`~quantail.flow.PolicyOutput`.
"""

from collections.abc import Iterator
from typing import Annotated, Literal, cast

import torch
from annotated_types import Ge, Gt, Le
from gymnasium import spaces
from torch import Tensor, nn

from quantail.config_class import config
from quantail.errors import ConfigError
from quantail.flow import CoreState, Observation, PolicyOutput, PolicyState, ValueDistribution
from quantail.nets.actors import Actor, ActorConfig, build_actor
from quantail.nets.cores import Core, CoreConfig, LstmConfig
from quantail.nets.critics import CriticConfig, CriticHead, QuantileCritic
from quantail.nets.encoder import Encoder, ExtractorFactory, FlattenExtractor
from quantail.nets.layers import Activation, Mlp, scale_gradient
from quantail.nets.normalizer import ObservationNormalizer
from quantail.nets.observations import check_space, map_observation, to_float

Size = Annotated[int, Ge(1)]


@config
class PolicyConfig:
    """Everything about the network."""

    core: CoreConfig = LstmConfig()
    critic: CriticConfig = QuantileCritic()
    actor: ActorConfig = ActorConfig()
    twin: Literal["min", "mean", "off"] = "min"
    """Two critics, whose lower or mean prediction is the value; ``off`` has one critic."""
    share_core: bool = False
    """Actor and critics read one encoder and one core."""
    critic_gradient_scale: Annotated[float, Ge(0), Le(1)] = 1.0
    """What the critics' gradient is multiplied by where it enters the shared core."""
    encoder_layers: tuple[Size, ...] = ()
    """Hidden layers before the core."""
    actor_layers: tuple[Size, ...] = (64, 64)
    """Hidden layers between core and actor head."""
    critic_layers: tuple[Size, ...] = (64, 64)
    """Hidden layers between core and critic head, for each critic its own."""
    activation: Activation = "tanh"
    normalize_observations: bool = True
    """Bring Box observations to mean 0 and deviation 1, by statistics updated between rollouts."""
    observation_clip: Annotated[float, Gt(0)] = 10.0
    """Normalized observations are held within this many deviations."""

    def check(self) -> None:
        """Refuse settings that would have no effect."""
        if not self.share_core and self.critic_gradient_scale != 1.0:
            raise ConfigError(
                "policy.critic_gradient_scale has no effect with policy.share_core = false; was "
                f"{self.critic_gradient_scale}. Set share_core = true, or leave it at 1."
            )
        if not self.normalize_observations and self.observation_clip != 10.0:
            raise ConfigError(
                "policy.observation_clip has no effect with policy.normalize_observations = false; "
                f"was {self.observation_clip}. Leave it out."
            )


class Trunk(nn.Module):
    """Encoder and core."""

    def __init__(self, extractor: nn.Module, config: PolicyConfig) -> None:
        super().__init__()
        self.encoder = Encoder(extractor, config.encoder_layers, config.activation)
        self.core: Core = config.core.build(self.encoder.output_size)

    def forward(
        self, observations: Observation, state: CoreState, starts: Tensor
    ) -> tuple[Tensor, CoreState]:
        """Return latents [L, M, H] and the new state, from observations [L * M, ...]."""
        features = self.encoder(observations).view(*starts.shape, -1)
        result: tuple[Tensor, CoreState] = self.core(features, state, starts)
        return result


class Critic(nn.Module):
    """MLP and head of one critic."""

    def __init__(self, input_size: int, config: PolicyConfig) -> None:
        super().__init__()
        self.mlp = Mlp(input_size, config.critic_layers, config.activation)
        self.head: CriticHead[ValueDistribution] = config.critic.build(self.mlp.output_size)

    def forward(self, latent: Tensor) -> ValueDistribution:
        """Return the law of returns for each row of ``latent``."""
        law: ValueDistribution = self.head(self.mlp(latent))
        return law


class ActorCritic(nn.Module):
    """Policy and critics over the spaces of one environment.

    Args:
        observation_space: Box, Discrete, MultiDiscrete, MultiBinary or a Dict of them.
        action_space: Box, Discrete, MultiDiscrete or MultiBinary.
        config: The network.
        extractor: Builds a feature extractor; None flattens. Called once for a shared trunk, else
            once for the actor and once for the critics.
    """

    def __init__(
        self,
        observation_space: spaces.Space[object],
        action_space: spaces.Space[object],
        config: PolicyConfig,
        extractor: ExtractorFactory | None = None,
    ) -> None:
        super().__init__()
        check_space(observation_space)
        self.config = config
        self.observation_space = observation_space
        make = extractor or (lambda: FlattenExtractor(observation_space))
        self.normalizer = (
            ObservationNormalizer(observation_space, config.observation_clip)
            if config.normalize_observations
            else None
        )
        self.actor_trunk = Trunk(make(), config)
        self.critic_trunk = None if config.share_core else Trunk(make(), config)
        latent = self.actor_trunk.core.output_size
        self.actor_mlp = Mlp(latent, config.actor_layers, config.activation)
        self.actor: Actor = build_actor(action_space, self.actor_mlp.output_size, config.actor)
        count = 1 if config.twin == "off" else 2
        self.critics = nn.ModuleList(Critic(latent, config) for _ in range(count))
        if config.share_core and not any(True for _ in self.actor_trunk.parameters()):
            raise ConfigError(
                "policy.share_core has no effect: neither the encoder nor the core has parameters. "
                "Choose a recurrent policy.core, or leave share_core out."
            )

    def initial_state(self, n: int) -> PolicyState:
        """Return the state of ``n`` environments at the start of an episode."""
        critic = self.critic_trunk.core.initial_state(n) if self.critic_trunk else ()
        return PolicyState(self.actor_trunk.core.initial_state(n), critic)

    def forward(
        self,
        observations: Observation,
        state: PolicyState,
        starts: Tensor,
        action_masks: Tensor | None = None,
    ) -> PolicyOutput:
        """Read a sequence.

        Args:
            observations: [L, M, ...], as the environment gives them.
            state: Before the first row.
            starts: [L, M] bool, the row is the first of its episode.
            action_masks: [L, M, choices] bool, for spaces of choices.

        Returns:
            Laws with rows [L, M] and the state after the last row.
        """
        rows = map_observation(observations, lambda part: part.flatten(0, 1))
        inputs = self._inputs(rows)
        latent, actor_state = self.actor_trunk(inputs, state.actor, starts)
        actions = self.actor(self.actor_mlp(latent), action_masks)
        critic_state: CoreState = ()
        if self.critic_trunk is None:
            latent = scale_gradient(latent, self.config.critic_gradient_scale)
        else:
            latent, critic_state = self.critic_trunk(inputs, state.critic, starts)
        values = tuple(critic(latent) for critic in self.critics)
        return PolicyOutput(actions, values, PolicyState(actor_state, critic_state))

    def step(
        self,
        observations: Observation,
        state: PolicyState,
        starts: Tensor,
        action_masks: Tensor | None = None,
    ) -> PolicyOutput:
        """Read one observation of each environment: :meth:`forward` with L = 1 and rows [N]."""
        masks = None if action_masks is None else action_masks.unsqueeze(0)
        output = self(
            map_observation(observations, lambda part: part.unsqueeze(0)),
            state,
            starts.unsqueeze(0),
            masks,
        )
        values = tuple(law.rows(0) for law in output.values)
        return PolicyOutput(output.actions.rows(0), values, output.state)

    def update_scale(self, atoms: Tensor, weights: Tensor, row_weights: Tensor) -> None:
        """Move the return scale of every critic; see :class:`CriticHead`."""
        for critic in self._critics():
            critic.head.update_scale(atoms, weights, row_weights)

    def update_normalizer(self, observations: Observation) -> None:
        """Take in the observations [R, ...] of one rollout; between rollouts only."""
        if self.normalizer is not None:
            self.normalizer.update(observations)

    def parameter_groups(self) -> dict[str, list[nn.Parameter]]:
        """Return the parameters by part, each exactly once; parts without any are left out."""
        trunk = "shared" if self.critic_trunk is None else "actor"
        parts: dict[str, list[nn.Module]] = {
            f"{trunk}_encoder": [self.actor_trunk.encoder],
            f"{trunk}_core": [self.actor_trunk.core],
            "actor": [self.actor_mlp, self.actor],
        }
        if self.critic_trunk is not None:
            parts["critic_encoder"] = [self.critic_trunk.encoder]
            parts["critic_core"] = [self.critic_trunk.core]
        for number, critic in enumerate(self._critics(), start=1):
            parts[f"critic{number}"] = [critic]
        groups = {
            name: [parameter for module in modules for parameter in module.parameters()]
            for name, modules in parts.items()
        }
        return {name: group for name, group in groups.items() if group}

    def _inputs(self, rows: Observation) -> Observation:
        """Return [R, ...] floats, normalized."""
        dtype = torch.float32
        if isinstance(rows, dict):
            parts = cast(spaces.Dict, self.observation_space).spaces
            floats: Observation = {key: to_float(rows[key], parts[key], dtype) for key in parts}
        else:
            floats = to_float(rows, self.observation_space, dtype)
        if self.normalizer is None:
            return floats
        normalized: Observation = self.normalizer(floats)
        return normalized

    def _critics(self) -> Iterator[Critic]:
        return (cast(Critic, critic) for critic in self.critics)
