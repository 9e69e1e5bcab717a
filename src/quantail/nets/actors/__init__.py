"""Actors: heads for every action space, and the laws they return."""

from quantail.nets.actors.discrete import Categorical, MultiCategorical
from quantail.nets.actors.gaussian import DiagonalGaussian, SquashedGaussian, base_entropy
from quantail.nets.actors.heads import Actor, ActorConfig, StateNoiseActor, build_actor
from quantail.nets.actors.state_noise import (
    SquashedStateGaussian,
    StateGaussian,
    StateNoise,
    explored,
)

__all__ = [
    "Actor",
    "ActorConfig",
    "Categorical",
    "DiagonalGaussian",
    "MultiCategorical",
    "SquashedGaussian",
    "SquashedStateGaussian",
    "StateGaussian",
    "StateNoise",
    "StateNoiseActor",
    "base_entropy",
    "build_actor",
    "explored",
]
