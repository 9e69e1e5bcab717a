"""Observation normalizer that lives in the policy.

Mean and variance are buffers: they travel with every save, clone and export. They change only when
:meth:`ObservationNormalizer.update` is called, between rollouts; acting and learning within one
cycle see the same statistics.
"""

from typing import cast

import torch
from gymnasium import spaces
from torch import Tensor, nn

from quantail.errors import DataError
from quantail.flow import Observation
from quantail.nets.observations import is_image

_EPSILON = 1e-8


class RunningMoments(nn.Module):
    """Exact mean and variance of all rows seen so far, element by element.

    Batches are merged by count (Chan et al. 1979):

    δ = m_b - m;  m ← m + δ n_b/(n + n_b);  M ← M + M_b + δ² n n_b/(n + n_b);  variance = M/n
    """

    mean: Tensor
    variance: Tensor
    count: Tensor
    shift: Tensor
    factor: Tensor

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(shape, dtype=torch.float64))
        self.register_buffer("variance", torch.ones(shape, dtype=torch.float64))
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))
        # What acting applies at every step, in its own precision: mean and 1/std.
        self.register_buffer("shift", torch.zeros(shape))
        self.register_buffer("factor", torch.ones(shape))

    @torch.no_grad()
    def update(self, batch: Tensor) -> None:
        """Merge [R, *shape] rows."""
        batch = batch.double()
        count = len(batch)
        if not count:
            return
        total = self.count + count
        delta = batch.mean(0) - self.mean
        spread = self.variance * self.count + batch.var(0, correction=0) * count
        spread += delta.square() * (self.count * count / total)
        self.mean += delta * (count / total)
        self.variance.copy_(spread / total)
        self.count.copy_(total)
        self.shift.copy_(self.mean)
        self.factor.copy_((self.variance + _EPSILON).rsqrt())

    def forward(self, x: Tensor) -> Tensor:
        """Return (x - mean)/std for rows [R, *shape]; the identity before the first update."""
        return (x - self.shift) * self.factor


class ObservationNormalizer(nn.Module):
    """Normalizes Box observations; images, choices and bits pass unchanged."""

    def __init__(self, space: spaces.Space[object], clip: float) -> None:
        super().__init__()
        self.clip = clip
        parts = space.spaces if isinstance(space, spaces.Dict) else {"": space}
        self.moments = nn.ModuleDict(
            {
                _module_name(key): RunningMoments(part.shape)
                for key, part in parts.items()
                if isinstance(part, spaces.Box) and not is_image(part)
            }
        )

    def update(self, observations: Observation) -> None:
        """Merge the observations of one rollout, [R, ...] or [R, ...] per key.

        Raises:
            DataError: an observation is not finite.
        """
        for key, value in _items(observations):
            if _module_name(key) not in self.moments:
                continue
            if not torch.isfinite(value).all():
                name = f"observations[{key!r}]" if key else "observations"
                raise DataError(
                    f"{name} must be finite; {int((~torch.isfinite(value)).sum())} of "
                    f"{value.numel()} numbers were not. Repair them in the environment."
                )
            self._moments(key).update(value)

    def forward(self, observations: Observation) -> Observation:
        """Return normalized, clipped observations; leading axis rows."""
        done = {key: self._normalized(key, value) for key, value in _items(observations)}
        return done if isinstance(observations, dict) else done[""]

    def _normalized(self, key: str, value: Tensor) -> Tensor:
        if _module_name(key) not in self.moments:
            return value
        normalized: Tensor = self._moments(key)(value)
        return normalized.clamp(-self.clip, self.clip)

    def _moments(self, key: str) -> RunningMoments:
        return cast(RunningMoments, self.moments[_module_name(key)])


def _items(observations: Observation) -> list[tuple[str, Tensor]]:
    return list(observations.items()) if isinstance(observations, dict) else [("", observations)]


def _module_name(key: str) -> str:
    # Module names may be neither empty nor dotted, nor an attribute of the container.
    return "key_" + key.replace("_", "__").replace(".", "_d")
