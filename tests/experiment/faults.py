"""A build with a planted fault: python -m tests.experiment.faults FAULT CONTROL runs the doctor."""

import dataclasses
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from quantail import cli, learner
from quantail.market.features import columns, returns
from quantail.nets.cores import lstm
from quantail.nets.critics.quantile import QuantileValues


def swap_the_sign_of_advantages() -> None:
    compute = learner.compute_targets

    def swapped(*arguments: Any) -> Any:
        targets = compute(*arguments)
        return dataclasses.replace(targets, advantages=-targets.advantages)

    learner.compute_targets = swapped


def detach_the_critic() -> None:
    loss = QuantileValues.loss
    QuantileValues.loss = lambda self, atoms, weights: loss(self, atoms, weights).detach()  # type: ignore[method-assign]


def leak_the_next_return() -> None:
    compute = returns._log_returns

    def leaking(bars: columns.Columns, **settings: Any) -> Any:
        return np.roll(compute(bars, **settings), -1, axis=0)

    returns._log_returns = leaking


def never_reset_the_memory() -> None:
    lstm.keep_mask = lambda starts, dtype: torch.ones_like(starts, dtype=dtype)


FAULTS: dict[str, tuple[Callable[[], None], str]] = {
    "advantages": (swap_the_sign_of_advantages, "oracle"),
    "critic": (detach_the_critic, "critic"),
    "leak": (leak_the_next_return, "leaks"),
    "reset": (never_reset_the_memory, "maze"),
}
"""Name -> what it breaks, and the control that must name it."""


if __name__ == "__main__":
    FAULTS[sys.argv[1]][0]()
    only = [part for name in sys.argv[2:] for part in ("--only", name)]
    sys.argv = ["quantail", "doctor", "--json", *only]
    cli.main()
