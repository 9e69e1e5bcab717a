"""Actor heads: from a latent vector to a law over the actions of a space."""

from abc import ABC, abstractmethod

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

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
    """Linear location and one learned deviation per action dimension."""

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
        self.law = SquashedGaussian if config.squash else DiagonalGaussian
        self.location = orthogonal_linear(input_size, size, _GAIN)
        self.log_std = nn.Parameter(torch.full((size,), config.log_std_init))
        self.register_buffer("low", torch.as_tensor(space.low.reshape(-1), dtype=torch.float32))
        self.register_buffer("high", torch.as_tensor(space.high.reshape(-1), dtype=torch.float32))

    def forward(self, latent: Tensor, mask: Tensor | None = None) -> DiagonalGaussian:
        """Return the Gaussian of each row."""
        if mask is not None:
            raise DataError(
                "action_masks need a Discrete, MultiDiscrete or MultiBinary action space; the "
                "space is a Box. Leave the masks out."
            )
        location = self.location(latent)
        bounds = Bounds(self.low, self.high, self.shape)
        return self.law(location, self.log_std.expand_as(location), bounds)


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
        self.register_buffer("allowed", torch.as_tensor(allowed))
        self.register_buffer("starts", torch.as_tensor(starts, dtype=torch.int64))

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
        return GaussianActor(space, input_size, config)
    if config != ActorConfig():
        raise ConfigError(
            f"actor.squash and actor.log_std_init act on Box action spaces alone; they were "
            f"{config.squash} and {config.log_std_init} with {space}. Leave them out."
        )
    if isinstance(space, spaces.Discrete):
        return CategoricalActor(space, input_size)
    if isinstance(space, spaces.MultiDiscrete | spaces.MultiBinary):
        return MultiCategoricalActor(space, input_size)
    raise ConfigError(
        "The action space must be Box, Discrete, MultiDiscrete or MultiBinary; was "
        f"{type(space).__name__}. Wrap the environment."
    )
