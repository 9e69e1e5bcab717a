"""Training with validation: the hooks of one agent's training, and what they decide."""

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from quantail.diagnostics.schema import RunMetrics, ValidationMetrics, tagged
from quantail.experiment.collapse import PATIENCE, action_spread, action_words, collapse_message
from quantail.experiment.config import RunConfig
from quantail.experiment.folder import METRICS, RunFolder
from quantail.experiment.selection import Selection, Trial, keep_if_good
from quantail.experiment.tasks import Task, TrainingEnvironment, Tried
from quantail.flow import Rollout
from quantail.laws import ValueDistribution
from quantail.sb3.agent import DistributionalPPO
from quantail.sb3.hooks import train

_TAIL = 0.05


@dataclass(frozen=True, slots=True)
class Progress:
    """How far training is; what a display shows."""

    split: str
    step: int
    steps: int
    seconds: float
    reward: float
    cvar: float | None
    cost_scale: float
    score: float | None
    """Of the best agent so far."""
    shares: Mapping[str, float]
    """Of the time: collect, learn, validate."""


class Watcher(Protocol):
    """Who looks at a run: a display, or nobody."""

    def stage(self, text: str) -> None:
        """A new part of the run begins."""

    def progress(self, progress: Progress) -> None:
        """Training has moved on."""

    def message(self, text: str) -> None:
        """Something deserves a word."""

    def should_stop(self) -> bool:
        """Whether the user wants to stop."""


class Training:
    """The hooks of one training.

    Attributes:
        selection: The agents kept so far.
        tried: What all agents tried so far gave.
        was_stopped: Whether the user stopped it.
        first_step: Steps of the trainings before it in the same run.
    """

    def __init__(
        self,
        config: RunConfig,
        folder: RunFolder,
        task: Task,
        first_step: int,
        agent: DistributionalPPO,
        environment: TrainingEnvironment,
        watcher: Watcher,
    ) -> None:
        self.selection = Selection(config.metric)
        self.tried = Tried()
        self.was_stopped = False
        self.first_step = first_step
        self._config, self._folder, self._task = config, folder, task
        self._agent, self._environment, self._watcher = agent, environment, watcher
        self._cost_scale = 1.0
        self._constant_in_a_row = 0
        self._said_constant = False
        self._extra: dict[str, float] = {}
        self._clock = Stopwatch()

    def before_rollout(self, step: int) -> None:
        """Validate when it is time, then set the costs of the rollout to come."""
        self._clock.enter("validate")
        done = step * self._config.selection.validations // self._config.budget.steps
        if done > self.selection.n_tried:
            self.try_agent(step)
        ramp = self._config.cost_ramp
        passed = step / self._config.budget.steps
        self._cost_scale = min(1.0, passed / ramp) if ramp > 0.0 else 1.0
        self._environment.set_cost_scale(self._cost_scale)
        self._clock.enter("collect")

    def should_stop(self) -> bool:
        """Whether the user wants to stop."""
        self.was_stopped = self.was_stopped or self._watcher.should_stop()
        return self.was_stopped

    def after_rollout(self, step: int, rollout: Rollout) -> None:
        """Look at what the policy did."""
        self._clock.enter("learn")
        spread = action_spread(rollout)
        counts = spread.is_constant and self._cost_scale == 1.0
        self._constant_in_a_row = self._constant_in_a_row + 1 if counts else 0
        if self._constant_in_a_row == PATIENCE:
            words = action_words(spread.action, self._config.environment)
            ramp, ent_coef = self._config.cost_ramp, self._config.agent.ent_coef
            self._say(step, collapse_message(words, ramp, ent_coef))
        shares, seconds = self._clock.shares(), self._clock.total()
        metrics = RunMetrics(
            reward_mean=float(rollout.rewards.mean()),
            predicted_cvar=_predicted_cvar(rollout.values[0]),
            action_spread=spread.spread,
            constant_action=float(self._constant_in_a_row >= PATIENCE),
            cost_scale=self._cost_scale,
            steps_per_second=step / seconds if seconds > 0 else 0.0,
            collect_share=shares["collect"],
            learn_share=shares["learn"],
            validate_share=shares["validate"],
        )
        self._extra |= tagged(metrics)
        self._watcher.progress(
            Progress(
                split=self._task.name,
                step=min(step, self._config.budget.steps),
                steps=self._config.budget.steps,
                seconds=seconds,
                reward=metrics.reward_mean,
                cvar=metrics.predicted_cvar,
                cost_scale=self._cost_scale,
                score=self.selection.best.score if self.selection.kept else None,
                shares=shares,
            )
        )

    def on_metrics(self, step: int, row: Mapping[str, float]) -> None:
        """Append a line to the run's metrics; JSON has no NaN, so null stands for it."""
        numbers = {**row, **self._extra}
        self._extra = {}
        finite = {tag: value if math.isfinite(value) else None for tag, value in numbers.items()}
        self._folder.append(METRICS, {"step": self.first_step + step, **finite})

    def run(self) -> None:
        """Train to the end, or until the user stops it.

        The agent as it is at the end is tried too, and saved when it was stopped.
        """
        agent, budget = self._agent, self._config.budget
        train(agent, self._environment.env, budget.steps, self)
        step = agent.num_timesteps
        if self.was_stopped:
            agent.save(self._folder.path / f"checkpoints/{self._task.name}/stopped-{step:012d}.zip")
        elif self.selection.n_tried < self._config.selection.validations:
            self.try_agent(step)
            self.on_metrics(step, {})

    def try_agent(self, step: int) -> None:
        """Validate the agent as it is and keep it if it is among the best."""
        found = self._task.validate(self._agent)
        self.tried = self.tried.and_one(found)
        if found.constant is not None and self._cost_scale == 1.0 and not self._said_constant:
            self._said_constant = True
            self._say(step, found.constant.sentence(f"the validation on {self._task.name}"))
        metrics = ValidationMetrics(score=found.score, fraction_of_optimum=found.fraction)
        self._extra |= tagged(metrics)
        trial = Trial(step, found.score, f"checkpoints/{self._task.name}/{step:012d}.zip")
        keep = self._config.selection.keep
        self.selection = keep_if_good(self._folder, self.selection, self._agent, trial, keep)
        self._folder.set_status("running", self.first_step + step)

    def _say(self, step: int, text: str) -> None:
        self._folder.message(self.first_step + step, text)
        self._watcher.message(text)


class Stopwatch:
    """Adds up the time spent in each of a few activities, of which one goes on at a time."""

    def __init__(self) -> None:
        self._spent = {"collect": 0.0, "learn": 0.0, "validate": 0.0}
        self._current: str | None = None
        self._since = time.perf_counter()

    def enter(self, name: str) -> None:
        """End the activity that goes on and begin another."""
        now = time.perf_counter()
        if self._current is not None:
            self._spent[self._current] += now - self._since
        self._current, self._since = name, now

    def total(self) -> float:
        """Seconds of all activities that have ended."""
        return sum(self._spent.values())

    def shares(self) -> dict[str, float]:
        """Return each activity's share of the total; zeros before any has ended."""
        total = self.total()
        return {name: spent / total if total else 0.0 for name, spent in self._spent.items()}


def _predicted_cvar(values: ValueDistribution) -> float | None:
    """Return the mean CVaR over the last row of a rollout; None for a critic without a law."""
    last = values.rows(-1)
    tail = float(last.cvar(_TAIL).mean())
    return tail if math.isfinite(tail) else None
