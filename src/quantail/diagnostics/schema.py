"""Every metric, declared once.

The metrics of a stage are a frozen dataclass; a field's declaration says what it means::

    @dataclass(frozen=True, slots=True)
    class PolicyMetrics:
        approx_kl: float = metric("train/approx_kl", "nats", "KL(old || new).", better="lower")

Code records by filling the dataclass, so a misspelled metric is a type error; tags are written only
here. Sinks get ``tagged(record)``; documentation, health rules and objectives read ``declared``.
"""

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from quantail.errors import ConfigError

Better = Literal["higher", "lower", "neither"]
Aggregation = Literal["mean", "sum", "min", "max", "last"]

_KEY: Final = "metric"
_TAG: Final = re.compile(r"[a-z]+(/[a-z0-9_]+)+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """What a number means and how to treat it."""

    tag: str
    """Name on every dashboard, ``group/name``."""
    unit: str
    """``nats``, ``steps``, ``fraction``, ...; ``1`` for pure numbers."""
    sentence: str
    """What it is, in one sentence."""
    better: Better
    healthy: tuple[float, float] | None
    """Range outside which the number deserves a look; None where there is none."""
    aggregate: Aggregation
    """How several values of one update become one."""

    def __post_init__(self) -> None:
        if not _TAG.fullmatch(self.tag):
            raise ValueError(f"metric tag {self.tag!r} must read group/name in lower case")
        if not self.sentence.endswith("."):
            raise ValueError(f"metric {self.tag}: the sentence must end with a period")
        if self.healthy is not None and not self.healthy[0] < self.healthy[1]:
            raise ValueError(f"metric {self.tag}: healthy range {self.healthy} is empty")


def metric(
    tag: str,
    unit: str,
    sentence: str,
    *,
    better: Better = "neither",
    healthy: tuple[float, float] | None = None,
    aggregate: Aggregation = "mean",
) -> Any:
    """Declare a metric as a dataclass field."""
    declaration = Metric(
        tag=tag, unit=unit, sentence=sentence, better=better, healthy=healthy, aggregate=aggregate
    )
    return dataclasses.field(metadata={_KEY: declaration})


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricFamily:
    """Metrics that differ in a few names only, such as one per layer."""

    pattern: str
    """Tag with names in braces."""
    unit: str
    sentence: str

    def tag(self, **names: str | int) -> str:
        """Return the tag of one member."""
        return self.pattern.format(**names)


def declared(*groups: type) -> dict[str, Metric]:
    """Return tag -> declaration for all metrics of ``groups``.

    Raises:
        ValueError: A field without declaration, or one tag declared twice.
    """
    found: dict[str, Metric] = {}
    for group in groups:
        for field in dataclasses.fields(group):
            where = f"{group.__name__}.{field.name}"
            if _KEY not in field.metadata:
                raise ValueError(f"{where} is not declared with metric(...)")
            declaration: Metric = field.metadata[_KEY]
            if declaration.tag in found:
                raise ValueError(f"{where} declares {declaration.tag} a second time")
            found[declaration.tag] = declaration
    return found


def tagged(record: Any) -> dict[str, float]:
    """Return tag -> value for a filled group; metrics that are None this time are left out."""
    return {
        field.metadata[_KEY].tag: float(value)
        for field in dataclasses.fields(record)
        if (value := getattr(record, field.name)) is not None
    }


def find_metric(tag: str, known: Mapping[str, Metric], parameter: str) -> Metric:
    """Return the declaration of ``tag``; ``parameter`` is the setting that asked for it.

    Raises:
        ConfigError: No such metric is declared.
    """
    if tag not in known:
        allowed = ", ".join(sorted(known)) or "none yet"
        raise ConfigError(f"{parameter} must name a declared metric ({allowed}); was {tag!r}")
    return known[tag]


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetrics:
    """One cycle of learning; the names of Stable-Baselines3 where it has one."""

    loss: float = metric("train/loss", "1", "Sum of all loss terms.", better="neither")
    policy_loss: float = metric(
        "train/policy_gradient_loss", "1", "Clipped surrogate loss.", better="neither"
    )
    entropy_loss: float = metric("train/entropy_loss", "nats", "Minus the mean policy entropy.")
    value_loss: float = metric(
        "train/value_loss", "1", "Mean loss of the critics in return scales.", better="lower"
    )
    critic1_loss: float = metric("train/twin_critics/critic_1_loss", "1", "Loss of critic 1.")
    critic2_loss: float | None = metric(
        "train/twin_critics/critic_2_loss", "1", "Loss of critic 2."
    )
    approx_kl: float = metric(
        "train/approx_kl", "nats", "Mean KL(acting policy || new policy).", healthy=(0.0, 0.1)
    )
    clip_fraction: float = metric(
        "train/clip_fraction", "fraction", "Share of rows with a ratio outside the clip range."
    )
    ratio_mean: float = metric(
        "train/ratio_mean", "1", "Mean probability ratio.", healthy=(0.9, 1.1)
    )
    log_ratio_mean: float = metric("train/log_ratio_mean", "nats", "Mean log-ratio.")
    log_ratio_std: float = metric("train/log_ratio_std", "nats", "Spread of the log-ratio.")
    log_ratio_max_abs: float = metric(
        "train/log_ratio_max_abs",
        "nats",
        "Largest absolute log-ratio before the guard.",
        better="lower",
        healthy=(0.0, 5.0),
        aggregate="max",
    )
    log_ratio_extreme_fraction: float = metric(
        "train/log_ratio_extreme_fraction",
        "fraction",
        "Share of rows with an absolute log-ratio above 10.",
        better="lower",
        healthy=(0.0, 0.001),
    )
    log_ratio_clamp_fraction: float = metric(
        "train/log_ratio_clamp_frac",
        "fraction",
        "Share of rows held at the overflow guard of the log-ratio.",
        better="lower",
        healthy=(0.0, 0.001),
    )
    log_ratio_nan_count: float = metric(
        "error/log_ratio_nan_count", "rows", "Log-ratios that were NaN.", aggregate="sum"
    )
    log_ratio_inf_count: float = metric(
        "error/log_ratio_inf_count", "rows", "Log-ratios that were infinite.", aggregate="sum"
    )
    skipped_microbatches: float = metric(
        "error/skipped_microbatches", "1", "Micro-batches left out as not finite.", aggregate="sum"
    )
    grad_norm: float = metric("train/grad_norm_pre_clip", "1", "Gradient norm before clipping.")
    grad_norm_clipped: float = metric(
        "train/grad_norm_post_clip", "1", "Gradient norm after clipping."
    )
    critic1_grad_norm: float = metric(
        "train/critic1_grad_norm", "1", "Gradient norm of critic 1 before clipping."
    )
    critic2_grad_norm: float | None = metric(
        "train/critic2_grad_norm", "1", "Gradient norm of critic 2 before clipping."
    )
    critics_grad_ratio: float | None = metric(
        "train/critics_grad_ratio",
        "1",
        "Gradient norm of critic 1 over that of critic 2.",
        healthy=(0.01, 100.0),
    )
    critics_imbalanced: float | None = metric(
        "warn/twin_critics_gradient_imbalance",
        "1",
        "1 when the critics' gradient norms differ by a factor of more than 100.",
        better="lower",
        healthy=(-0.5, 0.5),
        aggregate="last",
    )
    critic1_vanishing: float = metric(
        "warn/critic1_vanishing_gradients",
        "1",
        "1 when the gradient norm of critic 1 is below 1e-8.",
        better="lower",
        healthy=(-0.5, 0.5),
        aggregate="last",
    )
    critic2_vanishing: float | None = metric(
        "warn/critic2_vanishing_gradients",
        "1",
        "1 when the gradient norm of critic 2 is below 1e-8.",
        better="lower",
        healthy=(-0.5, 0.5),
        aggregate="last",
    )
    advantages_mean: float = metric(
        "train/advantages_mean_raw", "reward", "Mean advantage before normalization."
    )
    advantages_std: float = metric(
        "train/advantages_std_raw", "reward", "Spread of advantages before normalization."
    )
    advantages_max_abs: float = metric(
        "train/advantages_norm_max_abs",
        "1",
        "Largest absolute advantage after normalization.",
        healthy=(0.0, 100.0),
        aggregate="max",
    )
    explained_variance: float = metric(
        "train/explained_variance",
        "1",
        "Share of the variance of returns that the acting pass's values explain.",
        better="higher",
    )
    learning_rate: float = metric(
        "train/learning_rate", "1", "Learning rate of this cycle's steps.", aggregate="last"
    )
    clip_range: float = metric("train/clip_range", "1", "Clip range in use.", aggregate="last")
    entropy_coefficient: float = metric(
        "train/ent_coef", "1", "Entropy coefficient in use.", aggregate="last"
    )
    value_coefficient: float = metric(
        "train/vf_coef", "1", "Value coefficient in use.", aggregate="last"
    )
    epochs: float = metric("train/n_epochs_completed", "1", "Epochs begun.", aggregate="last")
    stopped_early: float = metric(
        "train/kl_early_stop", "1", "1 when the KL stop ended the epochs.", aggregate="last"
    )


CORE_STATE: Final = MetricFamily(
    pattern="lstm/{core}_{part}_layer{layer}_{statistic}",
    unit="1",
    sentence="Mean, std or mean norm of one part of a recurrent state, over a rollout's chunks.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunMetrics:
    """One rollout of a run, beside what the learner records."""

    reward_mean: float = metric(
        "rollout/reward_mean", "reward", "Mean reward per step of the rollout.", better="higher"
    )
    predicted_cvar: float | None = metric(
        "rollout/predicted_cvar",
        "reward",
        "Mean CVaR of the discounted return that the first critic predicts, worst 5 %.",
        better="higher",
    )
    action_spread: float = metric(
        "rollout/action_spread",
        "1",
        "Share of rows off the most frequent choice; standard deviation of continuous actions.",
    )
    constant_action: float = metric(
        "health/constant_action",
        "1",
        "1 when the policy does the same whatever it sees.",
        better="lower",
        healthy=(-0.5, 0.5),
        aggregate="last",
    )
    cost_scale: float = metric(
        "market/cost_scale", "1", "Share of the full trading costs that is charged."
    )
    steps_per_second: float = metric(
        "time/steps_per_second",
        "1/s",
        "Steps since the start over the time since.",
        better="higher",
    )
    collect_share: float = metric("time/collect_share", "fraction", "Time spent acting.")
    learn_share: float = metric("time/learn_share", "fraction", "Time spent learning.")
    validate_share: float = metric("time/validate_share", "fraction", "Time spent validating.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationMetrics:
    """One trial of an agent on validation data, at full cost."""

    score: float = metric(
        "validation/score", "1", "The metric that agents are ranked by.", better="higher"
    )
    fraction_of_optimum: float | None = metric(
        "validation/fraction_of_optimum",
        "fraction",
        "0 for the best trivial policy, 1 for the best possible one.",
        better="higher",
    )
