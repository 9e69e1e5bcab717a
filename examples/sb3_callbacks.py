"""Evaluate, checkpoint and track an agent while it trains, with Stable-Baselines3's own tools.

Usage: python examples/sb3_callbacks.py [steps] [folder]
"""

import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import numpy as np
from stable_baselines3.common.callbacks import BaseCallback, CheckpointCallback, EvalCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import VecNormalize
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from quantail import DistributionalPPO

Track = Callable[[int, str, float], None]


class TensorBoardSync(BaseCallback):
    """Hands every scalar that reaches the TensorBoard files to a tracker.

    ``wandb.init(sync_tensorboard=True)`` before the agent is made does this for W&B; this is what
    it takes for a tracker of your own.

    Args:
        track: Called with step, name and value.
    """

    def __init__(self, track: Track) -> None:
        super().__init__()
        self.track = track
        self.sent: dict[str, int] = defaultdict(int)

    def _on_step(self) -> bool:
        return True

    def _on_rollout_start(self) -> None:
        self.sync()

    def _on_training_end(self) -> None:
        self.logger.dump(self.num_timesteps)  # what the last update recorded
        self.sync()

    def sync(self) -> None:
        """Hand over what is new."""
        events = EventAccumulator(self.logger.dir)
        events.Reload()
        for tag in events.Tags()["scalars"]:
            scalars = events.Scalars(tag)
            for event in scalars[self.sent[tag] :]:
                self.track(event.step, tag, event.value)
            self.sent[tag] = len(scalars)


def pendulum(n_envs: int, seed: int, training: bool) -> VecNormalize:
    """Return environments with normalized observations; rewards are scaled inside the critics."""
    env = make_vec_env("Pendulum-v1", n_envs, seed=seed)
    return VecNormalize(env, training=training, norm_reward=False)


def main(steps: int, folder: Path) -> None:
    """Train with callbacks, then load the best agent and look at it again."""
    history: dict[str, list[tuple[int, float]]] = defaultdict(list)
    callbacks = [
        EvalCallback(
            pendulum(4, 1, training=False),  # statistics are copied from the training environment
            n_eval_episodes=8,
            eval_freq=1024,  # calls of step(), of which each moves all environments
            best_model_save_path=str(folder / "best"),
            log_path=str(folder / "evaluations"),
            verbose=0,
        ),
        CheckpointCallback(1024, str(folder / "checkpoints"), name_prefix="agent"),
        TensorBoardSync(lambda step, name, value: history[name].append((step, value))),
    ]
    model = DistributionalPPO(
        "MlpPolicy",
        pendulum(4, 0, training=True),
        learning_rate=lambda progress: 1e-3 * progress,
        n_steps=512,
        batch_size=128,
        n_epochs=5,
        gamma=0.9,
        policy_kwargs={"normalize_observations": False},  # VecNormalize does it
        tensorboard_log=str(folder / "tensorboard"),
        seed=0,
        device="cpu",
    )
    model.learn(steps, callback=callbacks)

    for name in ("eval/mean_reward", "train/approx_kl", "train/learning_rate"):
        values = ", ".join(f"{value:.3g} at {step:,}" for step, value in history[name][-3:])
        print(f"{name}: {values}")
    checkpoints = sorted((folder / "checkpoints").glob("*.zip"))
    print(f"{len(checkpoints)} checkpoints, {len(history)} tracked metrics")

    # The file holds the statistics of VecNormalize, and load() puts them into this environment.
    env = pendulum(4, 2, training=False)
    best = DistributionalPPO.load(folder / "best" / "best_model", env=env, device="cpu")
    mean, std = evaluate_policy(best, env, n_eval_episodes=8)
    scores = np.load(folder / "evaluations" / "evaluations.npz")["results"].mean(1)
    print(f"best evaluation {scores.max():.0f}; the loaded agent returns {mean:.0f} ± {std:.0f}")


if __name__ == "__main__":
    arguments = sys.argv[1:]
    main(
        int(arguments[0]) if arguments else 8_192,
        Path(arguments[1]) if len(arguments) > 1 else Path("runs") / "sb3_callbacks",
    )
