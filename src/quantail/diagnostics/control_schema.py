"""The metrics of the controllers."""

from dataclasses import dataclass

from quantail.diagnostics.declaration import metric


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlMetrics:
    """What the controllers did in one cycle; None where a controller is not there."""

    critic_learning_rate: float | None = metric(
        "train/critic_learning_rate",
        "1",
        "Learning rate of the critics' own parts.",
        aggregate="last",
    )
    entropy_raw: float | None = metric(
        "train/ent_coef_raw", "1", "Entropy coefficient before floor and boost.", aggregate="last"
    )
    entropy_nominal: float | None = metric(
        "train/ent_coef_nominal", "1", "Entropy coefficient before the boost.", aggregate="last"
    )
    policy_entropy: float = metric(
        "train/policy_entropy_raw", "nats", "Mean base entropy of the acting policy."
    )
    entropy_slope: float | None = metric(
        "train/policy_entropy_slope", "nats", "Slope of the base entropy, per cycle."
    )
    entropy_decay_start: float | None = metric(
        "train/entropy_decay_start_update",
        "1",
        "Cycle at which the decay started.",
        aggregate="last",
    )
    sampled_kl: float = metric(
        "train/approx_kl_k3", "nats", "KL(acting || new) from the sampled actions."
    )
    kl_target: float | None = metric(
        "train/kl_target", "nats", "KL that the cycle should stay below.", aggregate="last"
    )
    kl_exceeded: float | None = metric(
        "train/kl_exceed_frac", "fraction", "Share of minibatches with a KL above the target."
    )
    kl_epoch_factor: float | None = metric(
        "train/kl_epoch_factor",
        "1",
        "Share of the epochs that the next cycle may have.",
        aggregate="last",
    )
    kl_rate_factor: float | None = metric(
        "train/kl_lr_factor",
        "1",
        "What the KL controller multiplied learning rates by.",
        aggregate="last",
    )
    kl_penalty: float | None = metric(
        "train/kl_penalty_beta", "1", "Coefficient of the KL penalty.", aggregate="last"
    )
    kl_penalty_loss: float | None = metric(
        "train/policy_loss_kl_penalty", "1", "The KL penalty as added to the loss."
    )
    kl_penalty_error: float | None = metric(
        "train/kl_penalty_error", "1", "KL over target, minus 1.", aggregate="last"
    )
    kl_penalty_p: float | None = metric(
        "train/kl_penalty_pid_p", "1", "Proportional part of the penalty.", aggregate="last"
    )
    kl_penalty_i: float | None = metric(
        "train/kl_penalty_pid_i", "1", "Integral part of the penalty.", aggregate="last"
    )
    kl_penalty_d: float | None = metric(
        "train/kl_penalty_pid_d", "1", "Derivative part of the penalty.", aggregate="last"
    )
    imitation_coefficient: float | None = metric(
        "train/policy_bc_coef", "1", "Coefficient of the imitation term.", aggregate="last"
    )
    imitation_loss: float | None = metric(
        "train/policy_loss_bc", "nats", "Imitation loss before its coefficient."
    )
    imitation_weighted: float | None = metric(
        "train/policy_loss_bc_weighted", "1", "Imitation loss as added."
    )
    imitation_share: float | None = metric(
        "train/bc_loss_ratio",
        "fraction",
        "Share of the imitation term in the sizes of the actor's two losses.",
        healthy=(-0.01, 0.8),
    )
    imitation_dominates: float | None = metric(
        "warn/bc_loss_dominates", "1", "1 when that share is above 0.8.", aggregate="last"
    )
    severe_log_ratio: float = metric(
        "warn/log_ratio_severe_instability",
        "1",
        "1 when an absolute log-ratio is above 10.",
        healthy=(-0.5, 0.5),
        aggregate="last",
    )
    explained_variance_after: float | None = metric(
        "train/explained_variance_after",
        "1",
        "Share of the variance of returns that the updated critics explain, without clipping.",
        better="higher",
    )
    explained_variance_mean: float | None = metric(
        "train/ev/mean_grouped", "1", "Mean over groups, where it is defined.", better="higher"
    )
    explained_variance_median: float | None = metric(
        "train/ev/median_grouped", "1", "Median over groups, where it is defined.", better="higher"
    )
    rolled_back: float = metric(
        "error/rolled_back",
        "1",
        "1 when the last healthy weights were put back.",
        healthy=(-0.5, 0.5),
        aggregate="last",
    )
    normalizer_mean_drift: float | None = metric(
        "debug/normalizer_mean_drift",
        "1",
        "Move of the policy's own observation means after this rollout, in deviations.",
    )
    normalizer_std_drift: float | None = metric(
        "debug/normalizer_std_drift", "1", "The same of the deviations, in logarithms."
    )
