"""The numbers of a configuration in the order in which the kernel reads them."""

import math
from typing import Final, NamedTuple

import numpy as np

from quantail.sim.actions import ContinuousActions
from quantail.sim.compiled import helper
from quantail.sim.config import SimConfig
from quantail.sim.state import AUTORESET_MODES
from quantail.types import FloatArray


class Parameters(NamedTuple):
    """One number per setting; a switch is 1 or 0, an absent limit is infinite."""

    long_only: float
    clip_actions: float
    initial_equity: float
    max_leverage: float
    max_notional: float
    max_turnover: float
    minimum_notional: float
    minimum_trade: float
    unit_step: float
    maintenance_margin: float
    least_equity: float
    allow_negative: float
    fill_at_mark: float
    held_weight: float
    fee: float
    borrow_rate: float
    margin_rate: float
    costs_in_reward: float
    reward_code: float
    reward_0: float
    reward_1: float
    reward_2: float
    turnover_penalty: float
    reward_clip: float
    episode_length: float
    final_end: float
    block: float
    window: float
    account_state: float
    stress: float
    cost_low: float
    cost_high: float
    volatility_low: float
    volatility_high: float
    gap_probability: float
    gap_size: float
    missing_probability: float
    autoreset: float
    cost_scale: float


COST_SCALE: Final = Parameters._fields.index("cost_scale")


def pack(config: SimConfig, autoreset: str) -> FloatArray:
    """Return the parameters of ``config`` as one array, [39]; ``cost_scale`` is 1."""
    actions, account, stress = config.actions, config.account, config.stress
    continuous = actions if isinstance(actions, ContinuousActions) else None
    reward_0, reward_1, reward_2 = config.reward.parameters()
    parameters = Parameters(
        long_only=continuous is not None and continuous.long_only,
        clip_actions=continuous is not None and continuous.out_of_range == "clip",
        initial_equity=account.initial_equity,
        max_leverage=account.max_leverage,
        max_notional=_or_infinite(account.max_notional),
        max_turnover=_or_infinite(account.max_turnover),
        minimum_notional=account.minimum_notional,
        minimum_trade=account.minimum_trade,
        unit_step=account.unit_step,
        maintenance_margin=account.maintenance_margin,
        least_equity=account.bankruptcy_fraction * account.initial_equity,
        allow_negative=account.allow_negative_equity,
        fill_at_mark=config.fill.at_mark,
        held_weight=config.fill.held_weight,
        fee=config.costs.fee.fraction,
        borrow_rate=config.costs.borrow_rate,
        margin_rate=config.costs.margin_rate,
        costs_in_reward=config.costs_in_reward,
        reward_code=config.reward.code,
        reward_0=reward_0,
        reward_1=reward_1,
        reward_2=reward_2,
        turnover_penalty=config.turnover_penalty,
        reward_clip=_or_infinite(config.reward_clip),
        episode_length=config.episodes.length or 0,
        final_end=config.episodes.end == "final",
        block=config.no_trade.policy == "block",
        window=config.observation.window,
        account_state=config.observation.account_state,
        stress=stress.is_on,
        cost_low=stress.cost_multiplier[0],
        cost_high=stress.cost_multiplier[1],
        volatility_low=stress.volatility_multiplier[0],
        volatility_high=stress.volatility_multiplier[1],
        gap_probability=stress.gap.probability if stress.gap else 0.0,
        gap_size=stress.gap.size if stress.gap else 0.0,
        missing_probability=stress.missing_probability,
        autoreset=AUTORESET_MODES.index(autoreset),
        cost_scale=1.0,
    )
    return np.array(parameters, np.float64)


def _or_infinite(limit: float | None) -> float:
    return math.inf if limit is None else limit


@helper
def unpack_nb(p: FloatArray) -> Parameters:
    """Return the array as named numbers; they then live in registers, not behind an index."""
    return Parameters(
        p[0], p[1], p[2], p[3], p[4], p[5], p[6], p[7], p[8], p[9],
        p[10], p[11], p[12], p[13], p[14], p[15], p[16], p[17], p[18], p[19],
        p[20], p[21], p[22], p[23], p[24], p[25], p[26], p[27], p[28], p[29],
        p[30], p[31], p[32], p[33], p[34], p[35], p[36], p[37], p[38],
    )  # fmt: skip
