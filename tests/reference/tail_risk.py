"""Plain versions of the risk value and its advantages: loops, no torch."""

from collections.abc import Sequence


def shortfall(budget: float, atoms: Sequence[float], weights: Sequence[float]) -> float:
    return sum(w * max(budget - z, 0.0) for z, w in zip(atoms, weights, strict=True))


def tail_advantages(
    rewards: Sequence[float],
    budget: float,
    laws: Sequence[Sequence[float]],
    weights: Sequence[float],
    ends: Sequence[str],
    after: Sequence[Sequence[float]],
    alpha: float,
    gamma: float,
    lam: float,
    restarts: Sequence[float],
) -> list[float]:
    """Advantages of one environment.

    Args:
        rewards: [T].
        budget: Before the first row.
        laws: [T][M] atoms at each row.
        weights: [M].
        ends: [T] of "", "terminated" or "truncated".
        after: [T][M] atoms of what followed each row.
        alpha: Level.
        gamma: Discount.
        lam: Trace decay.
        restarts: Budgets of the episodes that start after an end, in order.
    """
    fresh = iter(restarts)
    budgets, deltas = [], []
    for t, reward in enumerate(rewards):
        budgets.append(budget)
        left = (budget - reward) / gamma
        now = -shortfall(budget, laws[t], weights) / alpha
        if ends[t] == "terminated":
            then = -max(left, 0.0) / alpha
        else:
            then = -shortfall(left, after[t], weights) / alpha
        deltas.append(gamma * then - now)
        budget = next(fresh) if ends[t] else left
    found, total = [0.0] * len(rewards), 0.0
    for t in reversed(range(len(rewards))):
        total = deltas[t] + (0.0 if ends[t] else gamma * lam * total)
        found[t] = total
    return found
