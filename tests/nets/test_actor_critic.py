"""The whole policy: one step against the sequence, who gets which gradient, nothing hidden."""

from typing import get_args

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn

from quantail.errors import ConfigError, DataError
from quantail.flow import Observation, PolicyOutput, PolicyState
from quantail.nets.actor_critic import ActorCritic, PolicyConfig
from quantail.nets.actors import ActorConfig
from quantail.nets.cores import CoreConfig, LstmConfig, NoCoreConfig
from quantail.nets.critics import CategoricalCritic, CriticConfig, QuantileCritic, ScalarCritic
from quantail.nets.observations import map_observation
from tests.catalogue import catalogue

OBSERVATIONS = spaces.Box(-np.inf, np.inf, (6,))
ACTIONS = spaces.Box(-1.0, 1.0, (2,))
CORES = [member() for member in get_args(get_args(CoreConfig)[0])]
CRITICS = [member() for member in get_args(get_args(CriticConfig)[0])]
SMALL = {"actor_layers": (8,), "critic_layers": (8,)}
LENGTH, ROWS = 9, 4


def policy(
    config: PolicyConfig | None = None,
    observations: spaces.Space = OBSERVATIONS,
    actions: spaces.Space = ACTIONS,
    seed: int = 0,
) -> ActorCritic:
    torch.manual_seed(seed)
    made = ActorCritic(observations, actions, config or PolicyConfig(**SMALL))
    if made.normalizer is not None and isinstance(observations, spaces.Box):
        made.update_normalizer(torch.randn(100, *observations.shape) * 3 + 1)
    return made


def sequence(seed: int = 0, length: int = LENGTH, rows: int = ROWS) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(length, rows, 6, generator=generator)
    return x, torch.rand(length, rows, generator=generator) < 0.2


def value_loss(output: PolicyOutput, critic: int) -> Tensor:
    target = torch.linspace(-1, 2, 5).expand(*output.values[critic].mean().shape, 5)
    return output.values[critic].loss(target, torch.full((5,), 0.2)).mean()


def actor_loss(output: PolicyOutput) -> Tensor:
    raw = output.actions.sample(torch.Generator().manual_seed(3))
    return output.actions.log_prob(raw).mean() + output.actions.entropy().mean()


def reached(groups: dict[str, list[nn.Parameter]], loss: Tensor) -> set[str]:
    parameters = [parameter for group in groups.values() for parameter in group]
    for parameter in parameters:
        parameter.grad = None
    loss.backward(retain_graph=True)
    return {
        name
        for name, group in groups.items()
        if any(p.grad is not None and p.grad.abs().max() > 0 for p in group)
    }


@pytest.mark.parametrize("core", CORES, ids=lambda core: core.kind)
@pytest.mark.parametrize("critic", CRITICS, ids=lambda critic: critic.kind)
@pytest.mark.parametrize("share", [False, True], ids=["separate", "shared"])
def test_steps_and_sequence_agree(core, critic, share):
    made = policy(
        PolicyConfig(core=core, critic=critic, share_core=share, encoder_layers=(7,), **SMALL)
    )
    x, starts = sequence()
    state = made.initial_state(ROWS)
    whole = made(x, state, starts)
    raw = whole.actions.sample(torch.Generator().manual_seed(1))
    for t in range(LENGTH):
        with torch.no_grad():
            one = made.step(x[t], state, starts[t])
        state = one.state
        torch.testing.assert_close(
            one.actions.log_prob(raw[t]), whole.actions.log_prob(raw)[t], rtol=0, atol=1e-5
        )
        for law, laws in zip(one.values, whole.values, strict=True):
            torch.testing.assert_close(law.mean(), laws.mean()[t], rtol=0, atol=1e-5)
    for one_part, whole_part in zip(flat(state), flat(whole.state), strict=True):
        torch.testing.assert_close(one_part, whole_part, rtol=0, atol=1e-5)


def flat(state: PolicyState) -> list[Tensor]:
    return [*state.actor, *state.critic]


