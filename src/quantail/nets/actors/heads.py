"""Actor heads: from a latent vector to a law over the actions of a space."""

from abc import ABC, abstractmethod

import numpy as np
import torch
from gymnasium import spaces
from torch import Generator, Tensor, nn

from quantail.config_class import config
from quantail.errors import ConfigError, DataError
from quantail.flow import ActionDistribution
from quantail.nets.actors.discrete import (
    Categorical,
    MultiCategorical,
    masked_log_softmax,
    padded,
)
from quantail.nets.actors.gaussian import Bounds, DiagonalGaussian, SquashedGaussian
from quantail.nets.actors.state_noise import (
    SquashedStateGaussian,
    StateGaussian,
    StateNoise,
    draw_weights,
    log_std_of,
)
from quantail.nets.layers import orthogonal_linear

# Small, so that the first policy hardly depends on the observation (Andrychowicz et al. 2021).
_GAIN = 0.01


@config
class ActorConfig:
    """The law over actions."""

    squash: bool = False
    """Squash Gaussian actions into the box by tanh, instead of clipping them."""
    log_std_init: float = 0.0
    """Logarithm of the first standard deviation of Gaussian actions."""
    state_noise: StateNoise | None = None
    """Exploration as a function of the state (gSDE), instead of independent noise."""


class Actor(nn.Module, ABC):
    """A head that turns latents into a law over actions."""

    choices: int
    """Width of an action mask; 0 where actions cannot be masked."""

    @abstractmethod
    def forward(self, latent: Tensor, mask: Tensor | None = None) -> ActionDistribution:
        """Return the law for each row.

        Args:
            latent: [..., H]
            mask: [..., choices] bool, True where an option is allowed.
        """


class GaussianActor(Actor):
    """Linear location and one learned deviation per action dimension, whatever the state."""

    low: Tensor
    high: Tensor
    choices = 0

    def __init__(self, space: spaces.Box, input_size: int, config: ActorConfig) -> None:
        super().__init__()
        if config.squash and not (np.isfinite(space.low).all() and np.isfinite(space.high).all()):
            raise ConfigError(
                f"actor.squash needs an action space with finite bounds; they were {space.low} to "
                f"{space.high}. Bound the action space, or set actor.squash = false."
            )
        size = int(np.prod(space.shape))
        self.shape = space.shape
        self.config = config
        self.location = orthogonal_linear(input_size, size, _GAIN)
        self.log_std = nn.Parameter(self._first_log_std(input_size, size))
        # They follow from the space, so they are no part of what was learned.
        for name, bound in (("low", space.low), ("high", space.high)):
            tensor = torch.as_tensor(bound.reshape(-1), dtype=torch.float32)
            self.register_buffer(name, tensor, persistent=False)

    def forward(self, latent: Tensor, mask: Tensor | None = None) -> DiagonalGaussian:
        """Return the Gaussian of each row."""
        if mask is not None:
            raise DataError(
                "action_masks need a Discrete, MultiDiscrete or MultiBinary action space; the "
                "space is a Box. Leave the masks out."
            )
        return self._law(latent, self.location(latent), Bounds(self.low, self.high, self.shape))

    def _first_log_std(self, input_size: int, size: int) -> Tensor:
        return torch.full((size,), self.config.log_std_init)

    def _law(self, latent: Tensor, location: Tensor, bounds: Bounds) -> DiagonalGaussian:
        law = SquashedGaussian if self.config.squash else DiagonalGaussian
        return law(location, self.log_std.expand_as(location), bounds)


