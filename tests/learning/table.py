"""Writes ``docs/learning.md``: what the agent learns on problems with known scores.

``python -m tests.learning.table [PROBLEM ...]`` makes the runs that are missing (of all problems,
or of those named), one line in ``docs/learning/runs.jsonl`` as each finishes, and then the page;
``python -m tests.learning.table page`` writes the page of the runs there are. A run made with other
settings than today's does not count; a run stopped half-way is made anew.
"""

import hashlib
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

from scipy import stats

from quantail.nets.critics import CategoricalCritic, QuantileCritic
from tests.catalogue import ROOT
from tests.learning.control import PROBLEMS, score
from tests.learning.test_critic_law import CVAR, DEVIATION, Critic, distance, learn

RUNS = ROOT / "docs" / "learning" / "runs.jsonl"
SEEDS = range(5)
CRITICS: dict[str, Critic] = {
    "32 quantiles (the default)": QuantileCritic(),
    "32 quantiles, tail levels for 0.05": QuantileCritic(levels="tail", tail_alpha=0.05),
    "64 quantiles": QuantileCritic(n_quantiles=64),
    "64 quantiles, tail levels for 0.05": QuantileCritic(
        n_quantiles=64, levels="tail", tail_alpha=0.05
    ),
    "51 atoms (the default)": CategoricalCritic(),
    "101 atoms": CategoricalCritic(n_atoms=101),
}


@dataclass(frozen=True)
class Run:
    """One finished run."""

    problem: str
    seed: int
    score: float
    cpu_seconds: float
    commit: str
    """Of the code; a ``+`` behind it says that the code was changed."""
    date: str
    settings: str
    """Digest of the problem's settings."""


def settings_of(name: str) -> str:
    """Return a digest of everything that is set for a problem."""
    problem = PROBLEMS[name]
    said = [f"{key}={value!r}" for key, value in sorted(problem.agent.items())]
    said += [problem.title, str(problem.n_envs), str(problem.steps), problem.policy]
    said += [problem.kind.__name__, str(problem.episodes)]
    return hashlib.sha256("\n".join(said).encode()).hexdigest()[:8]


def make_run(name: str, seed: int) -> Run:
    """Train and score one agent, and keep the result."""
    before = time.process_time()
    result = score(name, seed)
    run = Run(
        problem=name,
        seed=seed,
        score=round(result, 3),
        cpu_seconds=round(time.process_time() - before, 1),
        commit=_commit(),
        date=datetime.now(UTC).date().isoformat(),
        settings=settings_of(name),
    )
    RUNS.parent.mkdir(exist_ok=True)
    with RUNS.open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(run)) + "\n")
    return run


def known_runs() -> dict[tuple[str, int], Run]:
    """Return the latest run of each problem and seed that was made with today's settings."""
    if not RUNS.exists():
        return {}
    runs = [Run(**json.loads(line)) for line in RUNS.read_text("utf-8").splitlines()]
    return {
        (run.problem, run.seed): run
        for run in runs
        if run.problem in PROBLEMS and run.settings == settings_of(run.problem)
    }


def difference(ours: list[float], theirs: list[float]) -> tuple[float, float, float]:
    """Return the difference of the means and its 95 % interval, by Welch's t."""
    interval = stats.ttest_ind(ours, theirs, equal_var=False).confidence_interval(0.95)
    return statistics.mean(ours) - statistics.mean(theirs), interval.low, interval.high


def page(known: dict[tuple[str, int], Run]) -> str:
    """Return the text of the page."""
    lines = [
        "# What the agent learns",
        "",
        "Mean return of fresh episodes, acting deterministically, after training on one thread.",
        "Written by `make verify`; `python -m tests.learning.table` makes only the runs that are",
        "missing. The settings are in `tests/learning/control.py`, every run with its commit in",
        "`docs/learning/runs.jsonl`.",
        "",
        "| problem | steps | seeds 0 to 4 | mean | asked for | CPU s a run |",
        "|---|---|---|---|---|---|",
        *_rows(known),
        "",
        *_comparison(known),
    ]
    if known:
        dates = sorted({run.date for run in known.values()})
        commits = sorted({run.commit for run in known.values()})
        lines += [f"Runs of {' to '.join({dates[0]: 0, dates[-1]: 0})}, at {', '.join(commits)}."]
        lines += [""]
    return "\n".join([*lines, *_laws(), ""])