@catalogue("F19", "X07")
def test_the_value_of_a_final_observation_is_one_step_from_the_state_before_it():
    made = policy(PolicyConfig(critic=ScalarCritic(), **SMALL))
    x, _ = sequence(length=3)
    never = torch.zeros(ROWS, dtype=torch.bool)
    with torch.no_grad():
        state = hand_state = made.initial_state(ROWS)
        for t in range(2):
            output = made.step(x[t], state, never)
            state = output.state
            value, hand_state = hand_value(made, x[t], hand_state)
            torch.testing.assert_close(output.values[0].mean(), value, rtol=0, atol=1e-6)
        final = made.step(x[2], state, never)
        value, _ = hand_value(made, x[2], hand_state)
        torch.testing.assert_close(final.values[0].mean(), value, rtol=0, atol=1e-6)
        twice = made.step(x[2], final.state, never).values[0].mean()
        assert (twice - value).abs().max() > 1e-3
        # Asking for a value leaves the state that goes on untouched.
        again = made.step(x[2], state, never)
        assert torch.equal(again.values[0].mean(), final.values[0].mean())


def hand_value(made: ActorCritic, x: Tensor, state: PolicyState) -> tuple[Tensor, PolicyState]:
    """One observation by plain torch operations: value of critic 1 and the states after it."""
    moments = made.normalizer.moments["key_"]
    inputs = (x - moments.mean.float()) / (moments.variance.float() + 1e-8).sqrt()
    after = []
    for core, before in ((made.actor_core, state.actor), (made.critic_core, state.critic)):
        layer = core.layers[0]
        i, f, g, o = (inputs @ layer.wx + before[0][0] @ layer.wh + layer.bias).chunk(4, dim=1)
        cell = f.sigmoid() * before[1][0] + i.sigmoid() * g.tanh()
        after.append(((o.sigmoid() * cell.tanh()).unsqueeze(0), cell.unsqueeze(0)))
    return made.critics[0](after[1][0][0]).mean(), PolicyState(*after)


@catalogue("F45")
@pytest.mark.parametrize("layers", [1, 2])
def test_an_episode_start_resets_one_environment_in_actor_and_critic(layers):
    made = policy(PolicyConfig(core=LstmConfig(layers=layers), **SMALL))
    x, _ = sequence(rows=3, length=2)
    state = made.step(x[0], made.initial_state(3), torch.ones(3, dtype=torch.bool)).state
    done = torch.tensor([False, True, False])
    after = made.step(x[1], state, done).state
    kept = made.step(x[1], state, torch.zeros(3, dtype=torch.bool)).state
    fresh = made.step(x[1], made.initial_state(3), torch.zeros(3, dtype=torch.bool)).state
    parts = zip(flat(after), flat(kept), flat(fresh), strict=True)
    assert len(flat(after)) == 4
    for part, kept_part, fresh_part in parts:
        torch.testing.assert_close(part[:, [0, 2]], kept_part[:, [0, 2]])
        torch.testing.assert_close(part[:, 1], fresh_part[:, 1])
        assert (part[:, 1] - kept_part[:, 1]).abs().max() > 1e-4


SEPARATE = {"actor_encoder", "actor_core", "actor", "critic_encoder", "critic_core"}


@catalogue("F48")
@pytest.mark.parametrize("core", CORES, ids=lambda core: core.kind)
@pytest.mark.parametrize("share", [False, True])
@pytest.mark.parametrize("twin", ["min", "off"])
def test_groups_partition_the_parameters(core, share, twin):
    config = PolicyConfig(core=core, share_core=share, twin=twin, encoder_layers=(5,), **SMALL)
    made = policy(config)
    groups = made.parameter_groups()
    listed = [id(parameter) for group in groups.values() for parameter in group]
    assert sorted(listed) == sorted({id(parameter) for parameter in made.parameters()})
    critics = {"critic1"} if twin == "off" else {"critic1", "critic2"}
    trunks = {"shared_encoder", "shared_core", "actor"} if share else SEPARATE
    without = {name for name in trunks if core.kind == "none" and name.endswith("core")}
    assert set(groups) == (trunks | critics) - without
    x, starts = sequence()
    output = made(x, made.initial_state(ROWS), starts)
    (actor_loss(output) + sum(value_loss(output, k) for k in range(len(critics)))).backward()
    squares = {
        name: sum(p.grad.square().sum() for p in group).item() for name, group in groups.items()
    }
    total = sum(p.grad.square().sum() for p in made.parameters()).item()
    assert sum(squares.values()) == pytest.approx(total, rel=1e-5)


