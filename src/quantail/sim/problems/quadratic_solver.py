"""Trading with quadratic costs on a mean-reverting signal: closed form of Garleanu and Pedersen.

The agent sees f_t, chooses the position x_t and receives

    x_t f_t − (γ/2) x_t² − (λ/2)(x_t − x_{t−1})²,      f_{t+1} = (1 − φ) f_t + ε,  sd(f) = 1.

Every policy here is linear: trade a fraction k of the way from x_{t−1} to an aim m·f_t.

References:
    Garleanu and Pedersen, Dynamic Trading with Predictable Returns and Transaction Costs,
    Journal of Finance 68(6), 2013.
"""

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LinearRule:
    """x_t = x_{t−1} + trade_rate · (aim · f_t − x_{t−1})."""

    trade_rate: float
    aim: float


@dataclass(frozen=True, slots=True)
class QuadraticSolution:
    """The exact answer, with the three simpler rules beside it."""

    rules: dict[str, LinearRule]
    values: dict[str, float]
    """Mean reward per step of each rule in the stationary state."""
    base: str = "myopic"

    @property
    def optimal(self) -> LinearRule:
        """The best rule of all."""
        return self.rules["optimal"]


def optimal_rule(phi: float, risk: float, cost: float, discount: float = 1.0) -> LinearRule:
    """Return the rule that maximizes the (discounted) sum of rewards.

    With V(x, f) = −a x²/2 + b x f + const the Bellman equation gives, for discount β,

        a = λ − λ²/(γ + λ + βa)   ⇔   βa² + (γ + (1 − β)λ) a − γλ = 0
        b = λ(1 + βb(1 − φ))/(γ + λ + βa)

    and the rule x' = (λx + (1 + βb(1 − φ)) f)/(γ + λ + βa), whose trade rate is a/λ. At β = 1 this
    is a = (−γ + √(γ² + 4γλ))/2 and aim = 1/(γ + φa). The paper discounts the cost one step less
    than the return; its rule follows by passing cost/β here.
    """
    if cost == 0.0:
        return LinearRule(trade_rate=1.0, aim=1.0 / risk)
    linear = risk + (1.0 - discount) * cost
    a = (-linear + math.sqrt(linear * linear + 4.0 * discount * risk * cost)) / (2.0 * discount)
    denominator = risk + cost + discount * a
    b = cost / (denominator - cost * discount * (1.0 - phi))
    trade_rate = a / cost
    aim = (1.0 + discount * b * (1.0 - phi)) / (denominator * trade_rate)
    return LinearRule(trade_rate=trade_rate, aim=aim)


def rule_value(rule: LinearRule, phi: float, risk: float, cost: float) -> float:
    """Return the mean reward per step of a linear rule in the stationary state.

    With ρ = 1 − φ, k the trade rate and m the aim, the stationary moments are

        E[x f] = k m / (1 − (1 − k)ρ),   E[x²] = (k² m² + 2(1 − k) k m ρ E[x f]) / (1 − (1 − k)²),
        E[dx²] = k² (m² − 2 m ρ E[x f] + E[x²]).
    """
    k, m, rho = rule.trade_rate, rule.aim, 1.0 - phi
    cross = k * m / (1.0 - (1.0 - k) * rho)
    square = (k * k * m * m + 2.0 * (1.0 - k) * k * m * rho * cross) / (1.0 - (1.0 - k) ** 2)
    turnover = k * k * (m * m - 2.0 * m * rho * cross + square)
    return cross - 0.5 * risk * square - 0.5 * cost * turnover


def solve_quadratic(phi: float, risk: float, cost: float) -> QuadraticSolution:
    """Return the optimum and the myopic, scaled and plain Markowitz rules with their values."""
    rules = {
        "optimal": optimal_rule(phi, risk, cost),
        # argmax_x of the one-step reward, the cost of getting there included
        "myopic": LinearRule(trade_rate=risk / (risk + cost), aim=1.0 / risk),
        # x = m f at once: V = m − m²(γ/2 + λφ)
        "scaled_markowitz": LinearRule(trade_rate=1.0, aim=1.0 / (risk + 2.0 * cost * phi)),
        "markowitz": LinearRule(trade_rate=1.0, aim=1.0 / risk),
    }
    values = {name: rule_value(rule, phi, risk, cost) for name, rule in rules.items()}
    return QuadraticSolution(rules=rules, values=values)
