"""Our laws over actions in the words of Stable-Baselines3.

Stable-Baselines3 stores an action as its distribution gives it: before clipping for a Gaussian,
within [-1, 1] for a squashed one, in the shape of the action space. Ours stores raw actions.
"""

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common.distributions import (
    BernoulliDistribution,
    CategoricalDistribution,
    DiagGaussianDistribution,
    Distribution,
    MultiCategoricalDistribution,
    SquashedDiagGaussianDistribution,
)
from torch import Tensor

from quantail.flow import ActionDistribution
from quantail.nets.actors import (
    Categorical,
    DiagonalGaussian,
    MultiCategorical,
    SquashedGaussian,
)

# The largest float32 below 1, where atanh is still finite.
_INSIDE = 1 - 2**-24


def to_sb3(law: ActionDistribution, space: spaces.Space[object]) -> Distribution:
    """Return the same law as a distribution of Stable-Baselines3; rows [N]."""
    if isinstance(law, DiagonalGaussian):
        squashed = isinstance(law, SquashedGaussian)
        kind = SquashedDiagGaussianDistribution if squashed else DiagGaussianDistribution
        return kind(law.location.shape[-1]).proba_distribution(law.location, law.log_std)
    if isinstance(law, Categorical):
        logits = law.log_probs
        return CategoricalDistribution(logits.shape[-1]).proba_distribution(logits)
    assert isinstance(law, MultiCategorical)
    if isinstance(space, spaces.MultiBinary):
        odds = law.log_probs[..., 1] - law.log_probs[..., 0]
        return BernoulliDistribution(odds.shape[-1]).proba_distribution(odds)
    assert isinstance(space, spaces.MultiDiscrete)
    sizes = space.nvec.reshape(-1).tolist()
    logits = torch.cat([law.log_probs[..., k, :size] for k, size in enumerate(sizes)], dim=-1)
    return MultiCategoricalDistribution(sizes).proba_distribution(logits)


def stored_actions(law: ActionDistribution, raw: Tensor) -> Tensor:
    """Return raw actions as Stable-Baselines3 would store them, [..., *shape of the space]."""
    if isinstance(law, DiagonalGaussian):
        return law.bounds.shaped(raw.tanh() if isinstance(law, SquashedGaussian) else raw)
    if isinstance(law, MultiCategorical):
        return raw.reshape(*raw.shape[:-1], *law.shape)
    return raw


def raw_actions(law: ActionDistribution, stored: Tensor) -> Tensor:
    """Return the raw actions [N, ...] of stored ones, in any shape with rows first."""
    if isinstance(law, DiagonalGaussian):
        flat = stored.reshape(law.location.shape)
        if isinstance(law, SquashedGaussian):
            return flat.clamp(-_INSIDE, _INSIDE).atanh()
        return flat
    if isinstance(law, MultiCategorical):
        return stored.reshape(len(stored), int(np.prod(law.shape))).long()
    return stored.reshape(len(stored)).long()
