"""Generalized advantage estimation, with termination and truncation kept apart.

Notation: ``d_t = terminated_t or truncated_t`` says that the episode ended with the action of row
t, and ``V'_t`` is the value of what followed it: of the final observation where the row is
truncated, of the next row otherwise.
"""

from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor

from quantail.errors import ConfigError, DataError


def next_values(
    values: Tensor, last: Tensor, truncated: Tensor, truncated_values: Tensor
) -> Tensor:
    """Return V'_t, the value of what followed each row; works for atoms with a trailing axis too.

    Args:
        values: [T, N] or [T, N, M], of the observation of each row.
        last: [N] or [N, M], of the observation after the last row.
        truncated: [T, N] bool.
        truncated_values: [n] or [n, M], of the final observations of the n truncated rows, in
            row-major order.

    Returns:
        The shape of ``values``. Where a row is terminated the entry is the value of the next
        episode's first observation, which every target leaves out.

    Raises:
        DataError: the number of truncated values is not the number of truncated rows.
    """
    count = int(truncated.sum())
    if truncated_values.shape[0] != count:
        raise DataError(
            f"truncated_values must have one row for each of the {count} truncated steps; had "
            f"{truncated_values.shape[0]}. Give the value of the final observation of every "
            "truncated step."
        )
    following = torch.cat([values[1:], last.unsqueeze(0)])
    if count:
        following[truncated] = truncated_values.to(following.dtype)
    return following


def gae(
    rewards: Tensor,
    values: Tensor,
    next_values: Tensor,
    terminated: Tensor,
    truncated: Tensor,
    *,
    gamma: float,
    lam: float,
) -> Tensor:
    """Return generalized advantages.

    δ_t = r_t + γ (1 - terminated_t) V'_t - V_t
    A_t = δ_t + γ λ (1 - d_t) A_{t+1},   A_T = 0

    A truncated row takes the value of its final observation, but the carry stops there: the next
    row belongs to another episode.

    Args:
        rewards: [T, N].
        values: [T, N], V_t.
        next_values: [T, N], V'_t as :func:`next_values` gives them.
        terminated: [T, N] bool.
        truncated: [T, N] bool.
        gamma: Discount, in (0, 1].
        lam: λ, in [0, 1].

    Returns:
        [T, N] in the dtype of ``values``; sums run in float64.

    Raises:
        ConfigError: ``gamma`` or ``lam`` is out of range.
        DataError: shapes differ, or an input holds a number that is not finite.

    References:
        Schulman et al. 2016, High-dimensional continuous control using GAE, eq. 16.
    """
    check_discount(gamma, lam)
    check_inputs(rewards, terminated, truncated, values=values, next_values=next_values)
    out = np.empty(values.shape, array(values).dtype)
    _gae_nb(
        array(rewards),
        array(values),
        array(next_values),
        array(terminated),
        array(terminated | truncated),
        float(gamma),
        float(lam),
        out,
    )
    return torch.from_numpy(out).to(values.device)


def lambda_returns(
    rewards: Tensor,
    next_values: Tensor,
    terminated: Tensor,
    truncated: Tensor,
    *,
    gamma: float,
    lam: float,
) -> Tensor:
    """Return scalar λ-returns, equal to GAE plus the value of the row.

    R_t = r_t + γ (1 - terminated_t) ((1 - λ) V'_t + λ R_{t+1}),
    with V'_t in place of R_{t+1} where the row is truncated or the last.

    As the target of a critic that learns a whole law this is too narrow: it replaces the random
    tail of the return by its mean. For independent rewards the spread shrinks by
    √((1 - γ²) / (1 - γ²λ²)), to 0.42 at γ = 0.99, λ = 0.95.

    Args:
        rewards: [T, N].
        next_values: [T, N], V'_t.
        terminated: [T, N] bool.
        truncated: [T, N] bool.
        gamma: Discount, in (0, 1].
        lam: λ, in [0, 1].

    Returns:
        [T, N] in the dtype of ``next_values``.

    Raises:
        ConfigError: ``gamma`` or ``lam`` is out of range.
        DataError: shapes differ, or an input holds a number that is not finite.
    """
    check_discount(gamma, lam)
    check_inputs(rewards, terminated, truncated, next_values=next_values)
    out = np.empty(next_values.shape, array(next_values).dtype)
    _lambda_returns_nb(
        array(rewards),
        array(next_values),
        array(terminated),
        array(truncated),
        float(gamma),
        float(lam),
        out,
    )
    return torch.from_numpy(out).to(next_values.device)


def check_discount(gamma: float, lam: float) -> None:
    """Raise :class:`ConfigError` unless 0 < γ <= 1 and 0 <= λ <= 1."""
    if not 0 < gamma <= 1:
        raise ConfigError(f"gamma must lie in (0, 1]; was {gamma}. Try 0.99.")
    if not 0 <= lam <= 1:
        raise ConfigError(f"gae_lambda must lie in [0, 1]; was {lam}. Try 0.95.")


def check_inputs(
    rewards: Tensor, terminated: Tensor, truncated: Tensor, **predictions: Tensor
) -> None:
    """Raise :class:`DataError` unless shapes [T, N, ...] agree and every number is finite."""
    flags = {"terminated": terminated, "truncated": truncated}
    for name, tensor in {**flags, **predictions}.items():
        if tensor.shape[:2] != rewards.shape or rewards.ndim != 2:
            raise DataError(
                f"{name} must lead with the shape [T, N] of rewards; shapes were "
                f"{tuple(tensor.shape)} and {tuple(rewards.shape)}."
            )
    for name, tensor in flags.items():
        if tensor.dtype != torch.bool:
            raise DataError(f"{name} must be bool; was {tensor.dtype}.")
    for name, tensor in {"rewards": rewards, **predictions}.items():
        finite = torch.isfinite(tensor)
        if not finite.all():
            t, n = (~finite).nonzero()[0, :2].tolist()
            raise DataError(
                f"{name} must be finite; {int((~finite).sum())} of {tensor.numel()} entries are "
                f"not, the first at step {t} of environment {n}. Check what the environment "
                "returned there, and whether training had already diverged."
            )


def array(tensor: Tensor) -> np.ndarray[Any, np.dtype[Any]]:
    """Return a contiguous numpy view or copy, outside the graph."""
    result: np.ndarray[Any, np.dtype[Any]] = tensor.detach().cpu().contiguous().numpy()
    return result


@njit(cache=True)
def _gae_nb(rewards, values, following, terminated, done, gamma, lam, out):  # type: ignore[no-untyped-def]
    steps, envs = rewards.shape
    carry = np.zeros(envs, np.float64)
    for t in range(steps - 1, -1, -1):
        for n in range(envs):
            bootstrap = 0.0 if terminated[t, n] else np.float64(following[t, n])
            delta = rewards[t, n] + gamma * bootstrap - values[t, n]
            carry[n] = delta + (0.0 if done[t, n] else gamma * lam * carry[n])
            out[t, n] = carry[n]


@njit(cache=True)
def _lambda_returns_nb(rewards, following, terminated, truncated, gamma, lam, out):  # type: ignore[no-untyped-def]
    steps, envs = rewards.shape
    carry = np.zeros(envs, np.float64)
    for t in range(steps - 1, -1, -1):
        for n in range(envs):
            if terminated[t, n]:
                carry[n] = 0.0
            elif truncated[t, n] or t == steps - 1:
                carry[n] = following[t, n]
            else:
                carry[n] = (1.0 - lam) * following[t, n] + lam * carry[n]
            carry[n] = rewards[t, n] + gamma * carry[n]
            out[t, n] = carry[n]
