"""The real agent meets a bad number at each of the seven places: absent, counted, going on.

"Absent" is compared bit by bit after one more cycle, with weights, buffers and the optimizer's
moments. A bad log-ratio, loss or gradient takes its micro-batch with it, so the other run leaves
that micro-batch out of the minibatch. A step that spoils a parameter takes its minibatch, so the
other run never draws it.

A bad observation, reward or action takes one row, which cannot be cut out of T steps of N
environments. Two other runs stand for its absence: the environment gives the row weight 0, once
with the numbers that it would have had and once with quite different ones. A sum with weights adds
an exact 0 for such a row, so if the results are equal to the bit, nothing that the row holds has
reached the weights, neither through a loss nor through a statistic. The row is an episode of its
own, as rows before it in the same episode lose their future with it (see ``test_guard.py``).
"""

import functools
import json
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import KVWriter, Logger
from stable_baselines3.common.vec_env import DummyVecEnv
from torch import Tensor

import quantail.gradient
import quantail.learner
from quantail import DistributionalPPO
from quantail.flow import Minibatch
from quantail.nets.actors import DiagonalGaussian
from quantail.optim.guard import PLACES, Guard, NonFiniteError
from tests.catalogue import catalogue

N_ENVS, N_STEPS, CYCLES = 4, 16, 3
ROWS = N_ENVS * N_STEPS
MICRO = 7
"""Number of the bad micro-batch: the third of the second cycle's, where each cycle has four."""
STEP = 3
"""Number of the bad step of the optimizer: the first of the second cycle's."""
ROW = 20
"""Time of the bad row of environment 1: step 4 of the second cycle."""
VALUES = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
BY_ROW = ("observation", "reward", "action")
Numbers = range | tuple[int, ...]
"""Which of the counted things are bad."""


class Noise(gym.Env[Any, Any]):
    """Observations that no action changes, ends that no action changes; faults on request."""

    def __init__(self, number: int, place: str, value: float, rows: Numbers) -> None:
        self.observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float32)
        self.action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.place, self.value = place, value
        self.rows = rows if number == 1 else ()
        self.time = 0

    def reset(self, **given: Any) -> Any:
        super().reset(**given)
        self.seen = self._observe()
        return self.seen, {}

    def step(self, action: Any) -> Any:
        row, info = self.time, {}
        self.time += 1
        reward = float(np.sign(self.np_random.normal()) * action.sum())
        if row in self.rows:
            if self.place == "reward":
                reward = self.value
            if self.place in ("absent", "absent, other numbers"):
                info["sample_weight"] = 0.0
            if self.place == "absent, other numbers":
                reward = 250.0
        self.seen = self._observe()
        ends = row % 7 == 6 or row in (ROW - 1, ROW)
        return self.seen, reward, ends, row % 5 == 4, info

    def _observe(self) -> Any:
        seen = self.np_random.normal(size=3).astype(np.float32)
        if self.time in self.rows:
            if self.place == "observation":
                seen[1] = self.value
            if self.place == "absent, other numbers":
                seen[:] = -4.0
        return seen


class FailingAdam(torch.optim.Adam):
    """Writes a bad number into a parameter in some of its steps."""

    def __init__(self, parameters: Any, value: float, steps: Numbers, **given: Any) -> None:
        super().__init__(parameters, **given)
        self.value, self.bad_steps, self.taken = value, steps, 0

    def step(self, closure: Any = None) -> Any:
        super().step(closure)
        self.taken += 1
        if self.taken in self.bad_steps:
            self.param_groups[0]["params"][3].data.view(-1)[0] = self.value