@catalogue("X01", "F28")
@pytest.mark.parametrize("critic", CRITICS, ids=lambda critic: critic.kind)
def test_every_parameter_of_both_critics_learns(critic):
    made = policy(PolicyConfig(critic=critic, encoder_layers=(5,), **SMALL))
    x, starts = sequence()
    output = made(x, made.initial_state(ROWS), starts)
    (value_loss(output, 0) + value_loss(output, 1)).backward()
    groups = made.parameter_groups()
    for name in ("critic_encoder", "critic_core", "critic1", "critic2"):
        for parameter in groups[name]:
            assert parameter.grad.abs().max() > 0, name


def test_each_loss_reaches_its_own_parts_alone():
    made = policy(PolicyConfig(encoder_layers=(5,), **SMALL))
    x, starts = sequence()
    output, groups = made(x, made.initial_state(ROWS), starts), made.parameter_groups()
    assert reached(groups, actor_loss(output)) == {"actor_encoder", "actor_core", "actor"}
    for number in (1, 2):
        parts = {"critic_encoder", "critic_core", f"critic{number}"}
        assert reached(groups, value_loss(output, number - 1)) == parts


@pytest.mark.parametrize("scale", [0.0, 0.25, 1.0])
def test_the_critics_gradient_into_a_shared_core_is_scaled(scale):
    x, starts = sequence()
    gradients = []
    for factor in (1.0, scale):
        made = policy(PolicyConfig(share_core=True, critic_gradient_scale=factor, **SMALL))
        value_loss(made(x, made.initial_state(ROWS), starts), 0).backward()
        groups = made.parameter_groups()
        gradients.append([groups[name][0].grad.clone() for name in ("shared_core", "critic1")])
    torch.testing.assert_close(gradients[1][0], scale * gradients[0][0])
    torch.testing.assert_close(gradients[1][1], gradients[0][1])
    assert gradients[0][0].abs().max() > 0


def test_twin_critics_are_different_from_the_start():
    made = policy()
    x, starts = sequence()
    first, second = made(x, made.initial_state(ROWS), starts).values
    assert (first.mean() - second.mean()).abs().max() > 0.01
    assert len(policy(PolicyConfig(twin="off", **SMALL)).critics) == 1


@catalogue("F70", "X01")
def test_another_query_between_forward_and_loss_changes_no_gradient():
    x, starts = sequence()
    gradients = []
    for query in (False, True):
        made = policy()
        output = made(x, made.initial_state(ROWS), starts)
        before = {name: set(vars(module)) for name, module in made.named_modules()}
        if query:
            with torch.no_grad():
                made.step(x[0] * 7, made.initial_state(ROWS), starts[0])
                made(x.flip(0), made.initial_state(ROWS), starts)
        assert {name: set(vars(module)) for name, module in made.named_modules()} == before
        (value_loss(output, 0) + value_loss(output, 1) + actor_loss(output)).backward()
        gradients.append([p.grad for p in made.parameters()])
    for one, other in zip(*gradients, strict=True):
        assert torch.equal(one, other)


@catalogue("F70")
def test_a_forward_pass_leaves_nothing_on_the_module():
    made = policy()
    before = {name: dict(vars(module)) for name, module in made.named_modules()}
    buffers = {name: buffer.clone() for name, buffer in made.named_buffers()}
    x, starts = sequence()
    made(x, made.initial_state(ROWS), starts)
    for name, module in made.named_modules():
        assert vars(module).keys() == before[name].keys(), name
    for name, buffer in made.named_buffers():
        assert torch.equal(buffer, buffers[name]), name


