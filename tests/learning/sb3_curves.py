"""Learning curves of our agent beside those of Stable-Baselines3's PPO, from one script.

``make verify`` trains all agents, keeps their curves in ``docs/learning/`` and writes
``docs/learning_curves.md``; ``python -m tests.learning.sb3_curves`` writes it again from them.

A curve has ten points: the mean return of the episodes that ended in each tenth of training. Its
area is the mean of its points.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env

from quantail import DistributionalPPO
from quantail.nets.critics import ScalarCritic
from tests.catalogue import ROOT

SEEDS: Final = range(100, 108)
POINTS: Final = 10
FOLDER: Final = ROOT / "docs" / "learning"
PAGE: Final = ROOT / "docs" / "learning_curves.md"

LEVEL: Final = 0.01
"""Two problems with two numbers each are tested at this level, so 4 % in all."""
AREA_MARGIN, FINAL_MARGIN = 0.1, 0.25
"""Largest difference that counts as none, as a share of the problem's range."""

Curves = NDArray[np.float64]
"""[seeds, POINTS]"""


@dataclass(frozen=True)
class Problem:
    """What to train on, and the settings that both agents get."""

    env_id: str
    n_envs: int
    steps: int
    settings: dict[str, Any]
    reach: float
    """From the return of chance to the best possible."""
    agents: tuple[str, ...] = ("PPO", "ours")
    """Names in :data:`AGENTS`."""


PROBLEMS: Final = {
    "cartpole": Problem(
        "CartPole-v1",
        8,
        30_720,
        {"n_steps": 128, "batch_size": 256, "learning_rate": 1e-3, "gamma": 0.98},
        480.0,
        ("PPO", "ours", "slow"),
    ),
    "pendulum": Problem(
        "Pendulum-v1",
        4,
        61_440,
        {"n_steps": 512, "batch_size": 128, "learning_rate": 1e-3, "gamma": 0.9},
        1_050.0,
    ),
}
SAME_ESTIMATOR: Final[dict[str, Any]] = {
    "critic": ScalarCritic(scale_rate=0.0),
    "twin": "off",
    "policy_kwargs": {"normalize_observations": False},
}


def slow(**settings: Any) -> Any:
    """Return our agent with a third of the learning rate: a fault that the comparison must see."""
    settings["learning_rate"] /= 3
    return DistributionalPPO(**settings, **SAME_ESTIMATOR)


AGENTS: Final[dict[str, Callable[..., Any]]] = {
    "PPO": PPO,
    "ours": partial(DistributionalPPO, **SAME_ESTIMATOR),
    "slow": slow,
}


class Returns(BaseCallback):
    """Collects when episodes ended and what they returned."""

    def _on_training_start(self) -> None:
        self.found: list[tuple[int, float]] = []

    def _on_step(self) -> bool:
        self.found += [
            (self.num_timesteps, float(info["episode"]["r"]))
            for info in self.locals["infos"]
            if "episode" in info
        ]
        return True


