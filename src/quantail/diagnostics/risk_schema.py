"""The metrics of tail risk."""

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
