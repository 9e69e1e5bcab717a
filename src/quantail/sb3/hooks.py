"""A run's hooks into Stable-Baselines3's training loop: what it calls, in plain terms."""

from collections.abc import Mapping
from typing import Any, Protocol

from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import KVWriter, Logger
from stable_baselines3.common.vec_env import VecEnv

from quantail.flow import Rollout
from quantail.sb3.agent import DistributionalPPO


class TrainingHooks(Protocol):
    """What a run wants to know and to decide while an agent learns."""

    def before_rollout(self, step: int) -> None:
        """Acting is about to start; ``step`` is the number of steps so far."""

    def should_stop(self) -> bool:
        """Whether to stop now; asked after every step."""

    def after_rollout(self, step: int, rollout: Rollout) -> None:
        """Acting has ended; learning from it is about to start."""

    def on_metrics(self, step: int, row: Mapping[str, float]) -> None:
        """What was recorded since the last call."""


def train(
    agent: DistributionalPPO, env: VecEnv, steps: int, hooks: TrainingHooks
) -> DistributionalPPO:
    """Let ``agent`` learn in ``env`` for ``steps`` steps; its records go to the hooks alone."""
    agent.set_env(env)
    agent.set_logger(Logger(folder=None, output_formats=[_Rows(hooks)]))
    agent.learn(steps, _HookCallback(hooks))
    agent.logger.dump(agent.num_timesteps)  # what the last update recorded
    return agent


class _HookCallback(BaseCallback):
    def __init__(self, hooks: TrainingHooks) -> None:
        super().__init__()
        self._hooks = hooks

    def _on_rollout_start(self) -> None:
        self._hooks.before_rollout(self.num_timesteps)

    def _on_step(self) -> bool:
        return not self._hooks.should_stop()

    def _on_rollout_end(self) -> None:
        self._hooks.after_rollout(self.model.num_timesteps, self.locals["rollout"])


class _Rows(KVWriter):
    """Passes on the numbers of each dump; text is left out."""

    def __init__(self, hooks: TrainingHooks) -> None:
        self._hooks = hooks

    def write(
        self,
        key_values: dict[str, Any],
        key_excluded: dict[str, tuple[str, ...]],
        step: int = 0,
    ) -> None:
        numbers = {
            key: float(value)
            for key, value in key_values.items()
            if isinstance(value, int | float) or hasattr(value, "item")
        }
        if numbers:
            self._hooks.on_metrics(step, numbers)

    def close(self) -> None:
        pass