def curve(problem: Problem, agent: Callable[..., Any], seed: int) -> list[float]:
    """Train one agent; return its curve."""
    torch.set_num_threads(1)
    env = make_vec_env(problem.env_id, problem.n_envs, seed=seed)
    model = agent(policy="MlpPolicy", env=env, seed=seed, device="cpu", **problem.settings)
    returns = Returns()
    model.learn(problem.steps, callback=returns)
    ended, scores = np.array(returns.found).T
    part = np.minimum((ended - 1) * POINTS // problem.steps, POINTS - 1)
    return [float(scores[part == k].mean()) for k in range(POINTS)]


def train(name: str) -> dict[str, Curves]:
    """Train all agents on a problem with all seeds, and keep their curves in a file."""
    curves = {
        title: np.array([curve(PROBLEMS[name], AGENTS[title], seed) for seed in SEEDS])
        for title in PROBLEMS[name].agents
    }
    FOLDER.mkdir(exist_ok=True)
    rounded = {title: np.round(part, 2).tolist() for title, part in curves.items()}
    _file(name).write_text(json.dumps(rounded) + "\n")
    PAGE.write_text(page(), "utf-8")
    return curves


def read(name: str) -> dict[str, Curves]:
    """Return the curves that were kept."""
    kept = json.loads(_file(name).read_text())
    return {title: np.array(part) for title, part in kept.items()}


def _file(name: str) -> Path:
    return FOLDER / f"curves_{name}.json"


def p_value(first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
    """Return the share of all ways to deal the runs out whose means differ at least as much."""
    pooled, size = np.concatenate([first, second]), len(first)
    subsets = np.array(list(combinations(range(len(pooled)), size)))
    sums = pooled[subsets].sum(1)
    gaps = np.abs(sums / size - (pooled.sum() - sums) / len(second))
    return float(np.mean(gaps >= abs(first.mean() - second.mean()) * (1 - 1e-12)))


@dataclass(frozen=True)
class Difference:
    """Mean of the first minus mean of the second, with what is known of it."""

    mean: float
    low: float
    high: float
    p: float

    @classmethod
    def of(cls, first: NDArray[np.float64], second: NDArray[np.float64]) -> "Difference":
        """Compare two samples: Welch's 95 % interval and an exact permutation test."""
        mean, low, high = _welch(first, second)
        return cls(mean, low, high, p_value(first, second))

    def is_none(self, margin: float) -> bool:
        """Whether nothing was seen, and anything beyond the margin would have been."""
        return self.p > LEVEL and -margin < self.low and self.high < margin


def _welch(first: NDArray[np.float64], second: NDArray[np.float64]) -> tuple[float, float, float]:
    gap = float(first.mean() - second.mean())
    if not (np.ptp(first) or np.ptp(second)):  # no spread, no doubt
        return gap, gap, gap
    interval = stats.ttest_ind(first, second, equal_var=False).confidence_interval(0.95)
    return gap, float(interval.low), float(interval.high)


def compare(first: Curves, second: Curves) -> tuple[Difference, Difference]:
    """Return the differences of the areas and of the last points."""
    return (
        Difference.of(first.mean(1), second.mean(1)),
        Difference.of(first[:, -1], second[:, -1]),
    )


# --- the page -------------------------------------------------------------------------------------

_HEAD = f"""# Learning curves beside Stable-Baselines3's PPO

One script, with `PPO` replaced by `DistributionalPPO` and three arguments more,
`critic=ScalarCritic(scale_rate=0), twin="off", policy_kwargs={{"normalize_observations": False}}`;
everything else is equal, and neither agent has memory. A point of a curve is the mean return of the
training episodes that ended in that tenth of training; the table gives mean ± standard deviation
over seeds {SEEDS[0]} to {SEEDS[-1]}. The area of a curve is the mean of its points.

What counts as equal was fixed before the runs: for the area and for the last point, an exact
permutation test over all ways to deal the runs out to the agents finds p > {LEVEL}, and Welch's
95 % interval of the difference lies within ±{AREA_MARGIN:.0%} (area) or ±{FINAL_MARGIN:.0%} (last
point) of the way from chance to the best return. The number of steps was chosen by one run of
each agent with another seed, so that the curves are still rising. So that the test can fail,
CartPole is also learned by our agent with a third of the learning rate, which must be told apart.

That one update is the same to rounding, given the same weights and the same rollout, is shown by
`tests/sb3/test_equals_ppo.py`. What is left between the two: random numbers are drawn in another
order, and advantages are normalized over the rollout instead of over each minibatch.

Written by `make verify`, which trains them all, and again by `python -m tests.learning.sb3_curves`
from the curves that are kept in `docs/learning/`.
"""


def page() -> str:
    """Return the text of the page."""
    return "\n".join([_HEAD, *(_section(name) for name in PROBLEMS if _file(name).exists())])


def _section(name: str) -> str:
    problem, curves = PROBLEMS[name], read(name)
    settings = ", ".join(f"`{key}={value}`" for key, value in problem.settings.items())
    lines = [
        f"## {problem.env_id}",
        "",
        f"{problem.steps:,} steps, {problem.n_envs} environments, {settings}.",
        "",
        "| steps | PPO | ours | difference, 95 % interval | p |",
        "|---|---|---|---|---|",
    ]
    points = range(1, POINTS + 1)
    rows = {f"{problem.steps * k // POINTS:,}": (slice(None), k - 1) for k in points}
    columns = [{step: part[where] for step, where in rows.items()} for part in curves.values()]
    for column, part in zip(columns, curves.values(), strict=True):
        column["**area**"] = part.mean(1)
    theirs, ours, *control = columns
    for title in theirs:
        gap = Difference.of(ours[title], theirs[title])
        cells = [_spread(theirs[title]), _spread(ours[title]), _gap(gap), f"{gap.p:.2g}"]
        lines.append(f"| {title} | {' | '.join(cells)} |")
    lines += ["", _verdict(problem, *compare(curves["ours"], curves["PPO"]))]
    for slow_column in control:
        gap = Difference.of(slow_column["**area**"], theirs["**area**"])
        seen = "not told apart" if gap.is_none(AREA_MARGIN * problem.reach) else "told apart"
        lines += [
            "",
            f"With a third of the learning rate the area is {_spread(slow_column['**area**'])}, "
            f"{_gap(gap)} from PPO's, p = {gap.p:.2g}: {seen}.",
        ]
    return "\n".join([*lines, ""])


def _verdict(problem: Problem, area: Difference, final: Difference) -> str:
    margins = (AREA_MARGIN * problem.reach, FINAL_MARGIN * problem.reach)
    equal = area.is_none(margins[0]) and final.is_none(margins[1])
    return (
        f"Area {_gap(area)} against ±{margins[0]:.0f}, last point {_gap(final)} against "
        f"±{margins[1]:.0f}: {'equal' if equal else 'not equal'} by the criterion."
    )


def _spread(values: NDArray[np.float64]) -> str:
    return f"{values.mean():.1f} ± {values.std(ddof=1):.1f}"


def _gap(gap: Difference) -> str:
    return f"{gap.mean:+.1f} ({gap.low:.1f} to {gap.high:.1f})"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
