"""SR(λ) atoms by following each atom forward from its row; one environment."""

from collections.abc import Sequence


def atom_target(
    rewards: Sequence[float],
    next_atoms: Sequence[Sequence[float]],
    terminated: Sequence[bool],
    truncated: Sequence[bool],
    keep: Sequence[Sequence[bool]],
    start: int,
    atom: int,
    gamma: float,
) -> float:
    """Sum discounted rewards until the episode ends or the draws stop; then take the atom there."""
    total, discount, t = 0.0, 1.0, start
    while True:
        total += discount * rewards[t]
        discount *= gamma
        if terminated[t]:
            return total
        if truncated[t] or t == len(rewards) - 1 or not keep[t][atom]:
            return total + discount * next_atoms[t][atom]
        t += 1
