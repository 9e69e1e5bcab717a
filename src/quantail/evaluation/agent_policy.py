"""A trained agent in an evaluation: memory and budget carried, actions by mode or drawn."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from quantail.errors import ConfigError
from quantail.evaluation.policies import Forecast, Moment
from quantail.flow import PolicyState
from quantail.laws import ValueDistribution
from quantail.risk.budget import next_budget
from quantail.sb3.agent import DistributionalPPO
from quantail.sb3.environment import in_space
from quantail.sb3.policy import MlpPolicy
from quantail.types import FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class AgentState:
    """What an agent carries from step to step, and what its critics said at the latest one."""

    memory: PolicyState
    budget: Tensor | None
    """[N] in float64; None for an agent without risk target."""
    age: Tensor
    """[N], steps since the budget started."""
    values: tuple[ValueDistribution, ...]


class AgentPolicy:
    """An agent under the interface of an evaluation.

    Args:
        agent: The agent. Observations are normalized with the statistics of its ``VecNormalize``,
            if it has one; they do not move.
        deterministic: The most likely action, or one drawn from the policy's law.
        seed: Of the draws.
        budget_steps: Steps after which a budget starts anew though its episode goes on: those of an
            episode in training, over which its CVaR is meant. None carries it through. An agent
            without a budget does not ask.

    Raises:
        ConfigError: The agent's observations are no vectors, or a seed would have no effect.
    """

    def __init__(
        self,
        agent: DistributionalPPO,
        *,
        deterministic: bool = True,
        seed: int | None = None,
        budget_steps: int | None = None,
    ) -> None:
        if not isinstance(agent.policy, MlpPolicy) or len(agent.observation_space.shape or ()) != 1:
            raise ConfigError(
                "agent must observe vectors, as the market and the problems give them; its "
                f"observation space is {agent.observation_space}."
            )
        if deterministic != (seed is None):
            raise ConfigError(
                f"seed must be given if and only if actions are drawn; was {seed} with "
                f"deterministic={deterministic}."
            )
        self._policy = agent.policy
        self._normalize = agent.get_vec_normalize_env()
        self._budget_steps = budget_steps
        self._generator = None if seed is None else torch.Generator().manual_seed(seed)

    def act(self, moment: Moment, state: AgentState | None) -> tuple[NDArray[Any], AgentState]:
        """Return actions and what is carried on."""
        policy, n_envs = self._policy, len(moment.rows)
        if policy.training:
            policy.set_training_mode(False)
        seen: Any = moment.observations
        if self._normalize is not None:
            seen = self._normalize.normalize_obs(seen)
        tensors, _ = policy.obs_to_tensor(seen)
        starts = torch.as_tensor(moment.starts)
        memory = policy.net.initial_state(n_envs) if state is None else state.memory
        budget, age = self._budget(state, starts)
        with torch.no_grad():
            inputs = None if policy.net.budget is None else policy.net.budget(budget)
            output = policy.net.step(tensors, memory, starts, None, inputs)
            law = output.actions
            raw = law.mode() if self._generator is None else law.sample(self._generator)
            actions = in_space(law.to_env(raw).cpu().numpy(), policy.action_space)
        return actions, AgentState(output.state, budget, age, output.values)

    def receive(self, state: AgentState, rewards: FloatArray) -> AgentState:
        """Move the budget, b ← (b − r)/γ, if there is one."""
        inputs = self._policy.net.budget
        if inputs is None or state.budget is None:
            return state
        after = next_budget(state.budget, torch.as_tensor(rewards), inputs.config.discount)
        return replace(state, budget=after, age=state.age + 1)

    def forecast(self, state: AgentState) -> Forecast | None:
        """Return the mixture of the critics' laws; None for critics that know means only."""
        parts = [law.atoms() for law in state.values]
        if parts[0][0].shape[-1] < 2:
            return None
        atoms = torch.cat([part for part, _ in parts], dim=-1).double().cpu().numpy()
        weights = torch.cat([part.expand(atoms.shape[0], -1) for _, part in parts], dim=-1)
        shares = weights.double().cpu().numpy() / len(parts)
        order = np.argsort(atoms, axis=1, kind="stable")
        return Forecast(
            np.take_along_axis(atoms, order, axis=1), np.take_along_axis(shares, order, axis=1)
        )

    def _budget(self, state: AgentState | None, starts: Tensor) -> tuple[Tensor | None, Tensor]:
        """Return budgets [N], None without tail risk, and the steps since they started, [N]."""
        inputs, none = self._policy.net.budget, torch.zeros(len(starts), dtype=torch.int64)
        if inputs is None:
            return None, none
        target = inputs.target.expand(len(starts))
        if state is None or state.budget is None:
            return target, none
        anew = starts
        if self._budget_steps is not None:
            anew = starts | (state.age >= self._budget_steps)
        return torch.where(anew, target, state.budget), torch.where(anew, none, state.age)
