"""The watch over both critics' gradients, by itself and in a real agent."""

from typing import Any

import pytest
import torch
from stable_baselines3.common.env_util import make_vec_env

from quantail import DistributionalPPO
from quantail.diagnostics.monitors import watch_critics
from quantail.errors import QuantailWarning
from tests.catalogue import catalogue


def agent() -> Any:
    return DistributionalPPO(
        "MlpPolicy", make_vec_env("CartPole-v1", 4, seed=0), n_steps=16, batch_size=32, seed=0
    )


@catalogue("F29")
@pytest.mark.parametrize(
    ("norms", "imbalanced"),
    [((1.0, 1.0), False), ((99.0, 1.0), False), ((101.0, 1.0), True), ((1.0, 101.0), True)],
)
def test_imbalance_is_a_ratio_of_norms(norms: tuple[float, float], imbalanced: bool) -> None:
    watch = watch_critics(norms, 0)
    assert watch.imbalanced is imbalanced
    assert watch.ratio == pytest.approx(norms[0] / norms[1])


@catalogue("F30")
@pytest.mark.parametrize(
    ("norms", "vanishing"),
    [
        ((1.0, 1e-9), (False, True)),
        ((1e-9, 1.0), (True, False)),
        ((1e-9, 0.0), (True, True)),
        ((1.0,), (False,)),
    ],
)
def test_vanishing_is_told_for_each_critic(
    norms: tuple[float, ...], vanishing: tuple[bool, ...]
) -> None:
    assert watch_critics(norms, 0).vanishing == vanishing


@catalogue("F31")
def test_advice_comes_once_after_five_bad_cycles_in_a_row() -> None:
    cycles, given = 0, []
    for norms in [(1000.0, 1.0)] * 4 + [(1.0, 1.0)] + [(1000.0, 1.0)] * 8:
        watch = watch_critics(norms, cycles)
        cycles = watch.cycles_imbalanced
        given.append(watch.advice is not None)
    assert given == [False] * 10 + [True] + [False] * 2
    advice = watch_critics((1000.0, 1.0), 5).advice
    assert advice is not None
    for word in ("layers", "initialization", "learning rate", "1e+03 and 1"):
        assert word in advice


@catalogue("F28", "X11")
def test_a_real_agent_records_both_norms() -> None:
    model = agent()
    model.learn(64)
    recorded = model.logger.name_to_value
    assert recorded["train/critic1_grad_norm"] > 0
    assert recorded["train/critic2_grad_norm"] > 0
    assert recorded["warn/twin_critics_gradient_imbalance"] == 0


@catalogue("F30", "F29")
def test_a_real_agent_with_a_frozen_critic_says_so() -> None:
    model = agent()
    for parameter in model.policy.net.critics[1].parameters():
        torch.nn.init.zeros_(parameter)
    # With zero weights everywhere, only the head's biases of critic 2 still learn; stop them too.
    for parameter in model.policy.net.critics[1].parameters():
        parameter.register_hook(torch.zeros_like)
    model.learn(64)
    recorded = model.logger.name_to_value
    assert recorded["warn/critic2_vanishing_gradients"] == 1
    assert recorded["warn/critic1_vanishing_gradients"] == 0


@catalogue("F31")
def test_a_real_agent_escalates_a_lasting_imbalance() -> None:
    model = agent()
    for parameter in model.policy.net.critics[1].parameters():
        parameter.register_hook(lambda gradient: gradient * 1e-4)
    with pytest.warns(QuantailWarning, match="for 6 cycles in a row"):
        model.learn(64 * 6)
    assert model.logger.name_to_value["warn/twin_critics_gradient_imbalance"] == 1