class StateNoiseActor(GaussianActor):
    """Linear location; the deviation is that of noise which depends on the state."""

    def __init__(
        self, space: spaces.Box, input_size: int, config: ActorConfig, noise: StateNoise
    ) -> None:
        self.noise = noise
        super().__init__(space, input_size, config)

    def draw_weights(self, count: int, generator: Generator | None = None) -> Tensor:
        """Draw weights [count, F, A] for :func:`~quantail.nets.actors.state_noise.explored`."""
        return draw_weights(self._std(), count, generator)

    def _first_log_std(self, input_size: int, size: int) -> Tensor:
        columns = size if self.noise.per_action else 1
        return torch.full((input_size, columns), self.config.log_std_init)

    def _std(self) -> Tensor:
        return self.noise.std(self.log_std).expand(-1, self.location.out_features)

    def _law(self, latent: Tensor, location: Tensor, bounds: Bounds) -> DiagonalGaussian:
        # The noise must not shape the features, which serve the location.
        features = latent.detach()
        law = SquashedStateGaussian if self.config.squash else StateGaussian
        return law(location, log_std_of(features, self._std()), bounds, features)


class CategoricalActor(Actor):
    """Linear scores of the options of a Discrete space."""

    def __init__(self, space: spaces.Discrete, input_size: int) -> None:
        super().__init__()
        self.choices = int(space.n)
        self.start = int(space.start)
        self.scores = orthogonal_linear(input_size, self.choices, _GAIN)

    def forward(self, latent: Tensor, mask: Tensor | None = None) -> Categorical:
        """Return the categorical law of each row."""
        return Categorical(masked_log_softmax(self.scores(latent), mask), self.start)


class MultiCategoricalActor(Actor):
    """Linear scores of the options of a MultiDiscrete space, or of the two options of each bit.

    A mask has one entry per option, choice after choice; for bits "off" comes before "on".
    """

    allowed: Tensor
    starts: Tensor

    def __init__(self, space: spaces.MultiDiscrete | spaces.MultiBinary, input_size: int) -> None:
        super().__init__()
        self.shape = tuple(space.shape)
        count = int(np.prod(self.shape))
        if isinstance(space, spaces.MultiDiscrete):
            sizes, starts = space.nvec.reshape(-1), space.start.reshape(-1)
        else:
            sizes, starts = np.full(count, 2), np.zeros(count, dtype=np.int64)
        self.choices = int(sizes.sum())
        self.scores = orthogonal_linear(input_size, self.choices, _GAIN)
        allowed = np.arange(sizes.max())[None, :] < sizes[:, None]
        self.register_buffer("allowed", torch.as_tensor(allowed), persistent=False)
        names = torch.as_tensor(starts, dtype=torch.int64)
        self.register_buffer("starts", names, persistent=False)

    def forward(self, latent: Tensor, mask: Tensor | None = None) -> MultiCategorical:
        """Return the law of each row."""
        scores = padded(self.scores(latent), self.allowed)
        full = None
        if mask is not None:
            if mask.shape[-1] != self.choices:
                raise DataError(
                    f"action_masks must have {self.choices} entries per row, one per option; had "
                    f"{mask.shape[-1]}."
                )
            full = torch.zeros_like(scores, dtype=torch.bool)
            full[..., self.allowed] = mask
        return MultiCategorical(masked_log_softmax(scores, full), self.starts, self.shape)


def build_actor(space: spaces.Space[object], input_size: int, config: ActorConfig) -> Actor:
    """Build the head for an action space.

    Raises:
        ConfigError: the space is not supported, or a setting would have no effect on it.
    """
    if isinstance(space, spaces.Box):
        if config.state_noise is not None:
            return StateNoiseActor(space, input_size, config, config.state_noise)
        return GaussianActor(space, input_size, config)
    if config != ActorConfig():
        raise ConfigError(
            "actor.squash, actor.log_std_init and actor.state_noise act on Box action spaces "
            f"alone; they were {config.squash}, {config.log_std_init} and {config.state_noise} "
            f"with {space}. Leave them out."
        )
    if isinstance(space, spaces.Discrete):
        return CategoricalActor(space, input_size)
    if isinstance(space, spaces.MultiDiscrete | spaces.MultiBinary):
        return MultiCategoricalActor(space, input_size)
    raise ConfigError(
        "The action space must be Box, Discrete, MultiDiscrete or MultiBinary; was "
        f"{type(space).__name__}. Wrap the environment."
    )