def _rows(known: dict[tuple[str, int], Run]) -> Iterator[str]:
    for name, problem in PROBLEMS.items():
        runs = [known.get((name, seed)) for seed in SEEDS]
        made = [run for run in runs if run is not None]
        each = ", ".join("not run" if run is None else f"{run.score:g}" for run in runs)
        mean = f"{statistics.mean(run.score for run in made):.4g}" if made else ""
        cost = f"{statistics.mean(run.cpu_seconds for run in made):.0f}" if made else ""
        steps = f"{problem.steps:,}"
        yield f"| {problem.title} | {steps} | {each} | {mean} | {problem.asked} | {cost} |"


def _comparison(known: dict[tuple[str, int], Run]) -> Iterator[str]:
    ours, theirs = (
        [known[name, seed].score for seed in SEEDS if (name, seed) in known]
        for name in ("lunar_lander", "lunar_lander_sb3")
    )
    if len(ours) == len(theirs) == len(SEEDS):
        mean, low, high = difference(ours, theirs)
        yield f"LunarLander, ours less SB3's PPO: {mean:+.1f}, 95 % interval {low:+.1f} to"
        yield f"{high:+.1f} (Welch). Not worse means that this interval does not lie below zero."
        yield ""


def _laws() -> Iterator[str]:
    yield "## The law of returns"
    yield ""
    yield "One state with rewards N(0, 1) for ever, γ = 0.95, λ = 0.9: the law that a critic has"
    yield "learned from its own bootstrapped targets, against the true one. Asked for: standard"
    yield "deviation within 0.97 to 1.02 of the true one, distance W1 at most 0.03 true deviations,"
    yield "CVaR at 0.05 within 4 %. Made anew whenever this page is written."
    yield ""
    yield "| critic | target | std, learned / true | W1 / std | CVaR, learned / true |"
    yield "|---|---|---|---|---|"
    for title, critic in CRITICS.items():
        yield f"| {title} | SR(λ) | {_law(critic, scalar_target=False)} |"
    title = "64 quantiles, tail levels for 0.05"
    yield f"| {title} | scalar λ-return | {_law(CRITICS[title], scalar_target=True)} |"
    yield ""
    yield "A staircase of 32 steps cannot come nearer than 0.045 to a normal law, one of 64 than"
    yield "0.024. Scalar targets leave out the spread of what follows after 1 / (1 - λ) steps:"
    yield "their law is too narrow by √((1 - γ²) / (1 - γ²λ²)) = 0.60."


def _law(critic: Critic, *, scalar_target: bool) -> str:
    law = learn(critic, scalar_target=scalar_target)
    spread, tail = float(law.std()) / DEVIATION, float(law.cvar(0.05)) / CVAR
    return f"{spread:.3f} | {distance(law):.3f} | {tail:.3f}"


def _commit() -> str:
    def git(*words: str) -> str:
        return subprocess.run(
            ["git", *words], cwd=ROOT, check=True, capture_output=True, text=True
        ).stdout.strip()

    changed = git("status", "--porcelain", "--", "src", "tests/learning")
    return git("rev-parse", "--short", "HEAD") + ("+" if changed else "")


def main(names: list[str]) -> None:
    """Make the missing runs and write the page."""
    wanted = [] if names == ["page"] else names or list(PROBLEMS)
    for name in wanted:
        for seed in SEEDS:
            if (name, seed) not in known_runs():
                print(make_run(name, seed), flush=True)  # noqa: T201
    (ROOT / "docs" / "learning.md").write_text(page(known_runs()), "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
