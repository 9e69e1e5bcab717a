"""From what an environment gives to float tensors, by the kind of its observation space."""

from collections.abc import Callable

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - the usual name

from quantail.errors import ConfigError, DataError
from quantail.flow import Observation


def is_image(space: spaces.Space[object]) -> bool:
    """Say whether ``space`` holds images: uint8 with three axes and bounds 0 to 255."""
    return (
        isinstance(space, spaces.Box)
        and space.dtype == np.uint8
        and len(space.shape) == 3
        and bool((space.low == 0).all() and (space.high == 255).all())
    )


def map_observation(observation: Observation, function: Callable[[Tensor], Tensor]) -> Observation:
    """Apply ``function`` to the tensor, or to the tensor of every key."""
    if isinstance(observation, dict):
        return {key: function(value) for key, value in observation.items()}
    return function(observation)


def check_space(space: spaces.Space[object], name: str = "observation space") -> None:
    """Refuse spaces that the encoder cannot read.

    Raises:
        ConfigError: names the space.
    """
    if isinstance(space, spaces.Dict):
        for key, part in space.spaces.items():
            if isinstance(part, spaces.Dict):
                raise ConfigError(f"{name}[{key!r}] must not be a Dict again; flatten it.")
            check_space(part, f"{name}[{key!r}]")
        return
    allowed = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)
    if not isinstance(space, allowed):
        raise ConfigError(
            f"{name} must be Box, Discrete, MultiDiscrete, MultiBinary or a Dict of them; was "
            f"{type(space).__name__}. Wrap the environment."
        )


def to_float(
    observation: Tensor, space: spaces.Space[object], dtype: torch.dtype, scale_images: bool = True
) -> Tensor:
    """Return [rows, ...] floats: one-hot for choices, images in [0, 1], the rest as it is.

    Args:
        observation: [rows, ...] as the environment gives it.
        space: Its space, not a Dict.
        dtype: Of the result.
        scale_images: Divide images by 255.

    Raises:
        DataError: the shape is not that of the space.
    """
    shape = tuple(space.shape or ())
    if tuple(observation.shape[1:]) != shape:
        raise DataError(
            f"observations must have the shape {shape} of their space after the row axes; was "
            f"{tuple(observation.shape[1:])}."
        )
    if isinstance(space, spaces.Discrete):
        return F.one_hot(observation.long() - int(space.start), int(space.n)).to(dtype)
    if isinstance(space, spaces.MultiDiscrete):
        start = torch.as_tensor(space.start.reshape(-1), device=observation.device)
        choices = observation.flatten(1).long() - start
        sizes = space.nvec.reshape(-1).tolist()
        return torch.cat(
            [F.one_hot(choices[:, k], size) for k, size in enumerate(sizes)], dim=1
        ).to(dtype)
    if scale_images and is_image(space):
        return observation.to(dtype) / 255.0
    return observation.to(dtype)


def float_size(space: spaces.Space[object]) -> int:
    """Return how many numbers :func:`to_float` gives for one row."""
    if isinstance(space, spaces.Dict):
        return sum(float_size(part) for part in space.spaces.values())
    if isinstance(space, spaces.Discrete):
        return int(space.n)
    if isinstance(space, spaces.MultiDiscrete):
        return int(space.nvec.sum())
    return int(np.prod(space.shape or ()))
