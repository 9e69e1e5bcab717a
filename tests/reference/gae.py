"""Advantages and λ-returns by their definitions: one environment, plain Python sums."""

from collections.abc import Sequence


def n_step_return(
    rewards: Sequence[float],
    next_values: Sequence[float],
    terminated: Sequence[bool],
    truncated: Sequence[bool],
    start: int,
    length: int,
    gamma: float,
) -> float:
    """Sum ``length`` discounted rewards from ``start`` on, then the value of what followed.

    Stops where the episode or the rollout ends.
    """
    total, discount = 0.0, 1.0
    for t in range(start, min(start + length, len(rewards))):
        total += discount * rewards[t]
        discount *= gamma
        if terminated[t]:
            return total
        if truncated[t] or t == len(rewards) - 1 or t == start + length - 1:
            return total + discount * next_values[t]
    raise AssertionError("a rollout has at least one step")


def lambda_returns(
    rewards: Sequence[float],
    next_values: Sequence[float],
    terminated: Sequence[bool],
    truncated: Sequence[bool],
    gamma: float,
    lam: float,
) -> list[float]:
    """(1 - λ) Σ_n λ^{n-1} G^(n), where the last n-step return before the end takes what is left."""
    result = []
    for start in range(len(rewards)):
        end = start
        while end < len(rewards) - 1 and not (terminated[end] or truncated[end]):
            end += 1
        longest = end - start + 1
        total = 0.0
        for n in range(1, longest + 1):
            share = lam ** (longest - 1) if n == longest else (1 - lam) * lam ** (n - 1)
            total += share * n_step_return(
                rewards, next_values, terminated, truncated, start, n, gamma
            )
        result.append(total)
    return result