class Told(KVWriter):
    """Keeps what a logger is told."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def write(self, key_values: dict[str, Any], key_excluded: Any, step: int = 0) -> None:
        self.rows.append(dict(key_values))


def agent(place: str = "", value: float = 0.0, bad: Numbers = (), **given: Any) -> Any:
    """Return an agent with memory and its logger; the faults of the environment are in it."""
    envs = DummyVecEnv([functools.partial(Noise, n, place, value, bad) for n in range(N_ENVS)])
    policy = {
        "net_arch": [8],
        "lstm_hidden_size": 8,
        "normalize_observations": False,
        "optimizer_class": FailingAdam,
        "optimizer_kwargs": {"value": value, "steps": bad if place == "parameter" else ()},
    }
    model = DistributionalPPO(
        "MlpLstmPolicy",
        envs,
        learning_rate=0.01,
        n_steps=N_STEPS,
        batch_size=32,
        microbatch_size=16,
        chunk_length=8,
        n_epochs=1,
        seed=0,
        device="cpu",
        policy_kwargs=policy,
        **given,
    )
    told = Told()
    model.set_logger(Logger(None, [told]))
    return model, told


def numbered(items: Any, change: Callable[[int, Any], Any]) -> Callable[..., Iterator[Any]]:
    """Return the generator function ``items`` with its things changed; None leaves one out.

    Things are numbered from 1 over all calls.
    """
    count = 0

    def changed(*given: Any) -> Iterator[Any]:
        nonlocal count
        for item in items(*given):
            count += 1
            made = change(count, item)
            if made is not None:
                yield made

    return changed


def spoil(patch: pytest.MonkeyPatch, model: Any, place: str, value: float, bad: Numbers) -> None:
    """Let a bad number arise at a place; the environment and the optimizer do so by themselves."""
    if place in ("log_ratio", "loss"):
        field = "log_probs" if place == "log_ratio" else "advantages"

        def bad_number(number: int, micro: Minibatch) -> Minibatch:
            if number not in bad:
                return micro
            rows = getattr(micro, field).clone()
            rows[2, 1] = value
            return replace(micro, **{field: rows})

        cut = numbered(quantail.gradient.microbatches, bad_number)
        patch.setattr(quantail.gradient, "microbatches", cut)
    elif place == "gradient":
        calls = 0

        def hook(gradient: Tensor) -> Tensor:
            nonlocal calls
            calls += 1
            return torch.full_like(gradient, value) if calls in bad else gradient

        model.policy.net.critics[1].head.linear.weight.register_hook(hook)
    elif place == "action":
        sample, steps = DiagonalGaussian.sample, 0

        def bad_sample(law: DiagonalGaussian, generator: Any = None) -> Tensor:
            nonlocal steps
            raw = sample(law, generator)
            if steps in bad:
                raw[1, 0] = value
            steps += 1
            return raw

        patch.setattr(DiagonalGaussian, "sample", bad_sample)


def leave_out(patch: pytest.MonkeyPatch, what: str) -> None:
    """Let the agent never see one micro-batch, or one minibatch."""
    if what == "micro-batch":
        cut = numbered(quantail.gradient.microbatches, lambda n, x: None if n == MICRO else x)
        patch.setattr(quantail.gradient, "microbatches", cut)
    elif what == "minibatch":
        cut = numbered(quantail.learner.minibatches, lambda n, x: None if n == STEP else x)
        patch.setattr(quantail.learner, "minibatches", cut)


def everything(model: Any) -> list[Tensor]:
    """Return weights, buffers and the optimizer's moments."""
    moments = model.policy.optimizer.state.values()
    return [
        *(value.clone() for value in model.policy.state_dict().values()),
        *(value.clone() for part in moments for value in part.values()),
    ]


@functools.cache
def without(what: str) -> list[Tensor]:
    """Return what a run without something ends with."""
    with pytest.MonkeyPatch.context() as patch:
        leave_out(patch, what)
        model, _ = agent(what, 0.0, (ROW,))
        model.learn(CYCLES * ROWS)
    return everything(model)


def at(place: str) -> tuple[int, ...]:
    """Return which one is bad: a row, a step of the optimizer or a micro-batch."""
    return (ROW if place in BY_ROW else STEP if place == "parameter" else MICRO,)


