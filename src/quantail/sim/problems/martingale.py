"""The negative control: prices without drift, where nothing can be earned."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from annotated_types import Ge, Gt
from numpy.typing import NDArray

from quantail.config_class import config
from quantail.errors import DataError
from quantail.sim.problems.interface import Policy, unbounded_box
from quantail.sim.problems.laws import normal_cdf
from quantail.sim.problems.trading import (
    POSITION_STEP,
    TradingProblem,
    as_position,
    proportional_cost,
)
from quantail.types import BoolArray, Float32Array, FloatArray, IntArray


@dataclass(frozen=True, slots=True)
class MartingaleSolution:
    """Nothing earns more than doing nothing."""

    values: dict[str, float]
    base: str = "flat"


@config
class NegativeControl:
    """A geometric Brownian motion without drift: a significant profit means a leak."""

    continuing: ClassVar[bool] = True
    maximizes_mean: ClassVar[bool] = True

    kind: Literal["negative_control"] = "negative_control"
    volatility: Annotated[float, Gt(0)] = 0.01
    """Standard deviation of a log return."""
    cost: Annotated[float, Ge(0)] = 0.0005
    """Cost of changing the position by one unit."""
    window: Annotated[int, Ge(1)] = 8
    """Past returns in the observation."""
    reward: Literal["realized", "expected"] = "realized"
    """Pay the position times the return, or times its mean, which is zero."""
    episode_length: Annotated[int, Ge(1)] = 1000

    def build(self, n_envs: int, seed: int, first_env: int = 0) -> "MartingaleTrading":
        """Return N instances."""
        return MartingaleTrading(self, n_envs, seed, first_env)

    def solve(self) -> MartingaleSolution:
        """Return the exact means: minus the cost of the turnover."""
        # The return is positive when z > σ/2; its sign changes with probability 2p(1 − p).
        up = float(normal_cdf(np.array([-0.5 * self.volatility]))[0])
        return MartingaleSolution(
            values={
                "optimal": 0.0,
                "flat": 0.0,
                "buy_and_hold": 0.0,
                "momentum": -4.0 * self.cost * up * (1.0 - up),
            }
        )

    def policies(self) -> Mapping[str, Policy]:
        """Return no position (optimal), buy and hold, and the sign of the last return."""

        def constant(choice: int) -> Policy:
            return Policy.of(lambda observation: np.full(observation.shape[0], choice))

        def momentum(observation: Float32Array) -> IntArray:
            return np.sign(observation[:, 0]).astype(np.int64) + 1

        return {
            "optimal": constant(1),
            "flat": constant(1),
            "buy_and_hold": constant(2),
            "momentum": Policy.of(momentum),
        }


class MartingaleTrading(TradingProblem):
    """N traders; the observation is (past returns / volatility, latest first; position)."""

    def __init__(self, config: NegativeControl, n_envs: int, seed: int, first_env: int) -> None:
        super().__init__(
            n_envs=n_envs,
            seed=seed,
            first_env=first_env,
            observation_space=unbounded_box(config.window + 1),
            action_space=POSITION_STEP,
            episode_length=config.episode_length,
        )
        self._config = config
        self._arrays["returns"] = np.zeros((n_envs, config.window))

    def _begin(self, rows: IntArray) -> None:
        self._arrays["position"][rows] = 0.0
        self._arrays["returns"][rows] = 0.0

    def _advance(self, actions: NDArray[Any]) -> tuple[FloatArray, BoolArray]:
        before, returns = self._arrays["position"], self._arrays["returns"]
        position = as_position(actions)
        sigma = self._config.volatility
        growth = np.expm1(sigma * self._noise.normal() - 0.5 * sigma * sigma)
        reward = -proportional_cost(self._config.cost * self.cost_scale, before, position)
        if self._config.reward == "realized":
            reward += position * growth
        before[...] = position
        returns[:, 1:] = returns[:, :-1].copy()
        returns[:, 0] = growth
        return reward, np.zeros(self.n_envs, dtype=np.bool_)

    def _observe(self) -> Float32Array:
        seen = self._arrays["returns"] / self._config.volatility
        position = self._arrays["position"][:, None]
        return np.concatenate([seen, position], axis=1).astype(np.float32)


def block_permuted_signs(
    returns: FloatArray, block_length: int, generator: np.random.Generator
) -> FloatArray:
    """Return real returns made worthless: sizes stay in place, signs are shuffled in blocks.

    The signs are cut into blocks, the blocks are put in random order and each is turned over with
    probability 1/2, so that every return has mean zero while the volatility keeps its clusters.
    Inside a block the pattern of signs survives: only ``block_length = 1`` makes a martingale.

    Args:
        returns: [T]
        block_length: Bars in a block, from 1 to T.
        generator: The source of randomness.
    """
    if not 1 <= block_length <= returns.size:
        raise DataError(
            f"block_length must be in 1..{returns.size}, the number of returns; was {block_length}"
        )
    signs = np.where(returns < 0.0, -1.0, 1.0)
    blocks = np.split(signs, range(block_length, returns.size, block_length))
    order = generator.permutation(len(blocks))
    turned = generator.choice([-1.0, 1.0], size=len(blocks))
    shuffled: FloatArray = np.concatenate([turned[i] * blocks[i] for i in order])
    return np.abs(returns) * shuffled
