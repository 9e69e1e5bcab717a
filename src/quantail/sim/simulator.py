"""N accounts over shared bars: arrays in, arrays out, no Python work per account."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from quantail.errors import ConfigError, DataError
from quantail.market.bars import Bars
from quantail.sim.account_state import N_ACCOUNT_STATE
from quantail.sim.actions import ContinuousActions, DiscreteActions, level_table
from quantail.sim.config import SimConfig
from quantail.sim.draft import allocate_draft
from quantail.sim.episodes import EpisodeConfig, Windows
from quantail.sim.invariants import check_books
from quantail.sim.kernels import reset_nb, step_nb
from quantail.sim.market_rows import FUNDING, MarketRows, prepare_market
from quantail.sim.parameters import COST_SCALE, pack
from quantail.sim.random import seed_streams
from quantail.sim.state import (
    AUTORESET_MODES,
    EQUITY,
    MARK,
    RESTART,
    ROW,
    TOTALS,
    UNITS,
    SimState,
    StepBuffers,
)  # fmt: skip
from quantail.types import BoolArray, Float32Array, FloatArray, IntArray


class MarketSim:
    """A batched market environment.

    The accounts share bars and features and nothing else: env i of N behaves as a single env with
    the same seed. ``step`` writes into buffers of the caller, or into ``self.out``, which the next
    step overwrites.

    Args:
        bars: The market.
        features: [R, F] numbers the agent sees, one row for each bar; None for none.
        windows: Rows that episodes may use: by symbol, or as pairs of symbol and window; all rows
            of all symbols by default.
        config: Account, costs, reward, episodes and the rest.
        n_envs: Number of accounts.
        seed: A whole number, of which each env gets a seed of its own, or one for each env.
        autoreset: What happens when an episode ends: a new one begins in the same step, or in the
            next one, or (``disabled``) the account rests until :meth:`reset`.
    """

    def __init__(
        self,
        bars: Bars,
        features: FloatArray | Float32Array | None = None,
        *,
        windows: Windows | None = None,
        config: SimConfig = SimConfig(),  # noqa: B008 - frozen
        n_envs: int = 1,
        seed: int | Sequence[int] = 0,
        autoreset: Literal["same_step", "next_step", "disabled"] = "same_step",
    ) -> None:
        if n_envs < 1:
            raise ConfigError(f"n_envs must be at least 1; was {n_envs}.")
        if autoreset not in AUTORESET_MODES:
            modes = ", ".join(AUTORESET_MODES)
            raise ConfigError(f"autoreset must be one of {modes}; was {autoreset!r}.")
        self.config = config
        self.n_envs = n_envs
        self.autoreset = autoreset
        self.market: MarketRows = prepare_market(bars, features, windows, config)
        self.state = SimState.allocate(n_envs, config.fill.n_pending)
        self.out = StepBuffers.allocate(n_envs, self.observation_size)
        self._parameters = pack(config, autoreset)
        self._levels = level_table(config.actions)
        self._actions = np.zeros(n_envs)
        self._action_kinds = "iu" if len(self._levels) else "fiu"
        # What the kernel always gets; looking it up anew would take a tenth of a small step.
        self._own_buffers = self.out.arrays()
        state, market = self.state, self.market
        self._fixed = (
            self._levels, state.value_blocks, state.count_blocks, state.streams, state.pending,
            state.totals, market.rows, market.features, market.table, market.weights,
            self._parameters, allocate_draft(),
        )  # fmt: skip
        self.reset(seed)

    @classmethod
    def over_windows(
        cls,
        bars: Bars,
        features: FloatArray | Float32Array | None,
        windows: Windows,
        config: SimConfig = SimConfig(),  # noqa: B008 - frozen
    ) -> "MarketSim":
        """Return one account for each window, to run over all its bars once, for an evaluation.

        Env i starts at the first bar of window i (after ``episodes.warmup`` bars of it; the bars
        that costs and observation look back on may lie before the window), steps to the window's
        last bar and then rests: ``truncated`` stays true, sample weight is 0, equity stays. Nothing
        is drawn at random: stress must be off. Account, costs, fills (``fill.delay`` of 1, 2, ...
        bars, or 0 with ``fill.price`` close), rewards and observation are those of ``config``; the
        rest of its ``episodes`` is not used.
        """
        if config.stress.is_on:
            raise ConfigError(
                "stress must be off to run over windows, as it is drawn at random; leave out "
                "config.stress."
            )
        warmup = config.episodes.warmup
        whole = EpisodeConfig(length=None, start="first", warmup=warmup, symbols="dealt")
        return cls(
            bars, features, windows=windows, config=dataclasses.replace(config, episodes=whole),
            n_envs=max(len(windows), 1), autoreset="disabled",
        )  # fmt: skip

    @property
    def cost_scale(self) -> float:
        """The factor on fee, spread and slippage; 1 unless a ramp has set it."""
        return float(self._parameters[COST_SCALE])

    def set_cost_scale(self, scale: float) -> None:
        """Multiply fee, half-spread and slippage by ``scale`` in all envs from the next step on.

        A learner that meets the full cost at once may stop trading before it has found the signal;
        a ramp from 0 to 1 avoids that. Funding and interest are not scaled, as with stress, whose
        multiplier comes on top. Books, rewards and the cost estimate that the agent sees use the
        scaled costs; ``self.out.observation`` is written anew, copies that were handed out are not.
        The scale is part of the state and, unless 1, of the header.
        """
        if not 0.0 <= scale <= MAX_COST_SCALE:  # False for NaN too
            raise ConfigError(f"scale must lie in [0, {MAX_COST_SCALE:g}]; was {scale!r}.")
        self._parameters[COST_SCALE] = scale
        self.reset(mask=np.zeros(self.n_envs, np.bool_))

    @property
    def observation_size(self) -> int:
        """Numbers in one observation."""
        seen = self.config.observation
        return seen.window * self.market.n_features + seen.account_state * N_ACCOUNT_STATE

    @property
    def observation_space(self) -> spaces.Box:
        """What one agent sees."""
        return spaces.Box(-np.inf, np.inf, (self.observation_size,), np.float32)

    @property
    def action_space(self) -> spaces.Box | spaces.Discrete:
        """What one agent may do."""
        if isinstance(self.config.actions, DiscreteActions):
            return spaces.Discrete(self.config.actions.n_actions)
        return spaces.Box(-1.0, 1.0, (1,), np.float32)

    def describe(self) -> str:
        """Return the header of a run: what is booked, what is rewarded, on which market."""
        symbols = ", ".join(dict.fromkeys(self.market.symbols))
        funding = "charged" if self.market.rows[:, FUNDING].any() else "none in the bars"
        header = f"market: {symbols}; funding {funding}\n{self.config.describe()}"
        scale = self.cost_scale
        return header if scale == 1.0 else f"{header}\nFEE, SPREAD AND SLIPPAGE TIMES {scale:g}"

    def reset(
        self, seed: int | Sequence[int] | None = None, mask: BoolArray | None = None
    ) -> Float32Array:
        """Begin new episodes and return the first observations, [N, O].

        Args:
            seed: Starts the random streams anew, as in the constructor; None goes on with them.
            mask: [N] the envs to reset; all by default.
        """
        chosen = np.ones(self.n_envs, np.bool_) if mask is None else self._mask(mask)
        if seed is not None:
            fresh = seed_streams(seed, self.n_envs)
            self.state.streams[chosen] = fresh[chosen]
        reset_nb(chosen, *self._fixed[1:], self.out.observation)
        return self.out.observation

    def restart(self, mask: BoolArray) -> None:
        """Let the next step begin new episodes in some envs, for a watchdog or a curriculum.

        That step is no transition: it gives reward 0, ``truncated`` with the last observation of
        the old episode, and sample weight 0, so nothing is learned from it.
        """
        self.state.set_status(self._mask(mask), RESTART)

    def step(self, actions: NDArray[Any], out: StepBuffers | None = None) -> StepBuffers:
        """Step every account once.

        Args:
            actions: [N] or [N, 1] target positions in [-1, 1], or [N] whole numbers when discrete.
            out: Buffers to write into; ``self.out`` by default.

        Raises:
            ConfigError: For actions of a wrong shape or outside the space; nothing then changed.
            AccountingError: In debug mode, when the books of an account do not balance.
        """
        self._read_actions(actions)
        buffers = self._own_buffers if out is None else out.arrays()
        out = self.out if out is None else out
        bad = step_nb(self._actions, *self._fixed, *buffers)
        if bad >= 0:
            raise ConfigError(self._outside(bad))
        if self.config.debug:
            check_books(self.state, out, self.config)
        return out

    def _read_actions(self, actions: NDArray[Any]) -> None:
        given, n = np.asarray(actions), self.n_envs
        if given.shape == (n, 1):
            given = given[:, 0]
        elif given.shape != (n,):
            raise ConfigError(
                f"actions must have shape [{n}] or [{n}, 1], one for each env; was "
                f"{list(given.shape)}."
            )
        if given.dtype.kind not in self._action_kinds:
            kind = "whole numbers" if len(self._levels) else "numbers"
            raise ConfigError(f"actions must be {kind}; were of type {given.dtype}.")
        self._actions[:] = given

    def _outside(self, env: int) -> str:
        value = float(self._actions[env])
        if isinstance(self.config.actions, ContinuousActions):
            return (
                f"action of env {env} must lie in [-1, 1]; was {value!r}. Clip it before the call, "
                "or set actions.out_of_range to 'clip', which counts; NaN is refused in any case."
            )
        count = self.config.actions.n_actions
        return f"action of env {env} must be a whole number from 0 to {count - 1}; was {value:g}."

    def _mask(self, mask: BoolArray) -> BoolArray:
        given = np.asarray(mask)
        if given.shape != (self.n_envs,) or given.dtype != np.bool_:
            raise ConfigError(
                f"mask must be {self.n_envs} booleans, one for each env; was {given.dtype} "
                f"{list(given.shape)}."
            )
        return given

    def action_masks(self) -> BoolArray:
        """Return which discrete actions make sense now, [N, actions].

        Where a fill is known to be impossible and the policy is ``block``, only hold is left;
        without a hold action, the level nearest to the position.
        """
        actions = self.config.actions
        if not isinstance(actions, DiscreteActions):
            raise ConfigError("action masks need actions.kind 'discrete'; it is 'continuous'.")
        masks = np.ones((self.n_envs, actions.n_actions), np.bool_)
        if self.config.no_trade.policy == "ignore":
            return masks
        held = np.flatnonzero(self.market.foreseen_block[self.state.count(ROW)])
        masks[held] = False
        if actions.hold:
            masks[held, -1] = True
        else:
            units, mark, equity = (self.state.value(line)[held] for line in (UNITS, MARK, EQUITY))
            position = units * mark / (equity * self.config.account.max_leverage)
            distance = np.abs(np.array(actions.levels) - position[:, None])
            masks[held, distance.argmin(axis=1)] = True
        return masks

    def counters(self) -> dict[str, int]:
        """Return how often, over the life of all envs, something was not done as asked."""
        return dict(zip(TOTALS, self.state.totals.tolist(), strict=True))

    def get_state(self) -> dict[str, NDArray[Any]]:
        """Return a copy of everything that decides how the envs go on."""
        state = self.state
        return {
            "layout": self._layout(),
            "values": state.value_blocks.copy(),
            "counts": state.count_blocks.copy(),
            "streams": state.streams.copy(),
            "pending": state.pending.copy(),
            "totals": state.totals.copy(),
            "cost_scale": np.array(self.cost_scale),
        }

    def set_state(self, saved: Mapping[str, NDArray[Any]]) -> Float32Array:
        """Go on from a saved state; return the observations at that point, [N, O].

        Raises:
            DataError: When the state was taken from another number of envs, features, bars,
                symbols, or another delay.
        """
        arrays = ("values", "counts", "streams", "pending", "totals")
        names = ("layout", *arrays, "cost_scale")
        missing = [name for name in names if name not in saved]
        if missing:
            raise DataError(
                f"saved state lacks {', '.join(missing)}; give what get_state returned."
            )
        ours = self._layout()
        for name, was, now in zip(_LAYOUT, saved["layout"], ours, strict=True):
            if was != now:
                raise DataError(
                    f"saved state has {was} {name}; this simulator has {now}. Build the simulator "
                    "with the data and configuration of the saved one."
                )
        state = self.state
        targets = (
            state.value_blocks, state.count_blocks, state.streams, state.pending, state.totals
        )  # fmt: skip
        for name, target in zip(arrays, targets, strict=True):
            target[...] = saved[name]
        self.set_cost_scale(float(saved["cost_scale"]))
        return self.reset(mask=np.zeros(self.n_envs, np.bool_))

    def _layout(self) -> IntArray:
        market = self.market
        sizes = (self.n_envs, market.n_features, len(market.rows), len(market.symbols),
                 self.state.pending.shape[1], self.observation_size)  # fmt: skip
        return np.array(sizes, np.int64)


MAX_COST_SCALE: Final = 100.0
_LAYOUT = ("envs", "features", "bars", "symbols", "pending orders", "numbers in an observation")