@pytest.mark.parametrize("core", CORES, ids=lambda core: core.kind)
def test_permuting_environments_permutes_results(core):
    made = policy(PolicyConfig(core=core, **SMALL))
    x, starts = sequence()
    order = torch.tensor([2, 0, 3, 1])
    straight = made(x, made.initial_state(ROWS), starts)
    permuted = made(x[:, order], made.initial_state(ROWS), starts[:, order])
    index = (slice(None), order)
    torch.testing.assert_close(
        permuted.actions.location, straight.actions.location[index], rtol=0, atol=1e-6
    )
    torch.testing.assert_close(
        permuted.values[1].mean(), straight.values[1].mean()[index], rtol=0, atol=1e-6
    )


OBSERVATION_SPACES = {
    "box": spaces.Box(-1, 1, (2, 3)),
    "scalar": spaces.Box(-1, 1, ()),
    "discrete": spaces.Discrete(5, start=2),
    "multi_discrete": spaces.MultiDiscrete([3, 4]),
    "bits": spaces.MultiBinary(4),
    "image": spaces.Box(0, 255, (3, 4, 4), dtype=np.uint8),
    "dict": spaces.Dict({"a": spaces.Box(-1, 1, (2,)), "b": spaces.Discrete(3)}),
}


@pytest.mark.parametrize("name", OBSERVATION_SPACES)
def test_every_observation_space_is_read(name):
    space = OBSERVATION_SPACES[name]
    space.seed(0)
    made = policy(observations=space)
    x = batch(space, LENGTH * ROWS)
    grid = map_observation(x, lambda part: part.view(LENGTH, ROWS, *part.shape[1:]))
    starts = torch.zeros(LENGTH, ROWS, dtype=torch.bool)
    whole = made(grid, made.initial_state(ROWS), starts)
    first = map_observation(grid, lambda part: part[0])
    one = made.step(first, made.initial_state(ROWS), starts[0])
    torch.testing.assert_close(one.values[0].mean(), whole.values[0].mean()[0], rtol=0, atol=1e-5)
    assert whole.values[0].mean().std() > 0
    made.update_normalizer(x)


def batch(space: spaces.Space, rows: int) -> Observation:
    samples = [space.sample() for _ in range(rows)]
    if isinstance(space, spaces.Dict):
        return {key: torch.as_tensor(np.stack([s[key] for s in samples])) for key in space.spaces}
    return torch.as_tensor(np.stack(samples))


def test_a_one_hot_starts_at_the_first_choice():
    made = policy(
        PolicyConfig(core=NoCoreConfig(), **SMALL), observations=spaces.Discrete(3, start=5)
    )
    inputs = made._inputs(torch.tensor([5, 7]))
    assert inputs.tolist() == [[1, 0, 0], [0, 0, 1]]


class Extractor(nn.Module):
    features_dim = 4

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x)


def test_a_feature_extractor_is_built_for_actor_and_critic_or_once_to_share():
    x, starts = sequence()
    for share, names in ((False, {"actor_encoder", "critic_encoder"}), (True, {"shared_encoder"})):
        config = PolicyConfig(core=NoCoreConfig(), share_core=share, **SMALL)
        made = ActorCritic(OBSERVATIONS, ACTIONS, config, Extractor)
        encoders = {name for name in made.parameter_groups() if name.endswith("encoder")}
        assert encoders == names
        assert made(x, made.initial_state(ROWS), starts).values[0].mean().shape == (LENGTH, ROWS)


