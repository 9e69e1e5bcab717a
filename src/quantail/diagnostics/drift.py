"""How far the statistics of a normalizer moved between two moments."""

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor


class Moments(NamedTuple):
    """Mean and standard deviation of every number in an observation, flat."""

    mean: Tensor
    """[F]"""
    std: Tensor
    """[F]"""


def moments(state: Mapping[str, Tensor] | None) -> Moments | None:
    """Return the moments in a normalizer's ``state_dict``; None without any."""
    if not state:
        return None
    means = [part.flatten() for name, part in state.items() if name.endswith("mean")]
    variances = [part.flatten() for name, part in state.items() if name.endswith("variance")]
    if not means:
        return None
    return Moments(torch.cat(means), torch.cat(variances).sqrt())


def drift(before: Moments | None, after: Moments | None) -> tuple[float, float] | None:
    """Return how far mean and deviation moved, the mean over all numbers; None without any.

    mean drift = mean |m' - m| / s,   deviation drift = mean |log(s' / s)|

    A shift of all observations by one deviation, fully learned, gives a mean drift of 1.
    """
    if before is None or after is None:
        return None
    least = torch.finfo(torch.float32).eps
    scale, other = before.std.clamp(min=least), after.std.clamp(min=least)
    mean = ((after.mean - before.mean).abs() / scale).mean()
    return float(mean), float((other / scale).log().abs().mean())
