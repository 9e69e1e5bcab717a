"""``DistributionalPPO``: the learner behind the API of Stable-Baselines3."""

from collections.abc import Iterable
from dataclasses import replace
from inspect import signature
from typing import Any, ClassVar, Literal, Self

import torch
from gymnasium import spaces
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.type_aliases import GymEnv, MaybeCallback, Schedule
from stable_baselines3.common.utils import FloatSchedule
from stable_baselines3.common.vec_env import VecEnv

from quantail.checkpoint.archive import Location
from quantail.config import ExplainedVariance, LearnerConfig
from quantail.flow import Rollout, RolloutCarry
from quantail.losses.imitation import ImitationConfig
from quantail.losses.value_clip import MeanClip, NoClip, ValueClipConfig, check_value_clip
from quantail.nets.critics import CriticConfig
from quantail.optim.entropy_control import EntropyControl
from quantail.optim.guard import Guard
from quantail.optim.kl_control import KlControl
from quantail.optim.safety import Snapshot
from quantail.optim.schedules import Schedules
from quantail.risk.config import RiskConfig, risk_config
from quantail.risk.cost import CostLimit
from quantail.rollout.demonstrations import Demonstrations
from quantail.rollout.sequences import chunk_length
from quantail.sb3 import checks, controllers
from quantail.sb3.acting import act
from quantail.sb3.buffer import check_buffer_class
from quantail.sb3.exploration import seeded
from quantail.sb3.loading import load_agent
from quantail.sb3.parameters import read_parameters, set_parameters
from quantail.sb3.policy import POLICIES, MlpPolicy
from quantail.sb3.risk import with_budget, with_cost_critic
from quantail.sb3.saving import save_agent
from quantail.sb3.training import learn_from
from quantail.state import TrainState
from quantail.targets.compute import TargetConfig
from quantail.targets.twin import Twin

_ACTION_SPACES = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)