def test_masks_work_in_sequences_and_steps():
    made = policy(actions=spaces.Discrete(3))
    x, starts = sequence()
    masks = torch.ones(LENGTH, ROWS, 3, dtype=torch.bool)
    masks[..., 1] = False
    whole = made(x, made.initial_state(ROWS), starts, masks)
    assert (whole.actions.log_probs[..., 1] < -1e6).all()
    one = made.step(x[0], made.initial_state(ROWS), starts[0], masks[0])
    torch.testing.assert_close(one.actions.log_probs, whole.actions.log_probs[0])


def test_statistics_and_scale_travel_with_the_state_dict():
    made, other = policy(seed=1), policy(seed=2)
    made.update_scale(torch.randn(50, 2) * 30 + 4, torch.full((2,), 0.5), torch.ones(50))
    other.load_state_dict(made.state_dict())
    x, starts = sequence()
    one, two = (part(x, part.initial_state(ROWS), starts) for part in (made, other))
    assert torch.equal(one.values[1].mean(), two.values[1].mean())
    assert float(two.values[1].scale) == float(one.values[1].scale) != 1


def test_the_normalizer_can_be_switched_off():
    made = policy(PolicyConfig(normalize_observations=False, **SMALL))
    assert made.normalizer is None
    x, starts = sequence()
    before = made(x, made.initial_state(ROWS), starts).values[0].mean()
    made.update_normalizer(x.flatten(0, 1) * 50)
    assert torch.equal(made(x, made.initial_state(ROWS), starts).values[0].mean(), before)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PolicyConfig(critic_gradient_scale=0.5), "critic_gradient_scale has no effect"),
        (
            lambda: PolicyConfig(normalize_observations=False, observation_clip=5.0),
            "observation_clip has no effect",
        ),
        (
            lambda: PolicyConfig(actor_layers=(64, 0)),
            r"actor_layers\[1\]: must be at least 1; was 0",
        ),
        (
            lambda: policy(PolicyConfig(core=NoCoreConfig(), share_core=True)),
            "share_core has no effect",
        ),
        (lambda: policy(observations=spaces.Text(3)), "observation space must be Box"),
        (
            lambda: policy(observations=spaces.Dict({"a": spaces.Dict({"b": OBSERVATIONS})})),
            r"observation space\['a'\] must not be a Dict again",
        ),
        (
            lambda: ActorCritic(OBSERVATIONS, ACTIONS, PolicyConfig(), nn.Identity),
            "must have an integer features_dim",
        ),
        (
            lambda: policy(
                PolicyConfig(actor=ActorConfig(squash=True)), actions=spaces.Discrete(2)
            ),
            "act on Box action spaces alone",
        ),
    ],
)
def test_contradictions_are_refused(make, message):
    with pytest.raises(ConfigError, match=message):
        make()


def test_observations_of_a_wrong_shape_are_refused():
    made = policy()
    with pytest.raises(
        DataError, match=r"shape \(6,\) of their space after the row axes; was \(5,\)"
    ):
        made.step(
            torch.zeros(ROWS, 5), made.initial_state(ROWS), torch.ones(ROWS, dtype=torch.bool)
        )


def test_the_default_policy_is_as_documented():
    config = PolicyConfig()
    assert (config.core, config.critic, config.twin) == (LstmConfig(), QuantileCritic(), "min")
    assert not config.share_core
    assert CategoricalCritic().n_atoms == 51


@pytest.mark.parametrize("options", [{}, {"share_core": True}, {"share_encoder": True}], ids=str)
def test_values_are_those_of_the_whole_pass(options: dict[str, bool]):
    torch.manual_seed(0)
    policy = ActorCritic(OBSERVATIONS, ACTIONS, PolicyConfig(**options))
    observations, state = torch.randn(3, 4, 6), policy.initial_state(4)
    starts = torch.zeros(3, 4, dtype=torch.bool)
    starts[1, 2] = True
    whole = policy(observations, state, starts)
    values, after = policy.values(observations, state, starts)
    for mine, expected in zip(values, whole.values, strict=True):
        assert torch.equal(mine.mean(), expected.mean())
    for mine, expected in zip(after.critic, whole.state.critic, strict=True):
        assert torch.equal(mine, expected)
