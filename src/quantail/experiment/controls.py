"""Controls: small trials whose answer is known, each of which only a sound build passes.

=================  ================================================================================
control            what it tells apart
=================  ================================================================================
leaks              a leak guard that sees a planted leak and passes the built-in features
oracle             a learner that finds a signal which gives the next return away
martingale         an environment in which nothing can be earned, and nothing is
hidden regime      memory, costs and learning together, against the exact optimum
maze               memory over an episode, and none from the episode before
critic             a critic that learns the law of returns, in a chain where that law is known
=================  ================================================================================
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import pandas as pd
import torch

from quantail.errors import DataError
from quantail.experiment.config import AgentConfig
from quantail.experiment.practice import Outcome, Practice, practise
from quantail.flow import Rollout
from quantail.market.dataset import USUAL_FEATURES
from quantail.market.features import build_features
from quantail.market.features.custom import feature
from quantail.market.leakage import LeakCheck, refuse_leaks
from quantail.market.sources import SyntheticSource
from quantail.nets.cores import LstmConfig, NoCoreConfig
from quantail.optim.schedules import LinearSchedule
from quantail.sim.problems import (
    HiddenRegime,
    NegativeControl,
    OneStateChain,
    PositiveControl,
    TMaze,
)

Tell = Callable[[float], None]
"""Takes the share of a control that is done."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What a control said."""

    passed: bool
    figure: str
    """The measured number, with its interval and what was asked for."""
    fault: str = ""
    """What is likely broken; empty when it passed."""
    fraction: float | None = None
    """Of the optimum, where one is known."""


_SHORT_MEMORY: Final = AgentConfig(
    core=NoCoreConfig(), batch_size=1024, n_steps=32, n_epochs=4, gamma=0.5, ent_coef=0.002
)
_MEMORY: Final = AgentConfig(core=LstmConfig(hidden_size=64), batch_size=2048, n_steps=128)
_MAZE: Final = AgentConfig(
    core=LstmConfig(hidden_size=32), batch_size=1024, n_steps=32, n_epochs=4, gamma=0.9,
    ent_coef=0.01, learning_rate=LinearSchedule(start=3e-3),
)  # fmt: skip
_CHAIN: Final = AgentConfig(
    core=NoCoreConfig(), batch_size=256, n_steps=32, n_epochs=4,
    learning_rate=LinearSchedule(start=5e-3),
)  # fmt: skip


def leaks(tell: Tell) -> Finding:
    """The leak guard passes the built-in features and refuses one that is the next return."""

    @feature(name="planted_next_return", warmup=0)
    def planted(bars: "pd.DataFrame") -> "pd.Series[float]":
        close = bars["close"]
        return (close.shift(-1) / close - 1.0).fillna(0.0)

    bars = SyntheticSource(bars=1500, seed=7).load()
    try:
        refuse_leaks(build_features(USUAL_FEATURES), bars, LeakCheck())
    except DataError as error:
        fault = f"A built-in feature knows the future: {error}"
        return Finding(False, "built-in features are refused", fault)
    tell(0.7)
    try:
        refuse_leaks(build_features([planted]), bars, LeakCheck())
    except DataError:
        return Finding(True, "built-in features pass, a planted next return is refused")
    fault = "The leak guard does not see a feature that is the next return."
    return Finding(False, "a planted next return passes", fault)


def oracle(tell: Tell) -> Finding:
    """A feature is the next return: any sound learner finds it."""
    practice = Practice(PositiveControl(), _SHORT_MEMORY, n_envs=64, steps=100_000)
    fault = (
        "The learner does not find a signal that gives the next return away. Suspect the sign or "
        "the alignment of advantages, the policy's gradient, or the order of actions and rewards."
    )
    return _fraction(practise(practice, on_step=tell), 0.9, fault)


