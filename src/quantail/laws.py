"""What policies and critics say, row by row: laws over actions and laws of returns.

Shape letters are those of :mod:`quantail.types`.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol, Self, TypeAlias

from torch import Generator, Tensor

Observation: TypeAlias = Tensor | dict[str, Tensor]
"""One tensor, or one per key of a Dict space; leading axes are [T, N] or [N]."""

CoreState: TypeAlias = tuple[Tensor, ...]
"""State of one recurrent core, environments on axis 1: (h, c) for an LSTM, () without memory."""

RowIndex: TypeAlias = Tensor | tuple[Tensor | slice | int, ...] | slice | int
"""What may stand in brackets to pick rows."""


class PolicyState(NamedTuple):
    """Recurrent state of a policy *before* the next observation is read."""

    actor: CoreState
    critic: CoreState


class ValueDistribution(Protocol):
    """A law of returns for each row, in raw units; what every critic kind returns.

    Modes of value clipping and measures of risk are written once, over these methods. ``[...]``
    stands for the leading axes of the rows.
    """

    @property
    def scale(self) -> Tensor:
        """Return scale of the critic, in raw units; a scalar outside the graph."""

    def mean(self) -> Tensor:
        """Expected return, [...]."""

    def std(self) -> Tensor:
        """Standard deviation of the return, [...]."""

    def quantile(self, tau: float) -> Tensor:
        """Return the ``tau``-quantile, [...]."""

    def cvar(self, alpha: float) -> Tensor:
        """Mean of the worst ``alpha`` share of returns, [...]."""

    def atoms(self, generator: Generator | None = None) -> tuple[Tensor, Tensor]:
        """Return atoms [..., M] and their weights [M], which sum to 1."""

    def affine(self, shift: Tensor, scale: Tensor) -> Self:
        """Return the law of ``shift + scale * Z``; both [...], ``scale`` > 0."""

    def clamp(self, center: Self, width: Tensor) -> Self:
        """Return this law with each part held within ``width`` of the same part of ``center``."""

    def loss(self, atoms: Tensor, weights: Tensor) -> Tensor:
        """Distance [...] to the target law with ``atoms`` [..., M] and ``weights`` [M].

        In units of the return scale, so that it does not grow with the rewards.
        """

    def detach(self) -> Self:
        """Return the same law outside the graph."""

    def rows(self, index: RowIndex) -> Self:
        """Index the leading axes."""

    @classmethod
    def stack(cls, laws: Sequence[Self]) -> Self:
        """Stack the rows of several laws along a new first axis."""

    @classmethod
    def join(cls, laws: Sequence[Self]) -> Self:
        """Join the rows of several laws along their first axis."""


class ActionDistribution(Protocol):
    """A policy's law over actions for each row. ``raw`` actions are stored as sampled."""

    def sample(self, generator: Generator | None = None) -> Tensor:
        """Draw a raw action, [..., A] (or [...] for a single choice)."""

    def mode(self) -> Tensor:
        """Return the most likely raw action."""

    def to_env(self, raw: Tensor) -> Tensor:
        """Map a raw action into the action space."""

    def log_prob(self, raw: Tensor) -> Tensor:
        """Log-density of a raw action, summed over action dimensions, [...]."""

    def entropy(self) -> Tensor:
        """One number per row, [...]."""

    def kl(self, new: Self) -> Tensor:
        """Analytic KL(self || new), [...]."""

    def detach(self) -> Self:
        """Return the same law outside the graph."""

    def rows(self, index: RowIndex) -> Self:
        """Index the leading axes."""

    @classmethod
    def stack(cls, laws: Sequence[Self]) -> Self:
        """Stack the rows of several laws along a new first axis."""
