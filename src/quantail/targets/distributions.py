"""SR(λ): atoms whose law is the λ-mixture of n-step distributional Bellman targets."""

import numpy as np
import torch
from numba import njit
from torch import Generator, Tensor

from quantail.targets.advantages import array, check_discount, check_inputs


def sr_lambda(
    rewards: Tensor,
    next_atoms: Tensor,
    terminated: Tensor,
    truncated: Tensor,
    *,
    gamma: float,
    lam: float,
    generator: Generator,
) -> Tensor:
    """Return target atoms for a critic that learns the law of returns.

    Backward in t, for each atom j:

    Y_t[j] = r_t + γ (1 - terminated_t) B_t[j]
    B_t[j] = Y_{t+1}[j] with probability λ, else q'_t[j]
    B_t[j] = q'_t[j] where the row is truncated or the last

    Each atom is a draw from (1 - λ) Σ_n λ^{n-1} (n-step target), so its mean over the draws is the
    scalar λ-return, and the law has the spread that a scalar target loses. An atom keeps its index,
    hence its weight. A terminal reward is passed on by λ like any other.

    Args:
        rewards: [T, N].
        next_atoms: [T, N, M], q'_t: atoms of what followed each row
            (:func:`~quantail.targets.advantages.next_values`).
        terminated: [T, N] bool.
        truncated: [T, N] bool.
        gamma: Discount, in (0, 1].
        lam: λ, in [0, 1].
        generator: Draws which atoms are kept (:func:`stratified_keep`).

    Returns:
        [T, N, M] in the dtype of ``next_atoms``.

    Raises:
        ConfigError: ``gamma`` or ``lam`` is out of range.
        DataError: shapes differ, or an input holds a number that is not finite.

    References:
        Nam et al. 2021, GMAC: a distributional perspective on actor-critic, section 3.2.
    """
    check_discount(gamma, lam)
    steps, envs, atoms = next_atoms.shape
    keep = stratified_keep((steps, envs, atoms), lam, generator)
    return atom_returns(rewards, next_atoms, terminated, truncated, keep, gamma=gamma)


def atom_returns(
    rewards: Tensor,
    next_atoms: Tensor,
    terminated: Tensor,
    truncated: Tensor,
    keep: Tensor,
    *,
    gamma: float,
) -> Tensor:
    """Return the atoms of :func:`sr_lambda` for given draws.

    Args:
        rewards: [T, N].
        next_atoms: [T, N, M].
        terminated: [T, N] bool.
        truncated: [T, N] bool.
        keep: [T, N, M] bool: row t takes Y_{t+1}[j] where true, q'_t[j] where false.
        gamma: Discount, in (0, 1].

    Returns:
        [T, N, M].

    Raises:
        DataError: shapes differ, or an input holds a number that is not finite.
    """
    check_inputs(rewards, terminated, truncated, next_atoms=next_atoms)
    out = np.empty(next_atoms.shape, array(next_atoms).dtype)
    _atom_returns_nb(
        array(rewards),
        array(next_atoms),
        array(terminated),
        array(truncated),
        array(keep),
        float(gamma),
        out,
    )
    return torch.from_numpy(out).to(next_atoms.device)


def stratified_keep(shape: tuple[int, int, int], lam: float, generator: Generator) -> Tensor:
    """Draw, for each (t, n), a uniformly random subset of the M atoms of size λM.

    Where λM is no integer, its rounding is random with the right mean, so each atom is kept with
    probability exactly λ. Against independent draws this has the same marginals and less noise.

    Args:
        shape: T, N, M.
        lam: λ, in [0, 1].
        generator: Source of the one seed from which all draws follow.

    Returns:
        [T, N, M] bool.
    """
    seed = int(torch.randint(2**62, (), generator=generator, device=generator.device))
    keep = np.empty(shape, np.bool_)
    _stratified_keep_nb(np.random.Generator(np.random.PCG64(seed)), float(lam), keep)
    return torch.from_numpy(keep)


@njit(cache=True)
def _atom_returns_nb(rewards, following, terminated, truncated, keep, gamma, out):  # type: ignore[no-untyped-def]
    steps, envs, atoms = following.shape
    carry = np.zeros((envs, atoms), np.float64)
    for t in range(steps - 1, -1, -1):
        for n in range(envs):
            if terminated[t, n]:
                carry[n, :] = rewards[t, n]
            elif truncated[t, n] or t == steps - 1:
                for j in range(atoms):
                    carry[n, j] = rewards[t, n] + gamma * following[t, n, j]
            else:
                for j in range(atoms):
                    bootstrap = carry[n, j] if keep[t, n, j] else np.float64(following[t, n, j])
                    carry[n, j] = rewards[t, n] + gamma * bootstrap
            for j in range(atoms):
                out[t, n, j] = carry[n, j]


@njit(cache=True)
def _stratified_keep_nb(rng, lam, keep):  # type: ignore[no-untyped-def]
    steps, envs, atoms = keep.shape
    whole = int(np.floor(lam * atoms))
    part = lam * atoms - whole
    # Any permutation may start the shuffle: its first k entries after k swaps are a uniform subset.
    order = np.arange(atoms)
    for t in range(steps):
        for n in range(envs):
            kept = whole + (1 if rng.random() < part else 0)
            few = min(kept, atoms - kept)
            keep[t, n, :] = few != kept
            for i in range(few):
                j = i + int(rng.random() * (atoms - i))
                order[i], order[j] = order[j], order[i]
                keep[t, n, order[i]] = few == kept
