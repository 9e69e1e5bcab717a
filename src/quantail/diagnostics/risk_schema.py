"""The metrics of tail risk, and of a limit on a mean cost."""

from dataclasses import dataclass

from quantail.diagnostics.schema import metric


@dataclass(frozen=True, slots=True, kw_only=True)
class RiskMetrics:
    """One cycle of learning with tail risk; CVaR is of discounted raw episode returns."""

    alpha: float = metric("risk/alpha", "fraction", "Share of episodes in the tail.")
    weight: float = metric(
        "train/cvar_lambda",
        "1",
        "Weight of CVaR beside the mean, or multiplier of its limit; sharpened until settling.",
    )
    target: float = metric("risk/target", "reward", "Budget with which episodes started.")
    scale: float = metric("train/cvar_scale", "reward", "Spread of returns, of drawn targets too.")
    cvar: float | None = metric(
        "train/cvar_empirical", "reward", "CVaR of recent episodes.", better="higher"
    )
    cvar_error: float | None = metric(
        "risk/cvar_standard_error", "reward", "Standard error of the CVaR of recent episodes."
    )
    tail_episodes: float | None = metric(
        "risk/tail_episodes",
        "1",
        "Recent episodes in the tail, on which the measured CVaR rests.",
        healthy=(10.0, 1e9),
    )
    predicted_cvar: float | None = metric(
        "train/cvar_raw", "reward", "CVaR that the critics predict at the start of an episode."
    )
    coverage: float | None = metric(
        "risk/tail_coverage",
        "fraction",
        "Share of episodes at or below the predicted quantile at alpha; alpha when calibrated.",
    )
    violation: float | None = metric(
        "train/cvar_violation",
        "reward",
        "How far CVaR is below its limit; 0 when the limit is met.",
        better="lower",
    )
    constraint_term: float | None = metric(
        "train/constraint_term", "1", "Multiplier times violation, in return scales."
    )
    infeasible: float = metric(
        "risk/infeasible",
        "1",
        "1 while the limit stays broken at the largest multiplier.",
        better="lower",
        healthy=(-0.5, 0.5),
        aggregate="last",
    )
    explore_share: float = metric(
        "risk/explore_share", "fraction", "Share of episodes that start from a drawn target."
    )
    tail_share: float | None = metric(
        "risk/tail_share",
        "fraction",
        "Share of rows whose action could still change the shortfall.",
    )
    advantage_std: float | None = metric(
        "risk/tail_advantage_std", "reward", "Spread of the tail advantages."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CostMetrics:
    """One cycle of learning under a limit on a mean cost; costs are discounted episode sums."""

    mean: float | None = metric(
        "cost/mean", "cost", "Mean cost of recent episodes.", better="lower"
    )
    standard_error: float | None = metric(
        "cost/standard_error", "cost", "Standard error of the mean cost of recent episodes."
    )
    episodes: float = metric("cost/episodes", "1", "Recent episodes behind the mean cost.")
    violation: float | None = metric(
        "cost/limit_violation",
        "cost",
        "How far the mean cost is above its limit; 0 when the limit is met.",
        better="lower",
    )
    multiplier: float = metric(
        "cost/multiplier", "1", "Weight of the cost beside the mean, both in their own spreads."
    )
    price: float = metric(
        "cost/price", "reward/cost", "Mean return that is given up for a unit of cost."
    )
    predicted: float | None = metric(
        "cost/predicted", "cost", "Mean cost that its critic predicts at the start of an episode."
    )
    infeasible: float = metric(
        "cost/infeasible",
        "1",
        "1 while the limit stays broken at the largest multiplier.",
        better="lower",
        healthy=(-0.5, 0.5),
        aggregate="last",
    )
    advantage_std: float = metric(
        "cost/advantage_std", "cost", "Spread of the advantages of the cost."
    )
    explained_variance: float | None = metric(
        "cost/explained_variance",
        "1",
        "Share of the variance of costs to come that the cost critic explains.",
        better="higher",
    )
    value_loss: float = metric(
        "cost/value_loss", "1", "Loss of the cost critic in cost scales.", better="lower"
    )
