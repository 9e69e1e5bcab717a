"""The policy: one module that acts and values, with its recurrent state passed in and handed out.

    observation -> normalizer -> encoder -> core -> MLP -> actor head      -> law over actions
                              -> encoder -> core -> MLP -> critic head, 1  -> law of returns
                                                 -> MLP -> critic head, 2  -> law of returns
                                                 -> MLP -> cost head       -> mean of costs

Actor and critics have encoders and cores of their own, or share the encoder or both. The cost
critic is there only with a limit on a mean cost. Nothing is kept on the module by a forward pass:
everything it says is in the :class:`~quantail.flow.PolicyOutput`.
"""

from collections.abc import Iterator
from typing import Annotated, Literal, cast

import torch
from annotated_types import Ge, Gt, Le
from gymnasium import spaces
from torch import Tensor, nn

from quantail.config_class import config
from quantail.errors import ConfigError
from quantail.flow import Observation, PolicyOutput, PolicyState, ValueDistribution
from quantail.nets.actors import Actor, ActorConfig, build_actor
from quantail.nets.budget import N_BUDGET_INPUTS, BudgetConfig, BudgetInputs
from quantail.nets.cores import Core, CoreConfig, LstmConfig, NoCoreConfig
from quantail.nets.cost import CostCritic
from quantail.nets.critics import CriticConfig, CriticHead, QuantileCritic, ScalarCritic
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
    share_encoder: bool = False
    """Actor and critics read one encoder, and each a core of its own."""
    critic_memory: bool = True
    """The critics have a core; without one they read the features themselves."""
    critic_gradient_scale: Annotated[float, Ge(0), Le(1)] = 1.0
    """What the critics' gradient is multiplied by where it enters the shared core."""
    encoder_layers: tuple[Size, ...] = ()
    """Hidden layers before the core."""
    actor_layers: tuple[Size, ...] = (64, 64)
    """Hidden layers between core and actor head."""
    critic_layers: tuple[Size, ...] = (64, 64)
    """Hidden layers between core and critic head, for each critic its own."""
    activation: Activation = "tanh"
    orthogonal_init: bool = True
    """Orthogonal first weights in the hidden layers and the actor head; else torch's own."""
    scale_images: bool = True
    """Divide images by 255."""
    normalize_observations: bool = True
    """Bring Box observations to mean 0 and deviation 1, by statistics updated between rollouts."""
    observation_clip: Annotated[float, Gt(0)] = 10.0
    """Normalized observations are held within this many deviations."""
    budget: BudgetConfig | None = None
    """With tail risk, encoders are followed by what the policy sees of its budget."""
    cost: CostCritic | None = None
    """With a limit on a mean cost, one more critic predicts costs."""

    def check(self) -> None:
        """Refuse settings that would have no effect."""
        if not self.share_core and self.critic_gradient_scale != 1.0:
            raise ConfigError(
                "policy.critic_gradient_scale has no effect with policy.share_core = false; was "
                f"{self.critic_gradient_scale}. Set share_core = true, or leave it at 1."
            )
        if self.share_core and self.share_encoder:
            raise ConfigError(
                "policy.share_encoder has no effect with policy.share_core = true, which shares "
                "the encoder too; was true. Leave it out."
            )
        if not self.critic_memory and (self.share_core or self.core.kind == "none"):
            raise ConfigError(
                "policy.critic_memory = false needs a recurrent policy.core that the actor has for "
                f"itself; policy.core is {self.core.kind!r} and policy.share_core is "
                f"{self.share_core}. Leave it out."
            )
        if not self.normalize_observations and self.observation_clip != 10.0:
            raise ConfigError(
                "policy.observation_clip has no effect with policy.normalize_observations = false; "
                f"was {self.observation_clip}. Leave it out."
            )


