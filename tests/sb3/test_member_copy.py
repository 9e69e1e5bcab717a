"""One agent takes the place of another: weights and both kinds of normalizer go together."""

from pathlib import Path

import numpy as np
import torch
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecCheckNan, VecEnvWrapper, VecNormalize

from quantail import DistributionalPPO
from tests.catalogue import catalogue


def normalized(seed: int) -> VecCheckNan:
    """A normalizer that is not the outermost wrapper."""
    return VecCheckNan(VecNormalize(make_vec_env("CartPole-v1", 4, seed=seed), norm_reward=False))


def normalizers(env: object) -> list[VecNormalize]:
    found: list[VecNormalize] = []
    while isinstance(env, VecEnvWrapper):
        found += [env] if isinstance(env, VecNormalize) else []
        env = env.venv
    return found


@catalogue("F42")
def test_a_copied_agent_brings_its_statistics_into_the_normalizer_in_place(tmp_path: Path) -> None:
    source = DistributionalPPO("MlpPolicy", normalized(0), n_steps=64, batch_size=64, seed=0)
    target = DistributionalPPO("MlpPolicy", normalized(9), n_steps=64, batch_size=64, seed=9)
    source.learn(512)
    target.learn(1024)
    env = target.get_env()
    assert env is not None
    (own,), (wanted,) = normalizers(env), normalizers(source.get_env())
    assert not np.allclose(own.obs_rms.mean, wanted.obs_rms.mean)
    source.save(tmp_path / "source")
    copy = DistributionalPPO.load(tmp_path / "source", env=env)
    (found,) = normalizers(copy.get_env())
    assert found is own
    np.testing.assert_allclose(found.obs_rms.mean, wanted.obs_rms.mean, atol=1e-6)
    np.testing.assert_allclose(found.obs_rms.var, wanted.obs_rms.var, atol=1e-6)
    for name, part in copy.policy.state_dict().items():
        assert torch.equal(part, source.policy.state_dict()[name]), name

    raw = np.array([[0.1, -0.4, 0.05, 0.3]] * 4, np.float32)
    np.testing.assert_array_equal(found.normalize_obs(raw), wanted.normalize_obs(raw))
