"""From an agent's configuration to an agent."""

from stable_baselines3.common.vec_env import VecEnv

from quantail.experiment.config import AgentConfig
from quantail.nets.cores import NoCoreConfig
from quantail.sb3.agent import DistributionalPPO


def build_agent(config: AgentConfig, env: VecEnv, seed: int) -> DistributionalPPO:
    """Return an untrained agent for the spaces of ``env``."""
    has_memory = not isinstance(config.core, NoCoreConfig)
    policy_kwargs = {
        "net_arch": {"pi": list(config.actor_layers), "vf": list(config.critic_layers)},
        "normalize_observations": config.normalize_observations,
    }
    if has_memory:
        policy_kwargs |= {"core": config.core, "shared_lstm": config.shared_core}
    return DistributionalPPO(
        "MlpLstmPolicy" if has_memory else "MlpPolicy",
        env,
        learning_rate=config.learning_rate,
        n_steps=config.n_steps,
        batch_size=config.batch_size,
        n_epochs=config.n_epochs,
        gamma=config.gamma,
        gae_lambda=config.gae_lambda,
        clip_range=config.clip_range,
        ent_coef=config.ent_coef,
        vf_coef=config.vf_coef,
        max_grad_norm=config.max_grad_norm,
        target_kl=config.target_kl,
        policy_kwargs=policy_kwargs,
        seed=seed,
        device="cpu",
        critic=config.critic,
        twin=config.twin,
        kl_control=config.kl_control,
        entropy_control=config.entropy_control,
        risk=config.risk,
        cost=config.cost,
        critic_target=config.critic_target,
        value_clip=config.value_clip,
        chunk_length=config.chunk_length,
    )
