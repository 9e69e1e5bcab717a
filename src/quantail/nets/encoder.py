"""Encoder: observations to one vector per row."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from quantail.errors import ConfigError
from quantail.flow import Observation
from quantail.nets.layers import Activation, Mlp
from quantail.nets.observations import float_size

ExtractorFactory: TypeAlias = Callable[[], nn.Module]
"""Builds a module with an integer ``features_dim`` that reads [rows, ...] floats, or a dict of
them for a Dict space; the feature extractors of Stable-Baselines3 are such modules."""


class FlattenExtractor(nn.Module):
    """Flattens each part and puts the parts side by side, in the order of the space."""

    def __init__(self, space: spaces.Space[object]) -> None:
        super().__init__()
        self.keys = list(space.spaces) if isinstance(space, spaces.Dict) else []
        self.features_dim = float_size(space)

    def forward(self, observations: Observation) -> Tensor:
        """Return [rows, features_dim]."""
        if not isinstance(observations, dict):
            return _flat(observations)
        return torch.cat([_flat(observations[key]) for key in self.keys], dim=1)


def _flat(rows: Tensor) -> Tensor:
    # A Box of shape () gives one number per row, which has no axis to flatten.
    return rows.flatten(1) if rows.ndim > 1 else rows.unsqueeze(1)


class Encoder(nn.Module):
    """A feature extractor followed by an MLP, which may be empty."""

    def __init__(self, extractor: nn.Module, sizes: Sequence[int], activation: Activation) -> None:
        super().__init__()
        features = getattr(extractor, "features_dim", None)
        if not isinstance(features, int | np.integer):
            raise ConfigError(
                "A feature extractor must have an integer features_dim, the size of its output; "
                f"{type(extractor).__name__}.features_dim was {features!r}."
            )
        self.extractor = extractor
        self.mlp = Mlp(int(features), sizes, activation)
        self.output_size = self.mlp.output_size

    def forward(self, observations: Observation) -> Tensor:
        """Return [rows, output_size]."""
        features: Tensor = self.mlp(self.extractor(observations))
        return features