@catalogue("F03", "F49")
@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("place", PLACES)
def test_a_bad_number_is_as_if_absent(
    place: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, told = agent(place, VALUES[value], at(place))
    spoil(monkeypatch, model, place, VALUES[value], at(place))
    model.learn(CYCLES * ROWS)
    monkeypatch.undo()
    assert model.num_timesteps == CYCLES * ROWS
    absent = {"parameter": ("minibatch",), **dict.fromkeys(BY_ROW, ROW_ABSENT)}
    for other in absent.get(place, ("micro-batch",)):
        pairs = zip(everything(model), without(other), strict=True)
        assert all(torch.equal(one, reference) for one, reference in pairs), other
    # What the second cycle recorded is written with the third rollout.
    assert model.train_state.guard.counted() == {**dict.fromkeys(PLACES, 0), place: 1}
    found = {name: told.rows[2][f"error/{name}_nonfinite"] for name in PLACES}
    assert found == {**dict.fromkeys(PLACES, 0.0), place: 1.0}


ROW_ABSENT = ("absent", "absent, other numbers")


def test_the_runs_that_are_compared_differ_from_one_without_faults() -> None:
    """Or the comparisons above would show nothing."""
    ends = {what: without(what) for what in ("", "micro-batch", "minibatch", "absent")}
    for what, end in ends.items():
        same = [
            name
            for name, other in ends.items()
            if all(torch.equal(a, b) for a, b in zip(end, other, strict=True))
        ]
        assert same == [what]


NAMES = {
    "log_ratio": "log-ratio",
    "loss": "policy loss",
    "gradient": "gradient of critics.1.head.linear.weight",
    "parameter": r"[a-z_]+\.\S+",
    "observation": "observation of environment 1 at step 0 of the rollout",
    "reward": "reward of environment 1 at step 0 of the rollout",
    "action": "action of environment 1 at step 0 of the rollout",
}


@pytest.mark.parametrize("place", PLACES)
def test_twenty_in_a_row_stop_the_agent_with_a_report(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nineteen do not: after them the agent goes on to the end.

    Those of a rollout's rows begin in the rollout before, so the row goes on from one to the next.
    """
    path = tmp_path / "report.json"
    first = 4 if place in BY_ROW else 3
    cycles = 3 if place in BY_ROW else 12 if place == "parameter" else 7
    for length in (19, 20):
        bad = range(first, first + length)
        model, _ = agent(place, math.nan, bad, guard=Guard(limit=20, report_path=str(path)))
        spoil(monkeypatch, model, place, math.nan, bad)
        if length == 19:
            model.learn(cycles * ROWS)
            assert model.train_state.guard.counted()[place] == 19  # type: ignore[index]
            assert not path.exists()
        else:
            expected = f"20 times in a row.*Place: {place}; first bad: .*Report: "
            with pytest.raises(NonFiniteError, match=expected):
                model.learn(cycles * ROWS)
        monkeypatch.undo()
    report = json.loads(path.read_text())
    assert (report["place"], report["in_a_row"], report["counts"][place]) == (place, 20, 20)
    assert re.fullmatch(NAMES[place], report["first_bad"])
    assert f"Place: {place}; first bad: {report['first_bad']}" in report["sentence"]
    assert all(bool(torch.isfinite(p).all()) for p in model.policy.parameters())


class Starts(BaseCallback):
    """Keeps weights and buffers as they are when each rollout begins."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[list[Tensor]] = []

    def _on_step(self) -> bool:
        return True

    def _on_rollout_start(self) -> None:
        self.found.append([value.clone() for value in self.model.policy.state_dict().values()])


def test_the_agent_goes_back_to_the_last_healthy_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cycles 1 to 5, counted from 0, are bad throughout; the 20th bad micro-batch is in cycle 5."""
    model, told = agent(guard=Guard(limit=20, rollbacks=1))
    spoil(monkeypatch, model, "log_ratio", math.nan, range(5, 25))
    starts = Starts()
    model.learn(8 * ROWS, starts)

    def same(one: int, other: int) -> bool:
        pairs = zip(starts.found[one], starts.found[other], strict=True)
        return all(torch.equal(a, b) for a, b in pairs)

    assert model.train_state.guard.rollbacks == 1
    assert [row["error/rolled_back"] for row in told.rows[1:]] == [0, 0, 0, 0, 0, 1, 0]
    assert same(6, 1)
    assert not same(5, 1)  # the scale of returns had moved on
    assert not same(7, 6)
