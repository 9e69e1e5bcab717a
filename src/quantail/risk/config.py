"""How tail risk enters the objective."""

from typing import Annotated, Literal

from annotated_types import Ge, Gt, Le, Lt

from quantail.config_class import config
from quantail.errors import ConfigError


@config
class DualConfig:
    """PID control of the multiplier of a limit, in units of the return scale."""

    start: Annotated[float, Ge(0)] = 0.3
    """Multiplier at first. A policy that starts out careless forgets to explore what is safer."""
    hold: Annotated[float, Ge(0), Lt(1)] = 0.5
    """Share of training in which the multiplier stays at ``start``: a policy that still explores
    breaks limits that it will keep later, and a multiplier that answers to it goes too far."""
    proportional: Annotated[float, Ge(0)] = 0.05
    """Multiplier per smoothed violation."""
    integral: Annotated[float, Ge(0)] = 0.03
    """Multiplier per violation and update."""
    derivative: Annotated[float, Ge(0)] = 0.2
    """Multiplier per growth of the smoothed violation in one update."""
    smoothing: Annotated[float, Ge(0), Lt(1)] = 0.8
    """Weight of the past in the smoothed violation."""
    slack: Annotated[float, Ge(0)] = 0.02
    """Return scales by which a limit may be over-fulfilled before the multiplier falls."""
    relief: Annotated[float, Gt(0), Le(1)] = 0.3
    """Factor on the error of a limit that is over-fulfilled: a policy that has become bold shows it
    late, so the multiplier falls more slowly than it rises."""
    cap: Annotated[float, Gt(0)] = 5.0
    """Largest multiplier."""
    patience: Annotated[int, Ge(1)] = 20
    """Updates at the cap with the limit still broken after which it is called infeasible."""

    def check(self) -> None:
        """Refuse a control that cannot act."""
        if self.start > self.cap:
            raise ConfigError(f"dual.start must be at most dual.cap ({self.cap}); was {self.start}")
        if self.proportional == self.integral == 0:
            raise ConfigError(
                "dual.proportional and dual.integral were both 0, so the multiplier would never "
                "rise; set one of them"
            )


@config
class TargetSearch:
    """How the target ν of the Rockafellar-Uryasev form is found.

    Episodes start from targets drawn over the range of returns, so that a policy that sees its
    budget learns all of them. The target that promises the best objective wins slowly; after
    ``settle`` it stays, and the policy trains at it alone.
    """

    share: Annotated[float, Ge(0), Le(1)] = 0.8
    """Share of episodes with a drawn target until ``settle``."""
    focus: Annotated[float, Ge(0)] = 0.0
    """How much closer to the present target others are drawn: by the factor s^focus, s uniform in
    [0, 1]. 0 draws evenly; 1 tells good targets apart with fewer episodes, but gives policies that
    stop exploring less variety to learn from."""
    settle: Annotated[float, Gt(0), Le(1)] = 0.5
    """Share of training after which the target stays."""
    sharpness: Annotated[float, Ge(0)] = 0.3
    """Least weight of the tail until ``settle``: targets are told apart by policies that answer to
    them, which at a small weight takes far more episodes."""
    final: Literal["kept", "quantile"] = "kept"
    """What becomes of the target at ``settle``: it stays as it is, or it becomes the α-quantile of
    the episodes from it, which is the best target for the policy as it stands. Where returns take
    few values it then is one of them; a target between two of them rewards neither side clearly."""
    grid: Annotated[int, Ge(3)] = 33
    """Targets compared."""
    curve_rate: Annotated[float, Gt(0), Le(1)] = 0.05
    """Weight of an update in the smoothed prediction for each target."""
    episode_rate: Annotated[float, Gt(0), Le(1)] = 0.03
    """Weight that older episodes lose in an update, where they correct the prediction."""
    rate: Annotated[float, Gt(0), Le(1)] = 0.1
    """Share of the way to a better target that is gone in one update."""
    price: Annotated[float, Gt(0)] = 1.0
    """What missing a limit by 1 counts in mean, where targets are compared: more than the
    multiplier is likely to be, and not much more, as it also counts for the noise of the tail."""
    hysteresis: Annotated[float, Ge(0)] = 0.002
    """Return scales by which another target must be better."""

    def check(self) -> None:
        """Refuse a focus of targets that are never drawn."""
        if self.focus and not self.share:
            raise ConfigError(
                f"search.focus has no effect with search.share 0; was {self.focus}. Leave it out, "
                "or draw some targets"
            )


@config
class RiskConfig:
    """What the policy maximizes beside the mean: E[G] + weight·CVaR_α(G), or E[G] under a limit.

    G is the discounted sum of an episode's raw rewards; CVaR_α is the mean of its worst α share.
    """

    alpha: Annotated[float, Gt(0), Lt(1)] = 0.05
    """α, the share of episodes in the tail."""
    weight: Annotated[float, Gt(0)] | None = None
    """Fixed weight of CVaR beside the mean."""
    limit: float | None = None
    """CVaR must be at least this, in discounted return of an episode; losses are negative."""
    dual: DualConfig = DualConfig()
    """How the multiplier of the limit is found."""
    search: TargetSearch = TargetSearch()
    """How the target ν is found."""
    observe_budget: bool = True
    """Policy and critics see the budget. Without it static CVaR cannot be optimized; False is for
    controlled experiments."""
    anneal: Annotated[float, Ge(0), Le(1)] = 0.0
    """Share of training in which α falls from 1 to its value; helps when the tail alone hides the
    way to better episodes, as it may with a large weight."""

    def check(self) -> None:
        """Refuse neither or both of weight and limit, and settings without effect."""
        if (self.weight is None) == (self.limit is None):
            raise ConfigError(
                "Give exactly one of cvar_weight (a fixed trade-off) and cvar_limit (a least "
                f"CVaR); were {self.weight} and {self.limit}"
            )
        if self.weight is not None and self.dual != DualConfig():
            raise ConfigError(
                "risk.dual has no effect with a fixed cvar_weight; leave it out, or give cvar_limit"
            )
        if self.anneal > self.search.settle:
            raise ConfigError(
                f"anneal must be at most search.settle ({self.search.settle}), as the target would "
                f"be chosen for another alpha; was {self.anneal}"
            )
        if self.limit is not None and self.anneal > self.dual.hold:
            raise ConfigError(
                f"anneal must be at most dual.hold ({self.dual.hold}), as the multiplier would "
                f"answer for a policy of another alpha; was {self.anneal}"
            )


def risk_config(
    alpha: float | None, limit: float | None, weight: float | None, risk: RiskConfig | None
) -> RiskConfig | None:
    """Put the everyday arguments and the full configuration together.

    Raises:
        ConfigError: Both were given, or a level without a weight or limit.
    """
    given = {"cvar_alpha": alpha, "cvar_limit": limit, "cvar_weight": weight}
    named = [name for name, value in given.items() if value is not None]
    if risk is not None:
        if named:
            raise ConfigError(
                f"{', '.join(named)} has no effect beside risk, which has its own; set it in "
                "RiskConfig(alpha=, limit=, weight=)"
            )
        return risk
    if not named:
        return None
    if alpha is None:
        return RiskConfig(limit=limit, weight=weight)
    return RiskConfig(alpha=alpha, limit=limit, weight=weight)