def martingale(tell: Tell) -> Finding:
    """Prices without drift: a profit beyond chance is a leak in the environment."""
    practice = Practice(NegativeControl(), _SHORT_MEMORY, n_envs=64, steps=60_000)
    gain = practise(practice, on_step=tell).against_base.mean_difference
    low, high = gain.low or 0.0, gain.high or 0.0
    figure = f"mean reward {gain.value:+.2e} [{low:+.2e}, {high:+.2e}], nothing can be earned"
    if low > 0.0:
        fault = (
            "The agent earns money from prices without drift, beyond chance: what it observes "
            "holds the return to come, or its account is credited with what it did not earn."
        )
        return Finding(False, figure, fault)
    return Finding(True, figure)


def hidden_regime(tell: Tell) -> Finding:
    """The sign of the drift is hidden: memory is needed, and costs must be weighed."""
    practice = Practice(HiddenRegime(), _MEMORY, n_envs=64, steps=300_000)
    fault = (
        "The agent does not come near the optimum of a market that needs memory. If the oracle "
        "control passes, suspect the recurrent state, the cost ramp, or the length of chunks."
    )
    return _fraction(practise(practice, on_step=tell), 0.7, fault)


def maze(tell: Tell) -> Finding:
    """A cue must be kept in mind to the end of the episode, and not beyond."""
    outcome = practise(
        Practice(TMaze(length=5), _MAZE, n_envs=64, steps=100_000, test_envs=400, test_steps=5),
        on_step=tell,
    )
    spread = first_row_spread(outcome.last_rollout)
    if spread > 1e-4:
        return Finding(
            False,
            f"answers to the same first observation differ by {spread:.2g}",
            "What the policy does at the start of an episode depends on the episode before: its "
            "memory is not reset where episodes end.",
        )
    fault = "The agent does not keep a cue in mind: suspect the recurrent state or its gradient."
    return _fraction(outcome, 0.9, fault)


def critic(tell: Tell) -> Finding:
    """Independent rewards for ever: the law of the discounted return is known exactly."""
    chain = OneStateChain(mean=1.0, discount=_CHAIN.gamma)
    outcome = practise(
        Practice(chain, _CHAIN, n_envs=16, steps=60_000, test_envs=2, test_steps=1), on_step=tell
    )
    truth, law = chain.solve(), outcome.last_rollout.values[0]
    mean = float(law.mean().mean())
    tail, true_tail = float(law.cvar(0.05).mean()), truth.cvar(0.05)
    figure = (
        f"mean return {mean:.2f} (exact {truth.mean:.2f}), CVaR 5 % {tail:.2f} "
        f"(exact {true_tail:.2f})"
    )
    if abs(mean - truth.mean) <= 0.1 * truth.mean and abs(tail - true_tail) <= truth.sd:
        return Finding(True, figure)
    fault = (
        "The critic does not learn the law of returns where it is known. Suspect its loss, the "
        "gradient into it, or the targets."
    )
    return Finding(False, figure, fault)


CONTROLS: Final[Mapping[str, Callable[[Tell], Finding]]] = {
    "leaks": leaks,
    "oracle": oracle,
    "martingale": martingale,
    "hidden regime": hidden_regime,
    "maze": maze,
    "critic": critic,
}


def first_row_spread(rollout: Rollout) -> float:
    """Return the largest difference between answers to the same first observation of an episode.

    The probability of the first choice is compared, among first rows with equal observations. A
    policy whose memory is reset gives one answer to one observation.
    """
    assert isinstance(rollout.observations, torch.Tensor)
    starts = rollout.episode_starts.bool()
    seen = rollout.observations[starts]
    choice = torch.zeros_like(rollout.actions)
    chance = rollout.policy.log_prob(choice).exp()[starts]
    _, group = torch.unique(seen, dim=0, return_inverse=True)
    spreads = [float(chance[group == g].max() - chance[group == g].min()) for g in group.unique()]
    return max(spreads, default=0.0)


def _fraction(outcome: Outcome, least: float, fault: str) -> Finding:
    optimum = outcome.optimum
    assert optimum is not None, "the problems of the controls have an optimum above the trivial"
    reached = optimum.fraction
    low, high = reached.low or 0.0, reached.high or 0.0
    figure = f"{reached.value:.3f} [{low:.3f}, {high:.3f}] of the optimum, at least {least:g} asked"
    passed = reached.value >= least
    return Finding(passed, figure, "" if passed else fault, reached.value)
