"""A small run folder made by the real parts: simulator, agent, evaluation."""

import dataclasses
import json
import math
from pathlib import Path

import numpy as np
from stable_baselines3.common.logger import KVWriter, Logger

from quantail.evaluation.backtest import MarketTask
from quantail.evaluation.bootstrap import BootstrapConfig
from quantail.evaluation.curves import MarketEvaluation
from quantail.evaluation.evaluate_market import judge_market
from quantail.evaluation.record_file import save_evaluation
from quantail.sb3.agent import DistributionalPPO
from quantail.sb3.vec_env import MarketVecEnv
from quantail.sim.config import SimConfig
from quantail.sim.episodes import EpisodeConfig
from quantail.sim.simulator import MarketSim
from tests.sim.markets import make_bars, make_features

N_BARS, N_TRAIN = 1000, 400
NASTY = "<i>B&B</i>"


class MetricsFile(KVWriter):
    """Appends what the agent logs as lines of metrics.jsonl."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, key_values, key_excluded, step: int = 0) -> None:
        numbers = {
            tag: float(value) if math.isfinite(value) else None
            for tag, value in key_values.items()
            if isinstance(value, int | float | np.number)
        }
        with self.path.open("a") as file:
            file.write(json.dumps({"step": step, **numbers}) + "\n")

    def close(self) -> None:
        """Nothing stays open."""


def write_real_run(folder: Path) -> Path:
    """Train an agent briefly on the first bars of two symbols and judge it on the rest."""
    folder.mkdir()
    bars = dataclasses.replace(make_bars(N_BARS, 2), symbols=("AAA", NASTY))
    features = make_features(bars)
    config = SimConfig(episodes=EpisodeConfig(length=64))
    cuts = [(symbol, bars.rows(symbol)) for symbol in bars.symbols]
    train = [(symbol, slice(rows.start, rows.start + N_TRAIN)) for symbol, rows in cuts]
    sim = MarketSim(bars, features, windows=train, config=config, n_envs=8, seed=1)
    agent = DistributionalPPO(
        "MlpLstmPolicy",
        MarketVecEnv(sim),
        n_steps=64,
        batch_size=128,
        n_epochs=1,
        gamma=0.9,
        seed=3,
        policy_kwargs={"lstm_hidden_size": 16},
    )
    agent.set_logger(Logger(str(folder), [MetricsFile(folder / "metrics.jsonl")]))
    agent.learn(4096, log_interval=1)
    evaluation, _ = judge_market(
        MarketTask.of_rows(
            bars, features, np.array([(r.start + N_TRAIN, r.stop) for _, r in cuts]), config
        ),
        agent,
        role="test",
        split="holdout",
        seeds=(3,),
        n_trials=2,
        settings=MarketEvaluation(bootstrap=BootstrapConfig(samples=200)),
    )
    save_evaluation(evaluation, folder / "evaluation" / "test")
    (folder / "config.yaml").write_text(f"data:\n  symbols: [AAA, {NASTY}]\nseed: 3\n")
    (folder / "provenance.json").write_text(json.dumps({"seed": 3, "script": "</script>"}))
    (folder / "status.json").write_text('{"state": "finished", "step": 4096}')
    return folder
