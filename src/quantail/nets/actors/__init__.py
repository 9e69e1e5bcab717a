"""Actors: heads for every action space, and the laws they return."""

from quantail.nets.actors.discrete import Categorical, MultiCategorical
from quantail.nets.actors.gaussian import DiagonalGaussian, SquashedGaussian
from quantail.nets.actors.heads import Actor, ActorConfig, build_actor

__all__ = [
    "Actor",
    "ActorConfig",
    "Categorical",
    "DiagonalGaussian",
    "MultiCategorical",
    "SquashedGaussian",
    "build_actor",
]