class Critic(nn.Module):
    """MLP and head of one critic."""

    def __init__(self, input_size: int, config: PolicyConfig, kind: CriticConfig) -> None:
        super().__init__()
        self.mlp = Mlp(input_size, config.critic_layers, config.activation)
        self.head: CriticHead[ValueDistribution] = kind.build(self.mlp.output_size)

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
        extractor: Builds a feature extractor; None flattens. Called once for a shared encoder, else
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
        self.budget = None if config.budget is None else BudgetInputs(config.budget)
        self.actor_encoder = self._encoder(make)
        features = self.actor_encoder.output_size
        if self.budget is not None:
            features += N_BUDGET_INPUTS
        self.actor_core: Core = config.core.build(features)
        # None stands for the actor's own.
        self.critic_encoder: Encoder | None = None
        self.critic_core: Core | None = None
        if not config.share_core:
            critic_core = config.core if config.critic_memory else NoCoreConfig()
            self.critic_encoder = None if config.share_encoder else self._encoder(make)
            self.critic_core = critic_core.build(features)
        self.actor_mlp = Mlp(self.actor_core.output_size, config.actor_layers, config.activation)
        self.actor: Actor = build_actor(action_space, self.actor_mlp.output_size, config.actor)
        latent = (self.critic_core or self.actor_core).output_size
        count = 1 if config.twin == "off" else 2
        self.critics = nn.ModuleList(Critic(latent, config, config.critic) for _ in range(count))
        if not config.orthogonal_init:
            _plain_init(self.actor_mlp, self.actor, *(critic.mlp for critic in self._critics()))
        # Last, so that all the other weights are drawn as without it.
        self.cost_critic: Critic | None = None
        if config.cost is not None:
            self.cost_critic = Critic(latent, config, ScalarCritic())
            if not config.orthogonal_init:
                _plain_init(self.cost_critic.mlp)
        shared = [*self.actor_encoder.parameters(), *self.actor_core.parameters()]
        if config.share_core and not shared:
            raise ConfigError(
                "policy.share_core has no effect: neither the encoder nor the core has parameters. "
                "Choose a recurrent policy.core, or leave share_core out."
            )

    def initial_state(self, n: int) -> PolicyState:
        """Return the state of ``n`` environments at the start of an episode."""
        critic = () if self.critic_core is None else self.critic_core.initial_state(n)
        return PolicyState(self.actor_core.initial_state(n), critic)

    def forward(
        self,
        observations: Observation,
        state: PolicyState,
        starts: Tensor,
        action_masks: Tensor | None = None,
        budget_inputs: Tensor | None = None,
    ) -> PolicyOutput:
        """Read a sequence.

        Args:
            observations: [L, M, ...], as the environment gives them.
            state: Before the first row.
            starts: [L, M] bool, the row is the first of its episode.
            action_masks: [L, M, choices] bool, for spaces of choices.
            budget_inputs: [L, M, K], from ``self.budget``; needed if and only if there is one.

        Returns:
            Laws with rows [L, M] and the state after the last row.
        """
        rows = map_observation(observations, lambda part: part.flatten(0, 1))
        actor, critic, after = self._latents(rows, state, starts, budget_inputs)
        return self._laws(actor, critic, action_masks, after)

    def step(
        self,
        observations: Observation,
        state: PolicyState,
        starts: Tensor,
        action_masks: Tensor | None = None,
        budget_inputs: Tensor | None = None,
    ) -> PolicyOutput:
        """Read one observation of each environment: :meth:`forward` with L = 1 and rows [N]."""
        inputs = None if budget_inputs is None else budget_inputs.unsqueeze(0)
        actor, critic, after = self._latents(observations, state, starts.unsqueeze(0), inputs)
        return self._laws(actor[0], critic[0], action_masks, after)

    def values(
        self,
        observations: Observation,
        state: PolicyState,
        starts: Tensor,
        budget_inputs: Tensor | None = None,
    ) -> tuple[tuple[ValueDistribution, ...], PolicyState]:
        """Return what the critics say in :meth:`forward`, and the state after the last row.

        An actor with a core of its own is not asked, and its state stays.
        """
        rows = map_observation(observations, lambda part: part.flatten(0, 1))
        if self.critic_core is None:
            _, latent, after = self._latents(rows, state, starts, budget_inputs)
        else:
            encoder = self.critic_encoder or self.actor_encoder
            features = self._features(encoder, self._inputs(rows), starts, budget_inputs)
            latent, critic_state = self.critic_core(features, state.critic, starts)
            after = PolicyState(state.actor, critic_state)
        return tuple(critic(latent) for critic in self.critics), after

    def update_scale(self, atoms: Tensor, weights: Tensor, row_weights: Tensor) -> None:
        """Move the return scale of every critic; see :class:`CriticHead`."""
        for critic in self._critics():
            critic.head.update_scale(atoms, weights, row_weights)

    def update_cost_scale(self, returns: Tensor, row_weights: Tensor) -> None:
        """Move the scale of the cost critic to the returns of the cost, [R] as ``row_weights``."""
        assert self.cost_critic is not None, "costs are valued by a critic of their own"
        one = torch.ones(1)
        self.cost_critic.head.update_scale(returns.unsqueeze(-1), one, row_weights)

    def update_normalizer(self, observations: Observation) -> None:
        """Take in the observations [R, ...] of one rollout; between rollouts only."""
        if self.normalizer is not None:
            self.normalizer.update(observations)

    def parameter_groups(self) -> dict[str, list[nn.Parameter]]:
        """Return the parameters by part, each exactly once; parts without any are left out."""
        encoder = "actor" if self.critic_encoder is not None else "shared"
        core = "actor" if self.critic_core is not None else "shared"
        parts: dict[str, list[nn.Module]] = {
            f"{encoder}_encoder": [self.actor_encoder],
            f"{core}_core": [self.actor_core],
            "actor": [self.actor_mlp, self.actor],
        }
        if self.critic_encoder is not None:
            parts["critic_encoder"] = [self.critic_encoder]
        if self.critic_core is not None:
            parts["critic_core"] = [self.critic_core]
        for number, critic in enumerate(self._critics(), start=1):
            parts[f"critic{number}"] = [critic]
        if self.cost_critic is not None:
            parts["critic_cost"] = [self.cost_critic]
        groups = {
            name: [parameter for module in modules for parameter in module.parameters()]
            for name, modules in parts.items()
        }
        return {name: group for name, group in groups.items() if group}

    def _latents(
        self, rows: Observation, state: PolicyState, starts: Tensor, budget_inputs: Tensor | None
    ) -> tuple[Tensor, Tensor, PolicyState]:
        """Return what actor and critics read, each [L, M, H], and the state after the last row."""
        inputs = self._inputs(rows)
        features = self._features(self.actor_encoder, inputs, starts, budget_inputs)
        actor, actor_state = self.actor_core(features, state.actor, starts)
        if self.critic_core is None:
            critic = scale_gradient(actor, self.config.critic_gradient_scale)
            return actor, critic, PolicyState(actor_state, ())
        if self.critic_encoder is not None:
            features = self._features(self.critic_encoder, inputs, starts, budget_inputs)
        critic, critic_state = self.critic_core(features, state.critic, starts)
        return actor, critic, PolicyState(actor_state, critic_state)

    def _features(
        self, encoder: Encoder, inputs: Observation, starts: Tensor, budget_inputs: Tensor | None
    ) -> Tensor:
        """Return what a core reads, [L, M, F]."""
        assert (budget_inputs is None) == (self.budget is None), "a budget must be seen or not be"
        return _beside(encoder(inputs).view(*starts.shape, -1), budget_inputs)

    def _laws(
        self, actor: Tensor, critic: Tensor, action_masks: Tensor | None, state: PolicyState
    ) -> PolicyOutput:
        """Return what the heads say about rows [...] of latents [..., H]."""
        actions = self.actor(self.actor_mlp(actor), action_masks)
        cost = None if self.cost_critic is None else self.cost_critic(critic)
        return PolicyOutput(actions, tuple(head(critic) for head in self.critics), state, cost)

    def _encoder(self, make: ExtractorFactory) -> Encoder:
        return Encoder(make(), self.config.encoder_layers, self.config.activation)

    def _inputs(self, rows: Observation) -> Observation:
        """Return [R, ...] floats, normalized."""
        how = (torch.float32, self.config.scale_images)
        if isinstance(rows, dict):
            parts = cast(spaces.Dict, self.observation_space).spaces
            floats: Observation = {key: to_float(rows[key], parts[key], *how) for key in parts}
        else:
            floats = to_float(rows, self.observation_space, *how)
        if self.normalizer is None:
            return floats
        normalized: Observation = self.normalizer(floats)
        return normalized

    def _critics(self) -> Iterator[Critic]:
        return (cast(Critic, critic) for critic in self.critics)


def _beside(features: Tensor, budget_inputs: Tensor | None) -> Tensor:
    return features if budget_inputs is None else torch.cat([features, budget_inputs], dim=-1)


def _plain_init(*modules: nn.Module) -> None:
    """Draw the weights of linear layers as torch does by default."""
    for module in modules:
        for layer in module.modules():
            if isinstance(layer, nn.Linear):
                layer.reset_parameters()