class DistributionalPPO(OnPolicyAlgorithm):
    """PPO with a critic that learns the law of returns, with memory if the policy has it.

    Arguments up to ``_init_setup_model`` are those of Stable-Baselines3's PPO, in its order and
    with its defaults; the others can be given by name only.

    Args:
        policy: ``MlpPolicy``, ``CnnPolicy``, ``MultiInputPolicy``, the same with ``Lstm`` before
            ``Policy``, or a class.
        env: Environment, its id, or a ``VecEnv``.
        learning_rate: Number, or function of the progress that remains.
        n_steps: Steps of each environment in a rollout.
        batch_size: Rows of a minibatch.
        n_epochs: Passes over a rollout.
        gamma: Discount.
        gae_lambda: Weight of sampled rewards against the critic, for advantages and targets.
        clip_range: Of the policy ratio; number or function of the progress that remains.
        clip_range_vf: Of the value mean, in units of the return scale; None is off.
        normalize_advantage: Over the whole rollout.
        ent_coef: Of the entropy bonus.
        vf_coef: Of the critics' loss.
        max_grad_norm: Largest gradient norm.
        use_sde: Explore by noise that is a function of the state (gSDE); Box actions only.
        sde_sample_freq: With ``use_sde``, steps after which that function is drawn anew; -1 keeps
            it for a rollout.
        rollout_buffer_class: What callbacks find as ``rollout_buffer`` when a rollout ends.
            Learning does not read it, so a class that changes what is sampled is refused.
        rollout_buffer_kwargs: For it.
        target_kl: Stop the epochs when the KL of a minibatch exceeds 1.5 times this.
        stats_window_size: Episodes behind ``rollout/ep_rew_mean``.
        tensorboard_log: Folder.
        policy_kwargs: See :class:`~quantail.sb3.policy.MlpPolicy`.
        verbose: 0, 1 or 2.
        seed: Of networks, actions, minibatches and environments.
        device: Of the network; ``cpu`` is the quick one for small networks.
        _init_setup_model: Build the network at once.
        critic: Kind of critic; quantiles by default.
        twin: ``min`` or ``mean`` of two critics, or ``off``.
        critic_target: ``sr_lambda`` (the law of returns) or ``scalar`` (too narrow); ``auto`` takes
            the law where the critic can learn it.
        value_clip: Mode of value clipping; in place of ``clip_range_vf``.
        chunk_length: Rows through which memory is trained; None picks one that fits.
        microbatch_size: Rows of a part of a minibatch, to save memory.
        refresh_states: Recompute the states before each chunk once per epoch.
        burn_in: Rows replayed before each chunk to warm its state up.
        dual_clip: Bound on the surrogate of rows with negative advantage.
        normalize_advantage_per_env: Statistics of each environment by itself.
        critic_learning_rate: Of what the critics have for themselves; None is ``learning_rate``.
        schedules: Coefficients by steps of the environments since the agent was made.
        kl_control: What happens when a cycle moves the policy too far; in place of ``target_kl``.
        entropy_control: Decay, boost and floor of ``ent_coef``.
        imitation: A term that pulls toward good or demonstrated actions.
        demonstrations: For ``imitation=Cloning(...)``.
        guard: What happens when something is not finite.
        explained_variance: How the critics' predictions are judged.
        cvar_alpha: The tail is the worst share α of episodes; 0.05 by default.
        cvar_limit: Least CVaR of an episode's discounted return; the mean is maximized under it.
        cvar_weight: Fixed weight of CVaR beside the mean, in place of a limit.
        risk: Everything about tail risk, in place of the three before.
        cost: A limit on the mean of an episode's discounted costs, which come in ``info["cost"]``.
        freeze_normalizer: Hold the statistics of a ``VecNormalize`` during a rollout; they move
            when it has ended.
    """

    policy: MlpPolicy  # type: ignore[assignment]
    policy_aliases: ClassVar[dict[str, type[BasePolicy]]] = POLICIES

    def __init__(
        self,
        policy: str | type[MlpPolicy],
        env: GymEnv | str | None,
        learning_rate: float | Schedule = 3e-4,
        n_steps: int = 2048,
        batch_size: int = 64,
        n_epochs: int = 10,
        gamma: float = 0.99,
        gae_lambda: float = 0.95,
        clip_range: float | Schedule = 0.2,
        clip_range_vf: float | Schedule | None = None,
        normalize_advantage: bool = True,
        ent_coef: float = 0.0,
        vf_coef: float = 0.5,
        max_grad_norm: float = 0.5,
        use_sde: bool = False,
        sde_sample_freq: int = -1,
        rollout_buffer_class: type[RolloutBuffer] | None = None,
        rollout_buffer_kwargs: dict[str, Any] | None = None,
        target_kl: float | None = None,
        stats_window_size: int = 100,
        tensorboard_log: str | None = None,
        policy_kwargs: dict[str, Any] | None = None,
        verbose: int = 0,
        seed: int | None = None,
        device: torch.device | str = "auto",
        _init_setup_model: bool = True,
        *,
        critic: CriticConfig | None = None,
        twin: Twin | None = None,
        critic_target: Literal["auto", "sr_lambda", "scalar"] = "auto",
        value_clip: ValueClipConfig | None = None,
        chunk_length: int | None = None,
        microbatch_size: int | None = None,
        refresh_states: bool = False,
        burn_in: int = 0,
        dual_clip: float | None = None,
        normalize_advantage_per_env: bool = False,
        critic_learning_rate: float | None = None,
        schedules: Schedules | None = None,
        kl_control: KlControl | None = None,
        entropy_control: EntropyControl | None = None,
        imitation: ImitationConfig | None = None,
        demonstrations: Demonstrations | None = None,
        guard: Guard | None = None,
        explained_variance: ExplainedVariance | None = None,
        freeze_normalizer: bool = False,
        cvar_alpha: float | None = None,
        cvar_limit: float | None = None,
        cvar_weight: float | None = None,
        risk: RiskConfig | None = None,
        cost: CostLimit | None = None,
    ) -> None:
        checks.check_policy(policy)
        check_buffer_class(rollout_buffer_class)
        checks.check_beside("clip_range_vf", clip_range_vf, "value_clip", value_clip)
        checks.check_beside("target_kl", target_kl, "kl_control", kl_control)
        controllers.check_owners(schedules or Schedules(), locals(), signature(DistributionalPPO))
        controllers.check_demonstrations(imitation, demonstrations)
        policy_kwargs = checks.joined(policy_kwargs or {}, {"critic": critic, "twin": twin})
        tail_risk = risk_config(cvar_alpha, cvar_limit, cvar_weight, risk)
        policy_kwargs = with_budget(policy_kwargs, tail_risk, gamma)
        policy_kwargs = with_cost_critic(policy_kwargs, cost, gamma)
        super().__init__(
            policy,  # type: ignore[arg-type]
            env,  # type: ignore[arg-type]
            learning_rate=learning_rate,
            n_steps=n_steps,
            gamma=gamma,
            gae_lambda=gae_lambda,
            ent_coef=ent_coef,
            vf_coef=vf_coef,
            max_grad_norm=max_grad_norm,
            use_sde=use_sde,
            sde_sample_freq=sde_sample_freq,
            rollout_buffer_class=rollout_buffer_class,
            rollout_buffer_kwargs=rollout_buffer_kwargs,
            stats_window_size=stats_window_size,
            tensorboard_log=tensorboard_log,
            policy_kwargs=policy_kwargs,
            verbose=verbose,
            seed=seed,
            device=device,
            _init_setup_model=False,
            supported_action_spaces=_ACTION_SPACES,
        )
        self.batch_size = batch_size
        self.n_epochs = n_epochs
        self.clip_range = clip_range
        self.clip_range_vf = clip_range_vf
        self.normalize_advantage = normalize_advantage
        self.target_kl = target_kl
        self.learner_config = LearnerConfig(
            n_steps=n_steps,
            batch_size=batch_size,
            n_epochs=n_epochs,
            chunk_length=chunk_length,
            microbatch_size=microbatch_size,
            refresh_states=refresh_states,
            burn_in=burn_in,
            dual_clip=dual_clip,
            max_grad_norm=max_grad_norm,
            critic_learning_rate=critic_learning_rate,
            schedules=schedules or Schedules(),
            kl_control=kl_control if target_kl is None else KlControl(target=target_kl),
            entropy_control=entropy_control,
            imitation=imitation,
            guard=guard or Guard(),
            explained_variance=explained_variance or ExplainedVariance(),
            targets=TargetConfig(
                gamma=gamma,
                gae_lambda=gae_lambda,
                critic_target=critic_target,
                normalize_advantage=normalize_advantage,
                normalize_advantage_per_env=normalize_advantage_per_env,
            ),
            value_clip=value_clip or (NoClip() if clip_range_vf is None else MeanClip()),
            tail_risk=tail_risk,
            cost=cost,
        )
        self.cvar_alpha, self.cvar_limit = cvar_alpha, cvar_limit
        self.cvar_weight, self.risk = cvar_weight, risk
        self._carry: RolloutCarry | None = None
        self._rollout: Rollout | None = None
        self._healthy: Snapshot | None = None
        self.train_state = TrainState()
        self.demonstrations = demonstrations
        self.freeze_normalizer = freeze_normalizer
        if _init_setup_model:
            self._setup_model()

    def _setup_model(self) -> None:
        checks.check_sde(self.use_sde, self.sde_sample_freq)
        rows = self.n_steps * self.n_envs
        checks.check_ranges(self.clip_range, self.clip_range_vf)
        checks.check_sizes(rows, self.batch_size, self.normalize_advantage)
        super()._setup_model()
        self.clip_range = FloatSchedule(self.clip_range)
        if self.clip_range_vf is not None:
            self.clip_range_vf = FloatSchedule(self.clip_range_vf)
        check_value_clip(self.learner_config.value_clip, self.policy.net.config.critic.kind)
        controllers.check_network(self.learner_config, self.policy, self.demonstrations)
        self._check_environment()
        if self.learner_config.splits_learning_rate:
            self.policy.optimizer = controllers.regrouped(self.policy)
        self._length = chunk_length(
            self.n_steps,
            self.batch_size,
            self.learner_config.chunk_length,
            self.policy.net.config.core.kind != "none",
        )
        self._generator = seeded(self.seed)

    def _check_environment(self) -> None:
        risk, network = self.learner_config.tail_risk, self.policy.net.config
        checks.check_environment(self.env, self.gamma, self.freeze_normalizer, risk, network)

    def _maybe_recommend_cpu(self, mlp_class_name: str = "MlpPolicy") -> None:
        super()._maybe_recommend_cpu(mlp_class_name)

    def _update_current_progress_remaining(self, num_timesteps: int, total_timesteps: int) -> None:
        # The last rollout may go beyond the total; a falling schedule must not turn negative there.
        self._current_progress_remaining = max(1.0 - num_timesteps / total_timesteps, 0.0)

    def learn(
        self,
        total_timesteps: int,
        callback: MaybeCallback = None,
        log_interval: int = 1,
        tb_log_name: str | None = None,
        reset_num_timesteps: bool = True,
        progress_bar: bool = False,
    ) -> Self:
        """Learn for some steps; logs go to ``tb_log_name``, by default the name of the class."""
        name = tb_log_name or type(self).__name__
        return super().learn(
            total_timesteps, callback, log_interval, name, reset_num_timesteps, progress_bar
        )

    def _setup_learn(
        self,
        total_timesteps: int,
        callback: MaybeCallback = None,
        reset_num_timesteps: bool = True,
        *rest: Any,
    ) -> tuple[int, BaseCallback]:
        self._check_environment()  # again: set_env() may have changed it
        if reset_num_timesteps or self._last_obs is None:
            self._carry = None  # the environments are about to be reset
        return super()._setup_learn(total_timesteps, callback, reset_num_timesteps, *rest)

    def collect_rollouts(
        self,
        env: VecEnv,
        callback: BaseCallback,
        rollout_buffer: RolloutBuffer,
        n_rollout_steps: int,
    ) -> bool:
        """Act for ``n_rollout_steps`` steps; False when a callback asked to stop."""
        return act(self, env, callback, rollout_buffer, n_rollout_steps)

    def train(self) -> None:
        """Learn from the latest rollout."""
        assert self._rollout is not None
        rollout, self._rollout = self._rollout, None
        learn_from(self, rollout)

    def save(
        self,
        path: Location,
        exclude: Iterable[str] | None = None,
        include: Iterable[str] | None = None,
    ) -> None:
        """Save the agent as one zip of safetensors and JSON, without pickle.

        Args:
            path: ``.zip`` is added to a name without suffix. An existing file is replaced only
                when the new one is whole. Also a file opened in binary mode.
            exclude: Settings to leave out, such as a learning rate given as a function.
            include: Settings to keep though ``exclude`` names them.

        Raises:
            CheckpointError: A setting cannot be saved without pickle.
        """
        save_agent(self, path, exclude, include)

    @classmethod
    def load(
        cls,
        path: Location,
        env: GymEnv | None = None,
        device: torch.device | str = "auto",
        custom_objects: dict[str, Any] | None = None,
        print_system_info: bool = False,
        force_reset: bool = True,
        **kwargs: Any,
    ) -> Self:
        """Make an agent from a file; nothing that came with the file is run.

        Args:
            path: As given to :meth:`save`.
            env: To go on training in, with a ``VecNormalize`` if the agent was trained with one.
            device: Of the network.
            custom_objects: Settings in place of those in the file, by name; and your own classes
                that the file names, by ``module.name``. ``{"vec_normalize": None}`` says that you
                normalize by yourself.
            print_system_info: Print the versions now and at saving.
            force_reset: Start a new episode; False goes on from the last observation, in the same
                environment, with an empty memory.
            **kwargs: Arguments of the constructor to change.

        Raises:
            CheckpointError: The file is damaged, of another format, names a class outside the known
                packages, or does not fit the environment.
        """
        return load_agent(
            cls, path, env, device, custom_objects, print_system_info, force_reset, kwargs
        )

    def set_parameters(
        self,
        load_path_or_dict: Location | dict[str, Any],
        exact_match: bool = True,
        device: torch.device | str = "auto",
    ) -> None:
        """Put weights and optimizer state in place: all, or, when one does not fit, none.

        Args:
            load_path_or_dict: A saved agent, or what :meth:`get_parameters` returns.
            exact_match: Whether all must be given. Unknown ones are refused in any case.
            device: Has no effect: parameters stay where they are.
        """
        if not isinstance(load_path_or_dict, dict):
            load_path_or_dict = read_parameters(load_path_or_dict)
        set_parameters(self, load_path_or_dict, exact_match)
        if self._carry is not None:
            # What other weights remembered means nothing to these.
            fresh = self.policy.net.initial_state(self.n_envs)
            self._carry = replace(self._carry, state=fresh)
