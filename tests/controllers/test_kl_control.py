"""The KL controller: when the actor stops, how epochs recover, no windup of the penalty."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from torch.distributions import Normal, kl_divergence

from quantail.errors import ConfigError
from quantail.gradient import distance, gradient_step
from quantail.learner import update
from quantail.nets.cores import NoCoreConfig
from quantail.optim.groups import set_learning_rates
from quantail.optim.kl_control import (
    EpochFactor,
    KlControl,
    KlLearningRate,
    KlPenalty,
    KlState,
    KlStop,
    beta_now,
    epochs_now,
    judge,
    step,
)
from quantail.rollout.sequences import minibatches
from quantail.state import TrainState
from quantail.targets.compute import compute_targets
from tests.catalogue import catalogue
from tests.learner.agents import NOW, acted, settings, small
from tests.learner.test_term_gradients import whole


def test_one_minibatch_far_away_stops_at_once() -> None:
    rule = KlStop(factor=1.5)
    assert judge(rule, 0.02, [0.01, 0.0301], 0) == "absolute"
    assert judge(rule, 0.02, [0.01, 0.0299], 0) == ""


@catalogue("X44")
def test_without_the_switch_nothing_stops() -> None:
    assert judge(None, 0.02, [100.0, 100.0], 2) == ""
    assert judge(KlStop(factor=None, consecutive=3), 0.02, [100.0, 100.0], 2) == ""


def test_some_in_a_row_stop() -> None:
    rule = KlStop(factor=None, consecutive=2)
    assert judge(rule, 0.02, [0.03, 0.01, 0.03], 0) == ""
    assert judge(rule, 0.02, [0.03, 0.03], 0) == "consecutive"


def test_a_share_of_an_epoch_stops_at_its_end_only() -> None:
    rule = KlStop(factor=None, fraction=0.5)
    seen = [0.03, 0.03, 0.01, 0.01, 0.03, 0.03]
    assert judge(rule, 0.02, seen, 0) == ""
    assert judge(rule, 0.02, seen, 4) == "fraction"
    assert judge(rule, 0.02, [0.03, 0.03, 0.01, 0.01, 0.01, 0.03], 4) == ""


@catalogue("X43")
def test_the_number_of_epochs_recovers_after_calm_cycles() -> None:
    control = KlControl(epochs=EpochFactor(decay=0.5, recovery=1.5))
    state, seen = KlState(), []
    for stopped in [True] * 5 + [False] * 8:
        state, _ = step(control, state, 0.02, 0.01, stopped, 10)
        seen.append(epochs_now(control, state, 10))
    assert seen[:5] == [5, 2, 1, 1, 1]
    assert seen[-1] == 10
    assert seen[5:] == sorted(seen[5:])


def test_the_rate_follows_the_kl_within_its_bounds() -> None:
    control = KlControl(learning_rate=KlLearningRate(change=2.0, least=0.1, greatest=2.0))
    state, factors = KlState(), []
    for kl in [0.05, 0.05, 0.05, 0.05, 0.02, 0.001, 0.001, 0.001, 0.001, 0.001]:
        state, _ = step(control, state, 0.02, kl, False, 10)
        factors.append(state.rate_factor)
    assert factors == pytest.approx([0.5, 0.25, 0.125, 0.1, 0.1, 0.2, 0.4, 0.8, 1.6, 2.0])


def test_a_stopped_cycle_lowers_the_rate_whatever_its_kl() -> None:
    control = KlControl(learning_rate=KlLearningRate(change=2.0))
    state, _ = step(control, KlState(), 0.02, 0.015, True, 10)
    assert state.rate_factor == 0.5


errors = st.lists(st.floats(0.0, 20.0), min_size=1, max_size=60)
penalties = st.builds(
    lambda low, width, share, kp, ki, kd: KlPenalty(
        least=low, greatest=low + width, initial=low + share * width, kp=kp, ki=ki, kd=kd
    ),
    st.floats(0, 1),
    st.floats(0.01, 2),
    st.floats(0, 1),
    st.floats(0.001, 2),
    st.one_of(st.just(0.0), st.floats(0.001, 1)),
    st.floats(0, 2),
)


@hypothesis_settings(max_examples=1000, deadline=None)
@given(penalty=penalties, history=errors)
@example(penalty=KlPenalty(initial=1.0, kp=0.5, ki=1.0, kd=0.125), history=[1.0])
def test_the_penalty_never_winds_up(penalty: KlPenalty, history: list[float]) -> None:
    """Bounds always hold, and after any time at a bound one step away from it counts in full."""
    control, state = KlControl(stop=None, penalty=penalty), KlState()
    for relative in history:
        summed, before = state.integral, state.previous_error
        state, terms = step(control, state, 0.02, 0.02 * relative, False, 10)
        assert terms is not None
        error = relative - 1
        others = penalty.initial + penalty.kp * error
        others += penalty.kd * (0.0 if before is None else error - before)
        if penalty.ki > 0 and error > 0:  # no more is summed up than takes β to its bound
            assert state.integral <= max(summed, (penalty.greatest - others) / penalty.ki) + 1e-9
        assert penalty.least <= beta_now(control, state) <= penalty.greatest
        if penalty.ki == 0:
            assert state.integral == 0
        else:
            assert abs(state.integral) <= (penalty.greatest - penalty.least) / penalty.ki + 1e-9
    # However long the KL is far too high, the way back is the same. An error of 19 fills the
    # widest sum that ki = 0.005 allows, 400, in 22 cycles.
    for _ in range(25):
        state, _ = step(control, state, 0.02, 0.4, False, 10)
    short, long = state, state
    for _ in range(25):
        long, _ = step(control, long, 0.02, 0.4, False, 10)
    near = [step(control, start, 0.02, 0.04, False, 10)[0] for start in (short, long)]
    ways = [step(control, start, 0.02, 0.01, False, 10)[0].beta for start in near]
    if penalty.ki == 0 or penalty.ki >= 0.005:
        assert ways[0] == pytest.approx(ways[1])


def test_the_penalty_by_hand() -> None:
    """e = 1: 0.2 + 0.2 + 0.05; then e = -0.5, so e sums to 0.5 and fell by 1.5."""
    penalty = KlPenalty(initial=0.2, kp=0.2, ki=0.05, kd=0.05)
    control, state = KlControl(stop=None, penalty=penalty), KlState()
    assert beta_now(control, state) == 0.2
    state, _ = step(control, state, 0.02, 0.04, False, 10)
    assert state.beta == pytest.approx(0.45)
    state, terms = step(control, state, 0.02, 0.01, False, 10)
    assert terms is not None
    assert (terms.error, terms.proportional) == pytest.approx((-0.5, -0.1))
    assert (terms.integral, terms.derivative) == pytest.approx((0.025, -0.075))
    assert state.beta == pytest.approx(0.2 - 0.1 + 0.025 - 0.075)


def test_at_a_bound_the_sum_stands_still() -> None:
    penalty = KlPenalty(initial=0.2, greatest=0.3, kp=0.0, ki=0.1)
    control, state = KlControl(stop=None, penalty=penalty), KlState()
    sums = []
    for relative in (3.0, 3.0, 3.0, 3.0, 0.5):
        state, _ = step(control, state, 1.0, relative, False, 10)
        sums.append(state.integral)
    # The bound of 0.3 is reached at a sum of 1, far from the most that the sum may be.
    assert sums == pytest.approx([1.0, 1.0, 1.0, 1.0, 0.5])
    assert state.beta == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: KlStop(factor=None), "would never stop"),
        (lambda: KlControl(stop=None), "has no effect; set one of them"),
        (lambda: KlControl(stop=None, epochs=EpochFactor(), penalty=KlPenalty()), "epochs has no"),
        (lambda: KlPenalty(initial=0, kp=0, ki=0, kd=0), "has no effect; leave it out"),
        (lambda: KlPenalty(initial=2.0), r"initial must lie in .* was 2"),
        (lambda: KlPenalty(least=1.0), "least must be less than greatest"),
        (lambda: KlLearningRate(least=1.0), "must differ"),
        (lambda: KlControl(target=0.0), "target: must be greater than 0"),
    ],
)
def test_settings_without_effect_are_refused(make: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()


def moved(control: KlControl | None, **given: Any) -> Any:
    state = acted(small(core=NoCoreConfig()), length=1)
    optimizer = torch.optim.Adam(state.policy.parameters(), lr=0.01)
    chosen = settings(**{"kl_control": control, "n_epochs": 4, **given})
    now = replace(NOW, learning_rate=0.03)
    parts = {name: [p.detach().clone() for p in group] for name, group in _groups(state).items()}
    result, after = update(
        state.policy, optimizer, state.rollout, chosen, now, TrainState(), state.generator
    )
    return state, parts, result, after


def _groups(state: Any) -> Any:
    return state.policy.parameter_groups()


def test_the_critics_go_on_while_the_actor_stands_still() -> None:
    stop = KlStop(factor=1.0, after="critics")
    state, _, result, _ = moved(KlControl(target=1e-4, stop=stop))
    acting = [info.actor for info in result.steps]
    assert acting.index(False) < 4
    assert len(acting) == 16
    assert not any(acting[acting.index(False) :])
    again, _, short, _ = moved(KlControl(target=1e-4, stop=KlStop(factor=1.0)))
    assert len(short.steps) == acting.index(False)
    for name, group in _groups(state).items():
        same = all(torch.equal(a, b) for a, b in zip(group, _groups(again)[name], strict=True))
        assert same == (not name.startswith("critic")), name


def test_a_step_too_far_can_be_undone() -> None:
    """The weights at the end are those of a cycle that stopped one step earlier."""
    control = KlControl(target=1e-4, stop=KlStop(factor=1.0, undo=True))
    state, _, result, _ = moved(control)
    taken = sum(info.taken for info in result.steps)
    assert result.steps[-1].stop == "absolute"
    again = acted(small(core=NoCoreConfig()), length=1)
    optimizer = torch.optim.Adam(again.policy.parameters(), lr=0.01)
    rules = iter([""] * (taken - 1) + ["absolute"])
    targets = compute_targets(again.rollout, settings().targets, "min", again.generator)
    again.policy.update_scale(
        targets.atoms.flatten(0, 1), targets.atom_weights, again.rollout.weights.flatten()
    )
    set_learning_rates(optimizer, 0.03, None)
    states = again.rollout.chunk_states
    for batch in minibatches(again.rollout, targets, states, 1, 64, again.generator):
        rule: Any = next(rules)
        now = replace(NOW, learning_rate=0.03)
        info = gradient_step(
            again.policy, optimizer, batch, settings(), now, stop=lambda _, rule=rule: rule
        )
        if info.stop:
            break
    pairs = zip(state.policy.parameters(), again.policy.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)


def test_the_last_step_of_a_cycle_can_be_undone_too() -> None:
    """One minibatch is the whole cycle: nothing after its step says that it went too far."""
    control = KlControl(target=1e-4, stop=KlStop(factor=1.0, undo=True))
    one = {"batch_size": 256, "n_epochs": 1}
    state, parts, result, _ = moved(control, **one)
    assert result.stopped_early
    assert result.control.kl_exceeded == 0.5
    before = {
        id(p): part
        for name in parts
        for p, part in zip(_groups(state)[name], parts[name], strict=True)
    }
    for name, parameter in state.policy.named_parameters():
        same = torch.equal(parameter, before[id(parameter)])
        # Of the critics only the heads moved with the scale of the returns, before any step.
        assert same or ".head" in name, name
    again, _, free, _ = moved(KlControl(target=10.0, stop=KlStop(undo=True)), **one)
    assert not free.stopped_early
    pairs = zip(_groups(state)["actor"], _groups(again)["actor"], strict=True)
    assert not all(torch.equal(a, b) for a, b in pairs)


def test_a_penalty_holds_the_policy_back() -> None:
    free, held = (
        moved(control)[2].steps[-1].losses.ratio.approx_kl
        for control in (None, KlControl(stop=None, penalty=KlPenalty(initial=1.0, kp=0, ki=0)))
    )
    assert held < free / 2


@catalogue("F05")
def test_the_divergence_is_that_of_the_new_policy_from_the_acting_one() -> None:
    state = acted(small(core=NoCoreConfig()), "box", length=1)
    with torch.no_grad():
        state.policy.actor.log_std += 0.7  # type: ignore[operator]
    batch = whole(state, length=1)
    output = state.policy(batch.observations, batch.state, batch.episode_starts)
    old, new = (Normal(law.location, law.log_std.exp()) for law in (batch.policy, output.actions))
    found = distance(state.policy, batch, settings(), NOW).approx_kl
    forward, backward = (kl_divergence(*pair).sum(-1).mean() for pair in ((old, new), (new, old)))
    torch.testing.assert_close(found, forward)
    assert abs(found - backward) > 0.5


@pytest.mark.parametrize("estimator", ["analytic", "k3"])
def test_decisions_read_the_chosen_estimate(estimator: Any) -> None:
    _, _, result, _ = moved(KlControl(target=0.01, estimator=estimator))
    last = result.steps[-1]
    assert last.stop == "absolute"
    ratio = last.losses.ratio
    assert (ratio.approx_kl if estimator == "analytic" else ratio.sampled_kl) > 0.015
