"""One rollout as Stable-Baselines3 sees it: callbacks, buffers, and who counts the steps."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import VecEnv
from torch import Tensor

from quantail.diagnostics.schema import tagged
from quantail.errors import DataError
from quantail.flow import PolicyOutput
from quantail.rollout.collect import Draw, StoppedError, collect, start
from quantail.rollout.environment import EnvStep
from quantail.sb3.buffer import fill_buffer
from quantail.sb3.distributions import stored_actions
from quantail.sb3.environment import SB3Environment
from quantail.sb3.exploration import state_noise
from quantail.sb3.normalization import WatchedStatistics
from quantail.sb3.risk import next_targets

if TYPE_CHECKING:
    from quantail.sb3.agent import DistributionalPPO


def act(
    model: "DistributionalPPO",
    env: VecEnv,
    callback: BaseCallback,
    rollout_buffer: RolloutBuffer,
    n_rollout_steps: int,
) -> bool:
    """Act for ``n_rollout_steps`` steps; False when a callback asked to stop."""
    model.policy.set_training_mode(False)
    environment = SB3Environment(env, reads_costs=model.learner_config.cost is not None)
    targets = next_targets(model)
    if model._carry is None:
        assert model._last_obs is not None
        masks = environment.action_masks()
        model._carry = start(
            model.policy.net, model._last_obs, masks, env.num_envs, targets, model._generator
        )
    draw: Draw | None = None
    if model.use_sde:
        draw = state_noise(model.policy, env.num_envs, model.sde_sample_freq, model._generator)
    key = model.learner_config.explained_variance.groups
    groups: list[list[str]] = []
    callback.on_rollout_start()

    def on_step(step: int, output: PolicyOutput, raw: Tensor, result: EnvStep) -> bool:
        model.num_timesteps += env.num_envs
        done = result.terminated | result.truncated
        model._last_obs, model._last_episode_starts = result.observations, done
        watched.record(done)
        if key is not None:
            groups.append(_groups(key, result))
        callback.update_locals(
            {
                "self": model,
                "env": env,
                "rollout_buffer": rollout_buffer,
                "n_steps": step,
                "n_rollout_steps": n_rollout_steps,
                "actions": stored_actions(output.actions, raw).cpu().numpy(),
                "new_obs": result.observations,
                "rewards": result.rewards,
                "dones": done,
                "infos": result.infos,
            }
        )
        if not callback.on_step():
            return False
        model._update_info_buffer(result.infos, done)  # type: ignore[arg-type]
        return True

    with WatchedStatistics(env, freeze=model.freeze_normalizer) as watched:
        try:
            rollout, model._carry = collect(
                model.policy.net,
                environment,
                model._carry,
                n_rollout_steps,
                model._length,
                model._generator,
                on_step,
                draw,
                targets,
            )
        except StoppedError as stopped:
            model._carry = stopped.carry
            return False
    for tag, value in tagged(watched.metrics()).items():
        model.logger.record(tag, value)
    model._rollout = replace(rollout, groups=groups or None)
    fill_buffer(rollout_buffer, model._rollout, model.policy.net.config.twin)
    callback.update_locals({"rollout": model._rollout})
    callback.on_rollout_end()
    return True


def _groups(key: str, result: EnvStep) -> list[str]:
    """Return the group of each environment at one step."""
    if key == "env":
        return [f"env{index}" for index in range(len(result.rewards))]
    missing = [index for index, info in enumerate(result.infos) if key not in info]
    if missing:
        raise DataError(
            f"explained_variance.groups is {key!r}, and environment(s) {missing[:5]} gave no such "
            "key in info; name a key that every step has, or 'env'"
        )
    return [_name(info[key]) for info in result.infos]


def _name(value: Any) -> str:
    """Return a group's name in the characters that a metric may have."""
    return "".join(c if c.isalnum() else "_" for c in str(value).lower())
