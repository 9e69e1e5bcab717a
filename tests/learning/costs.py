"""Bets of any size whose mean cost is limited: the best policy is known in closed form.

At each of T steps a signal x is seen, a bet a in [-1, 1] earns x a and costs a². Under a limit L on
the mean cost of an episode the Lagrangian x a - μ a² is best at a = x / (2 μ), so

    a(x) = x √(L / (T E[x²])),   E[G] = √(L T E[x²]),   E[C] = L

as long as no bet is larger than 1. Without the limit a = 1 for every positive x, and C = T.

A second bet b in [0, 1], if there is one, adds ``drift`` b + ``noise`` b ε to the reward and costs
nothing: a limit on CVaR is its business.

``python -m tests.learning.costs NAME SEED`` trains one of the cases and prints what came of it.
"""

import sys
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray

from quantail import DistributionalPPO
from quantail.risk.config import RiskConfig
from quantail.risk.cost import CostDual, CostLimit, weight_now
from quantail.sb3.evaluate import EpisodeReturns, evaluate_episodes
from quantail.sb3.problem_vec_env import ProblemVecEnv
from quantail.sim.problems.interface import VectorProblem, unbounded_box
from quantail.sim.problems.laws import sample_cvar
from quantail.types import BoolArray, Float32Array, FloatArray, IntArray

SIGNALS = np.array([0.2, 1.0])
POWER = float((SIGNALS**2).mean())
STEPS = 4


class SizedBets(VectorProblem):
    """N games; the latest costs are in ``costs``, [N]."""

    def __init__(self, n_envs: int, seed: int, drift: float = 0.0, noise: float = 0.0) -> None:
        size = 2 if drift else 1
        super().__init__(
            n_envs=n_envs,
            seed=seed,
            first_env=0,
            observation_space=unbounded_box(2),
            action_space=spaces.Box(-1.0, 1.0, (size,), np.float32),
            episode_length=None,
        )
        self.drift, self.noise = drift, noise
        self.costs = np.zeros(n_envs)
        self._arrays["signal"] = np.zeros(n_envs)
        self._rng = np.random.default_rng(seed)

    def _begin(self, rows: IntArray) -> None:
        self._arrays["signal"][rows] = self._rng.choice(SIGNALS, len(rows))

    def _advance(self, actions: NDArray[Any]) -> tuple[FloatArray, BoolArray]:
        bet = actions[:, 0]
        reward = self._arrays["signal"] * bet
        if self.drift:
            other = (actions[:, 1] + 1) / 2
            reward = reward + other * (self.drift + self.noise * self._rng.normal(size=len(bet)))
        self.costs = bet**2
        self._arrays["signal"][:] = self._rng.choice(SIGNALS, len(bet))
        return reward, self._arrays["time"] + 1 >= STEPS

    def _observe(self) -> Float32Array:
        seen = np.stack([self._arrays["signal"], self._arrays["time"] / STEPS], axis=1)
        return seen.astype(np.float32)


class CostlyVecEnv(ProblemVecEnv):
    """The games with their costs in ``info["cost"]``."""

    def step_wait(self) -> Any:
        *rest, infos = super().step_wait()
        for info, cost in zip(infos, self.problem.costs.tolist(), strict=True):
            info["cost"] = cost
        return (*rest, infos)


@dataclass(frozen=True)
class Case:
    """What is limited, and what the games are."""

    cost: CostLimit | None = None
    risk: RiskConfig | None = None
    drift: float = 0.0
    noise: float = 0.0
    updates: int = 150
    n_envs: int = 256


LIMIT = 1.0
RISKY = {"drift": 0.1, "noise": 0.6}
CVAR = RiskConfig(alpha=0.1, limit=0.0)
"""Beside bets within the limit on their cost, betting on noise at full size gives -0.57."""
CASES = {
    "limited": Case(CostLimit(limit=LIMIT)),
    "limited_soon": Case(CostLimit(limit=LIMIT, dual=CostDual(integral=0.2))),
    "free": Case(),
    "both": Case(CostLimit(limit=LIMIT), CVAR, updates=300, n_envs=512, **RISKY),
    "cost_alone": Case(CostLimit(limit=LIMIT), **RISKY),
    "cvar_alone": Case(None, CVAR, **RISKY),
}


def best_mean(limit: float) -> float:
    return float(np.sqrt(limit * STEPS * POWER))


def games(case: Case, n_envs: int, seed: int) -> CostlyVecEnv:
    return CostlyVecEnv(SizedBets(n_envs, seed, case.drift, case.noise))


def train(
    case: Case, seed: int, n_envs: int | None = None, updates: int | None = None, **given: Any
) -> DistributionalPPO:
    """Train an agent on a case; ``n_envs`` and ``updates`` make it smaller."""
    n_envs = n_envs or case.n_envs
    torch.set_num_threads(1)
    rows = n_envs * STEPS
    settings: dict[str, Any] = {
        "n_steps": STEPS,
        "batch_size": rows // 2,
        "n_epochs": 4,
        "gamma": 1.0,
        "twin": "off",
        "learning_rate": lambda left: 3e-3 * max(left, 0.02),
        "policy_kwargs": {"net_arch": [32], "log_std_init": -1.5},
        "cost": case.cost,
        "risk": case.risk,
        **given,
    }
    env = games(case, n_envs, seed)
    model = DistributionalPPO("MlpPolicy", env, seed=seed, device="cpu", **settings)
    return model.learn((updates or case.updates) * rows)


def outcome(model: DistributionalPPO, case: Case, seed: int) -> EpisodeReturns:
    """Play fresh episodes as in training: what is limited is the cost of the policy that acts."""
    return evaluate_episodes(model, games(case, 1000, 10_000 + seed), 20_000, deterministic=False)


def main(name: str, seed: int) -> None:
    case, begun = CASES[name], time.process_time()
    model = train(case, seed)
    played = outcome(model, case, seed)
    assert played.costs is not None
    state = model.train_state.cost
    sys.stdout.write(
        f"{name} seed {seed}: mean {played.returns.mean():.4f} (bets alone at best "
        f"{best_mean(LIMIT):.4f}), cost {played.costs.mean():.4f}, CVaR "
        f"{sample_cvar(played.returns, 0.1):.4f}, weight {weight_now(state):.3f}, "
        f"{time.process_time() - begun:.0f} s\n"
    )


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
