"""Tail risk between the agent's arguments, its policy and its environment."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper, VecNormalize

from quantail.errors import ConfigError
from quantail.nets.actor_critic import PolicyConfig
from quantail.nets.budget import BudgetConfig
from quantail.nets.cost import CostCritic
from quantail.nets.critics import QuantileCritic
from quantail.risk.budget import TargetDraw
from quantail.risk.config import DualConfig, RiskConfig
from quantail.risk.control import RiskState, begun_anew, of_weights, target_draw
from quantail.risk.cost import CostLimit, CostState
from quantail.risk.cvar import warn_if_coarse
from quantail.risk.dual import DualState, first_dual
from quantail.sb3.normalization import check_raw_rewards

if TYPE_CHECKING:
    from quantail.sb3.agent import DistributionalPPO


def with_budget(
    policy_kwargs: dict[str, Any], risk: RiskConfig | None, gamma: float
) -> dict[str, Any]:
    """Return the policy's arguments with what tail risk needs.

    The policy sees its budget, and unless told otherwise its critics put their quantiles where
    the tail is.

    Raises:
        ConfigError: The arguments, as of a saved agent, have another budget.
    """
    if risk is None:
        if policy_kwargs.get("budget") is not None:
            raise ConfigError(
                "policy_kwargs has a budget, which has no effect without tail risk; give "
                "cvar_limit, cvar_weight or risk"
            )
        return policy_kwargs
    budget = BudgetConfig(discount=gamma, observed=risk.observe_budget)
    given = policy_kwargs.get("budget", budget)
    if given != budget:
        raise ConfigError(
            f"policy_kwargs['budget'] must be {budget}, by gamma and risk; was {given}. Leave it "
            "out, and keep gamma and risk of a saved agent"
        )
    critic = policy_kwargs.get("critic") or QuantileCritic(levels="tail", tail_alpha=risk.alpha)
    return {**policy_kwargs, "budget": budget, "critic": critic}


def with_cost_critic(
    policy_kwargs: dict[str, Any], cost: CostLimit | None, gamma: float
) -> dict[str, Any]:
    """Return the policy's arguments with the critic that a limit on a mean cost needs.

    Raises:
        ConfigError: The arguments, as of a saved agent, have another cost critic.
    """
    given = policy_kwargs.get("cost")
    if cost is None:
        if given is not None:
            raise ConfigError(
                "policy_kwargs has a cost critic, which has no effect without a limit on a mean "
                "cost; give cost=CostLimit(limit=...)"
            )
        return policy_kwargs
    critic = CostCritic(discount=gamma)
    if given not in (None, critic):
        raise ConfigError(
            f"policy_kwargs['cost'] must be {critic}, by gamma; was {given}. Leave it out, and "
            "keep gamma of a saved agent"
        )
    return {**policy_kwargs, "cost": critic}


def check_risk(risk: RiskConfig | None, network: PolicyConfig, env: VecEnv | None) -> None:
    """Refuse tail risk where it cannot be measured.

    Raises:
        ConfigError: The critics know no law, or rewards are not raw.
    """
    if risk is None:
        return
    if network.critic.kind == "scalar":
        raise ConfigError(
            "cvar_limit, cvar_weight and risk need critics that learn the law of returns; critic "
            "was scalar. Leave critic out, or use QuantileCritic or CategoricalCritic"
        )
    if isinstance(network.critic, QuantileCritic):
        warn_if_coarse(network.critic.edges().diff(), risk.alpha)
    check_raw_rewards(env, "tail risk")
    while isinstance(env, VecEnvWrapper):
        if isinstance(env, VecNormalize) and env.norm_reward:
            raise ConfigError(
                "tail risk is measured on raw rewards, and a VecNormalize with norm_reward=True "
                "scales and clips them; pass norm_reward=False. The critics scale returns "
                "themselves"
            )
        env = env.venv


def next_targets(model: "DistributionalPPO") -> TargetDraw | None:
    """Return from which budgets the next episodes start; None without tail risk."""
    risk, budget = model.learner_config.tail_risk, model.policy.net.budget
    if risk is None or budget is None:
        return None
    state = of_weights(model.train_state.risk, float(budget.target), float(budget.scale))
    return target_draw(risk, state, 1.0 - model._current_progress_remaining)


def resumed_risk(risk: RiskConfig | None, saved: RiskConfig | None, state: RiskState) -> RiskState:
    """Return where tail risk stands when an agent goes on, maybe with other settings.

    Another α, weight, limit or control starts the multiplier anew.
    """
    if risk is None or (saved is not None and _wanted(risk) == _wanted(saved)):
        return state
    return begun_anew(risk, state)


def _wanted(risk: RiskConfig) -> tuple[float, float | None, float | None, DualConfig]:
    return risk.alpha, risk.weight, risk.limit, risk.dual


def resumed_cost(cost: CostLimit | None, saved: CostLimit | None, state: CostState) -> CostState:
    """Return where a limit on a mean cost stands when an agent goes on, as for tail risk."""
    if cost is None or cost == saved:
        return state
    dual = first_dual(cost.dual) if state.active else DualState()
    return replace(state, dual=dual, warned_infeasible=False)
