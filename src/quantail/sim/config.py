"""The simulator's configuration: its parts put together, and what contradicts what."""

from typing import Annotated

from annotated_types import Ge, Gt

from quantail.config_class import config
from quantail.errors import ConfigError, ConfigProblem
from quantail.sim.account import AccountConfig, FillConfig
from quantail.sim.actions import ActionConfig, ContinuousActions, is_long_only
from quantail.sim.costs import CostConfig
from quantail.sim.episodes import EpisodeConfig
from quantail.sim.no_trade import NoTradeConfig
from quantail.sim.rewards import LogReturn, RewardConfig
from quantail.sim.stress import StressConfig


@config
class ObservationConfig:
    """What the agent sees."""

    window: Annotated[int, Ge(1)] = 1
    """Rows of features, the oldest first; 1 is the current bar alone."""
    account_state: bool = True
    """Whether the account's own state follows the features."""


@config
class SimConfig:
    """N accounts over shared bars."""

    actions: ActionConfig = ContinuousActions()
    account: AccountConfig = AccountConfig()
    fill: FillConfig = FillConfig()
    costs: CostConfig = CostConfig()
    costs_in_reward: bool = True
    """False takes all costs out of the reward, though not out of the books; the header says so."""
    reward: RewardConfig = LogReturn()
    turnover_penalty: Annotated[float, Ge(0)] = 0.0
    """Taken from the reward for each unit of turnover (traded notional over equity). Not a cost: it
    is recorded apart and never touches the books."""
    reward_clip: Annotated[float, Gt(0)] | None = None
    """Bound of the reward, applied once, after costs; the record keeps the raw value."""
    episodes: EpisodeConfig = EpisodeConfig()
    no_trade: NoTradeConfig = NoTradeConfig()
    observation: ObservationConfig = ObservationConfig()
    stress: StressConfig = StressConfig()
    debug: bool = False
    """Check the books of every account after every step."""

    def check(self) -> None:
        """Refuse settings that would have no effect."""
        long_only = is_long_only(self.actions)
        unlevered = self.account.max_leverage <= 1.0
        no_debt = "has no effect for a long-only account without leverage; set it to"
        problems = []
        if self.costs.borrow_rate > 0.0 and long_only:
            problem = "has no effect for a long-only account, which never borrows; set it to 0"
            problems.append(ConfigProblem("costs.borrow_rate", problem))
        if self.costs.margin_rate > 0.0 and unlevered:
            problem = "has no effect with account.max_leverage of at most 1; set it to 0"
            problems.append(ConfigProblem("costs.margin_rate", problem))
        if self.account.maintenance_margin > 0.0 and long_only and unlevered:
            problems.append(ConfigProblem("account.maintenance_margin", f"{no_debt} 0"))
        if self.account.allow_negative_equity and long_only and unlevered:
            problems.append(ConfigProblem("account.allow_negative_equity", f"{no_debt} false"))
        if problems:
            raise ConfigError(problems)

    def describe(self) -> str:
        """Return the header of a run: what is booked and what is rewarded."""
        fee, half, slip = self.costs.fee, self.costs.spread, self.costs.slippage
        in_reward = (
            "costs in the reward: yes" if self.costs_in_reward else "COSTS IN THE REWARD: NO"
        )
        clip = "not clipped" if self.reward_clip is None else f"clipped at ±{self.reward_clip:g}"
        length, then = self.episodes.length, "over" if self.episodes.end == "final" else "cut"
        ends = "to the end of the data" if length is None else f"{length} steps, then {then}"
        sides = "long only" if is_long_only(self.actions) else "long and short"
        lines = (
            f"fill: {self.fill.price} of the bar {self.fill.delay} after the decision",
            f"costs: {fee.kind} fee {fee.fraction * 1e4:g} bps, {half.kind} spread, slippage "
            f"{slip.kind}, borrow {self.costs.borrow_rate:g}/year, margin "
            f"{self.costs.margin_rate:g}/year",
            f"{in_reward}; reward {self.reward.kind}, {clip}, turnover penalty "
            f"{self.turnover_penalty:g}",
            f"account: {self.account.initial_equity:g}, leverage up to "
            f"{self.account.max_leverage:g}, {sides}, "
            f"ends at {self.account.bankruptcy_fraction:g} of the initial equity",
            f"episodes: {ends}, {self.episodes.start} start; no-trade policy "
            f"{self.no_trade.policy}; stress {'on' if self.stress.is_on else 'off'}",
        )
        return "\n".join(lines)
