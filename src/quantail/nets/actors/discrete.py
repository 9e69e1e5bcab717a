"""Laws over choices: one, several side by side, or bits; choices may be masked."""

from dataclasses import dataclass
from typing import ClassVar, Self

import torch
from torch import Generator, Tensor

from quantail.errors import DataError
from quantail.nets.rows import RowLaw

# Finite, so that 0 * log 0 is 0 in entropies and divergences; its exponential is exactly 0.
_FORBIDDEN = -1e8


@dataclass(frozen=True, slots=True)
class Categorical(RowLaw):
    """One choice among C."""

    log_probs: Tensor
    """[..., C], normalized."""
    start: int = 0
    """What the environment calls the first choice."""

    ROW_FIELDS: ClassVar[tuple[str, ...]] = ("log_probs",)

    def sample(self, generator: Generator | None = None) -> Tensor:
        """Draw a choice, [...]."""
        return _drawn(self.log_probs, generator)

    def mode(self) -> Tensor:
        """Return the most likely choice, [...]."""
        return self.log_probs.argmax(-1)

    def to_env(self, raw: Tensor) -> Tensor:
        """Return the environment's name of the choice, [...]."""
        return raw + self.start

    def log_prob(self, raw: Tensor) -> Tensor:
        """Log-probability of the choice, [...]."""
        return _chosen(self.log_probs, raw)

    def entropy(self) -> Tensor:
        """-Σ p log p, [...]."""
        return _entropy(self.log_probs)

    def kl(self, new: Self) -> Tensor:
        """KL(self || new), [...]."""
        return _kl(self.log_probs, new.log_probs)


@dataclass(frozen=True, slots=True)
class MultiCategorical(RowLaw):
    """Independent choices side by side, padded to the same number of options; bits have two."""

    log_probs: Tensor
    """[..., A, C], normalized over the options of each choice; padding is forbidden."""
    starts: Tensor
    """[A], what the environment calls the first option of each choice."""
    shape: tuple[int, ...]
    """Of one action of the environment."""

    ROW_FIELDS: ClassVar[tuple[str, ...]] = ("log_probs",)

    def sample(self, generator: Generator | None = None) -> Tensor:
        """Draw all choices, [..., A]."""
        return _drawn(self.log_probs, generator)

    def mode(self) -> Tensor:
        """Return the most likely options, [..., A]."""
        return self.log_probs.argmax(-1)

    def to_env(self, raw: Tensor) -> Tensor:
        """Return the environment's names of the options, [..., *shape]."""
        return (raw + self.starts).reshape(*raw.shape[:-1], *self.shape)

    def log_prob(self, raw: Tensor) -> Tensor:
        """Log-probability of all choices together, [...]."""
        return _chosen(self.log_probs, raw).sum(-1)

    def entropy(self) -> Tensor:
        """Sum of the entropies of the choices, [...]."""
        return _entropy(self.log_probs).sum(-1)

    def kl(self, new: Self) -> Tensor:
        """KL(self || new), summed over the choices, [...]."""
        return _kl(self.log_probs, new.log_probs).sum(-1)


def masked_log_softmax(logits: Tensor, mask: Tensor | None) -> Tensor:
    """Return normalized log-probabilities; forbidden options have probability exactly 0.

    Args:
        logits: [..., C]
        mask: [..., C] bool, True where the option is allowed; None allows all.

    Raises:
        DataError: a row allows nothing, or the shapes differ.
    """
    if mask is None:
        return logits.log_softmax(-1)
    if mask.shape != logits.shape:
        raise DataError(
            f"action_masks must have the shape {tuple(logits.shape)} of the options; was "
            f"{tuple(mask.shape)}."
        )
    empty = ~mask.any(-1)
    if bool(empty.any()):
        first = tuple(empty.nonzero()[0].tolist())
        raise DataError(
            f"action_masks must allow at least one option in every row; row {first} allows none "
            f"({int(empty.sum())} such rows). Let the environment allow a neutral action."
        )
    return logits.masked_fill(~mask, _FORBIDDEN).log_softmax(-1)


def padded(logits: Tensor, allowed: Tensor) -> Tensor:
    """Spread [..., sum of sizes] over [..., A, C], padding where ``allowed`` [A, C] is False."""
    full = logits.new_full((*logits.shape[:-1], *allowed.shape), _FORBIDDEN)
    full[..., allowed] = logits
    return full


def _drawn(log_probs: Tensor, generator: Generator | None) -> Tensor:
    # The least of independent exponentials with rates p_k falls on k with probability p_k.
    clocks = torch.empty_like(log_probs).exponential_(generator=generator)
    return (log_probs.detach().exp() / clocks).argmax(-1)


def _chosen(log_probs: Tensor, choice: Tensor) -> Tensor:
    return log_probs.gather(-1, choice.long().unsqueeze(-1)).squeeze(-1)


def _entropy(log_probs: Tensor) -> Tensor:
    return -(log_probs.exp() * log_probs).sum(-1)


def _kl(old: Tensor, new: Tensor) -> Tensor:
    return (old.exp() * (old - new)).sum(-1)
