"""Train with memory on a CartPole that hides its velocities, and look at the tail of returns.

Usage: python examples/train_cartpole.py [steps]
"""

import sys

import gymnasium as gym
import numpy as np
from gymnasium.wrappers import TransformObservation
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy

from quantail import DistributionalPPO


def positions_only(env: gym.Env) -> gym.Env:
    """Show the cart's position and the pole's angle, not their velocities."""
    space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    return TransformObservation(env, lambda observation: observation[[0, 2]], space)


def main(steps: int) -> None:
    """Train, evaluate, and print what the critic expects of a fresh episode."""
    env = make_vec_env("CartPole-v1", 8, seed=0, wrapper_class=positions_only)
    model = DistributionalPPO(
        "MlpLstmPolicy", env, n_steps=128, batch_size=256, gamma=0.98, seed=0, verbose=1
    )
    model.learn(steps)
    mean, std = evaluate_policy(model, model.get_env(), n_eval_episodes=10)
    print(f"return {mean:.0f} ± {std:.0f} over 10 episodes")

    observation, _ = model.policy.obs_to_tensor(env.reset())
    start = np.ones(8, bool)
    law = model.policy.net.step(
        observation, model.policy.net.initial_state(8), observation.new_tensor(start).bool()
    ).values[0]
    mean_return, tail = float(law.mean()[0]), float(law.cvar(0.05)[0])
    print(f"discounted return at the start: mean {mean_return:.1f}, CVaR 5 % {tail:.1f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000)
