"""One account in plain Python: slow, straightforward, one bar at a time, no arrays of accounts.

Written from the description of the market, not from the kernel: costs are looked up bar by bar from
the bars themselves, and equity is recomputed from cash and units at every price.
"""

import math

import numpy as np

from quantail.market.bars import Bars
from quantail.sim.config import SimConfig


class ReferenceAccount:
    def __init__(self, bars: Bars, features, config: SimConfig, *, row: int, last_row: int):
        self.bars, self.features, self.config = bars, features, config
        self.row, self.last_row = row, last_row
        self.cash = config.account.initial_equity
        self.units = 0.0
        self.entry = 0.0
        self.peak = self.cash
        self.steps = 0
        self.length = config.episodes.length or last_row - row
        self.since_trade = 0
        self.queue = [None] * config.fill.n_pending
        self.mean = self.square = self.potential = 0.0

    # --- what the market charges ------------------------------------------------------------------

    def volatility(self, row: int, window: int) -> float:
        total = 0.0
        for k in range(row - window, row):
            total += math.log(self.bars.close[k] / self.bars.close[k - 1]) ** 2
        return math.sqrt(total / window)

    def volume(self, row: int, window: int) -> float:
        return sum(float(self.bars.volume[k]) for k in range(row - window, row)) / window

    def fee_rate(self) -> float:
        fee = self.config.costs.fee
        if fee.kind == "mixed":
            return (fee.maker_share * fee.maker_bps + (1 - fee.maker_share) * fee.taker_bps) / 1e4
        return fee.bps / 1e4

    def half_spread(self, row: int) -> float:
        fee, spread = self.config.costs.fee, self.config.costs.spread
        share = {"taker": 1.0, "maker": 0.0}.get(fee.kind)
        if share is None:
            share = 1 - fee.maker_share
        if spread.kind == "constant":
            return share * spread.half_bps / 1e4
        if spread.kind == "recorded":
            return share * self.bars.spread[row] / 2
        sigma = self.volatility(row, spread.window)
        return share * (spread.minimum_bps / 1e4 + spread.coefficient * sigma)

    def slippage_rate(self, row: int, units: float) -> float:
        slip = self.config.costs.slippage
        if slip.kind == "none":
            return 0.0
        volume = self.volume(row, slip.window)
        if volume == 0:
            return 0.0
        return slip.coefficient * self.volatility(row, slip.window) * math.sqrt(units / volume)

    def most_units(self, row: int) -> float:
        slip = self.config.costs.slippage
        if slip.kind == "none":
            return math.inf
        return slip.max_participation * self.volume(row, slip.window)

    def rate(self, row: int, units: float) -> float:
        return self.fee_rate() + self.half_spread(row) + self.slippage_rate(row, units)

    # --- one step ---------------------------------------------------------------------------------

    def target(self, action):
        actions = self.config.actions
        if actions.kind == "discrete":
            if action == len(actions.levels):
                return None
            fraction = actions.levels[int(action)]
        else:
            fraction = (action + 1) / 2 if actions.long_only else action
        return fraction * self.config.account.max_leverage

    def equity(self, price: float) -> float:
        return self.cash + self.units * price

    def fill_price(self, row: int) -> float:
        kind, bars = self.config.fill.price, self.bars
        if kind == "open":
            return bars.open[row]
        if kind == "close":
            return bars.close[row]
        return (bars.high[row] + bars.low[row] + bars.close[row]) / 3

    def step(self, action) -> dict:
        config, bars = self.config, self.bars
        row, arrival = self.row, self.row + 1
        mark, close = bars.close[row], bars.close[arrival]
        at_mark = config.fill.price == "close" and config.fill.delay == 0
        bar, price = (row, mark) if at_mark else (arrival, self.fill_price(arrival))
        before = self.equity(mark)
        drawdown_before = 1 - before / self.peak
        names = ("fees", "spread", "slippage", "funding", "borrow", "shortfall", "traded")
        self.book = dict.fromkeys(names, 0.0)
        self.book["price_pnl"] = self.units * (price - mark)
        blocked = bool(bars.no_trade is not None and bars.no_trade[bar])
        order = self.target(action)
        if blocked and config.no_trade.policy == "block":
            order = None
            self.queue = [None] * len(self.queue)
        self.queue.append(order)
        order = self.queue.pop(0)
        self.row, self.steps, self.since_trade = arrival, self.steps + 1, self.since_trade + 1
        closes = config.episodes.end == "final" and self.steps == config.episodes.length
        old_units, old_cash = self.units, self.cash
        terminated = self.is_ruined(price)
        if terminated:
            self.liquidate(bar, price)
        else:
            if order is not None:
                self.trade(bar, price, order)
            weight = {"open": 1.0, "vwap": 0.5, "close": 1.0 if at_mark else 0.0}[config.fill.price]
            held = weight * self.units + (1 - weight) * old_units
            held_cash = weight * self.cash + (1 - weight) * old_cash
            if bars.funding is not None:
                self.pay("funding", held * price * bars.funding[arrival])
            years = (bars.time[arrival] - bars.time[row]) / np.timedelta64(365, "D")
            short, debt = max(-held * price, 0.0), max(-held_cash, 0.0)
            rates = config.costs
            self.pay("borrow", years * (rates.borrow_rate * short + rates.margin_rate * debt))
            self.book["price_pnl"] += self.units * (close - price)
            if self.is_ruined(close):
                terminated = True
                self.liquidate(bar, close)
        after = self.equity(close)
        self.peak = max(self.peak, after)
        costs = sum(self.book[name] for name in ("fees", "spread", "slippage", "funding", "borrow"))
        rewarded = after if config.costs_in_reward else after + costs
        position = self.units * close / after if after > 0 else 0.0
        drawdown = 1 - after / self.peak
        terminated = terminated or closes
        raw = self.reward(before, rewarded, drawdown_before, drawdown, position, terminated)
        penalty = config.turnover_penalty * self.book["traded"] / before
        raw -= penalty
        bound = config.reward_clip or math.inf
        ended = self.steps >= self.length or arrival >= self.last_row
        return self.book | {
            "equity_before": before, "equity": after, "position": position, "reward_raw": raw,
            "reward": min(bound, max(-bound, raw)), "turnover_penalty": penalty,
            "cost_fraction": costs / before, "terminated": terminated,
            "truncated": ended and not terminated,
            "sample_weight": 0.0 if blocked and config.no_trade.policy == "block" else 1.0,
            "observation": self.observation(),
        }  # fmt: skip

    def pay(self, name: str, amount: float) -> None:
        self.book[name] += amount
        self.cash -= amount

    def is_ruined(self, price: float) -> bool:
        account = self.config.account
        equity = self.equity(price)
        if equity <= account.bankruptcy_fraction * account.initial_equity:
            return True
        return self.units != 0 and equity <= account.maintenance_margin * abs(self.units * price)

    def liquidate(self, bar: int, price: float) -> None:
        if self.units:
            self.execute(bar, price, -self.units)
        self.units = self.entry = 0.0
        if self.cash < 0 and not self.config.account.allow_negative_equity:
            self.book["shortfall"] = -self.cash
            self.cash = 0.0

    def execute(self, bar: int, price: float, units: float) -> None:
        notional = abs(units) * price
        self.cash -= units * price
        self.pay("fees", notional * self.fee_rate())
        self.pay("spread", notional * self.half_spread(bar))
        size = min(abs(units), self.most_units(bar))
        self.pay("slippage", notional * self.slippage_rate(bar, size))
        self.book["traded"] += notional
        if self.units == 0 or self.units * (self.units + units) <= 0:
            self.entry = price
        elif self.units * units > 0:
            self.entry = (self.units * self.entry + units * price) / (self.units + units)
        self.units += units

    def trade(self, bar: int, price: float, target: float) -> None:
        account = self.config.account
        equity, held = self.equity(price), self.units * price
        limit = account.max_notional or math.inf
        wanted = max(-limit, min(limit, target * equity))
        gap = wanted - held
        if abs(gap) <= 1e-12 * equity:
            return
        fraction = wanted / equity
        toward_zero = gap * fraction < 0
        # The trade that makes the position ``fraction`` of what is left after its own costs, with
        # the slippage of the largest trade it can be.
        largest = abs(held) if toward_zero else abs(gap)
        c = self.rate(bar, min(largest / price, self.most_units(bar)))
        if gap > 0:
            new = fraction * (equity + c * held) / (1 + fraction * c)
        else:
            new = fraction * (equity - c * held) / (1 - fraction * c)
        if new * fraction < 0:  # its costs would eat the equity: the position is only closed
            new = 0.0
        units = new / price
        if account.unit_step:
            steps = math.floor(abs(units) / account.unit_step + 1e-9)
            units = math.copysign(steps * account.unit_step, units)
        trade = units - self.units
        most = min(self.most_units(bar), (account.max_turnover or math.inf) * equity / price)
        if abs(trade) > most:
            trade = math.copysign(most, trade)
            if account.unit_step:
                steps = math.floor(abs(trade) / account.unit_step + 1e-9)
                trade = math.copysign(steps * account.unit_step, trade)
        notional = abs(trade) * price
        if notional < account.minimum_notional or notional < account.minimum_trade * equity:
            return
        if trade:
            self.execute(bar, price, trade)
            self.since_trade = 0

    # --- what is learned from ---------------------------------------------------------------------

    def reward(self, before, after, drawdown_before, drawdown, position, terminated) -> float:
        kind = self.config.reward
        floor = 1e-3 * self.config.account.initial_equity
        log_growth = math.log(max(after, floor) / max(before, floor))
        growth = (after - before) / max(before, floor)
        if kind.kind == "log_return":
            return log_growth
        if kind.kind == "simple_return":
            return growth
        if kind.kind == "drawdown_penalty":
            return log_growth - kind.coefficient * max(0.0, drawdown - drawdown_before)
        if kind.kind == "differential_sharpe":
            variance = self.square - self.mean**2
            change_mean, change_square = growth - self.mean, growth**2 - self.square
            value = 0.0
            if variance > kind.minimum_variance:
                value = (self.square * change_mean - self.mean * change_square / 2) / variance**1.5
            self.mean += kind.eta * change_mean
            self.square += kind.eta * change_square
            return value
        potential = 0.0
        if not terminated:
            risk = kind.position_weight * abs(position) + kind.drawdown_weight * drawdown
            potential = -math.tanh(risk)
        value = log_growth + kind.gamma * potential - self.potential
        self.potential = potential
        return value

    def observation(self) -> np.ndarray:
        seen, account = self.config.observation, self.config.account
        rows = range(self.row - seen.window + 1, self.row + 1)
        values = [float(x) for row in rows for x in self.features[row]]
        if seen.account_state:
            price = self.bars.close[self.row]
            equity = self.equity(price)
            size = max(equity, 0.0) * account.max_leverage / price
            values += [
                self.units * price / (equity * account.max_leverage) if equity > 0 else 0.0,
                self.units * (price - self.entry) / equity if equity > 0 else 0.0,
                1 - equity / self.peak,
                self.since_trade / (self.since_trade + 20),
                100 * self.rate(self.row, size),
                max(self.length - self.steps, 0) / self.length,
            ]
        return np.array(values, np.float32)
