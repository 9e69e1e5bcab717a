"""Actor heads and their laws, against torch.distributions and direct sums."""

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import distributions as reference

from quantail.errors import ConfigError, DataError
from quantail.nets.actors import (
    ActorConfig,
    Categorical,
    DiagonalGaussian,
    MultiCategorical,
    SquashedGaussian,
    build_actor,
)
from quantail.nets.actors.discrete import masked_log_softmax
from quantail.nets.actors.gaussian import Bounds
from tests.catalogue import catalogue

BOX = spaces.Box(-1.0, 2.0, (3,))
SPACES = [BOX, spaces.Discrete(4), spaces.MultiDiscrete([2, 4, 3]), spaces.MultiBinary(3)]
INPUTS = 5


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def gaussian(kind: type[DiagonalGaussian], seed: int = 0, dims: int = 3) -> DiagonalGaussian:
    location = torch.randn(6, dims, generator=generator(seed))
    log_std = 0.5 * torch.randn(6, dims, generator=generator(seed + 100))
    return kind(
        location, log_std, Bounds(torch.full((dims,), -1.0), torch.full((dims,), 2.0), (dims,))
    )


def shaken(space: spaces.Space, config: ActorConfig | None = None) -> torch.nn.Module:
    torch.manual_seed(0)
    actor = build_actor(space, INPUTS, config or ActorConfig())
    for parameter in actor.parameters():
        torch.nn.init.normal_(parameter)
    return actor


def torch_normal(law: DiagonalGaussian) -> reference.Independent:
    return reference.Independent(reference.Normal(law.location, law.log_std.exp()), 1)


@catalogue("F08")
def test_gaussian_agrees_with_torch_and_sums_its_dimensions_once():
    law, new = gaussian(DiagonalGaussian), gaussian(DiagonalGaussian, 1)
    raw = law.sample(generator())
    assert law.entropy().shape == law.log_prob(raw).shape == law.kl(new).shape == (6,)
    torch.testing.assert_close(law.log_prob(raw), torch_normal(law).log_prob(raw))
    marginals = reference.Normal(law.location, law.log_std.exp()).entropy()
    torch.testing.assert_close(law.entropy(), marginals[:, 0] + marginals[:, 1] + marginals[:, 2])
    expected = reference.kl_divergence(torch_normal(law), torch_normal(new))
    torch.testing.assert_close(law.kl(new), expected)


def test_gaussian_actions_are_clipped_only_for_the_environment():
    law = gaussian(DiagonalGaussian)
    raw = torch.tensor([[-5.0, 0.5, 9.0]]).expand(6, 3)
    assert law.to_env(raw)[0].tolist() == [-1.0, 0.5, 2.0]
    assert not torch.equal(law.log_prob(raw), law.log_prob(law.to_env(raw)))


def test_gaussian_samples_have_the_laws_moments():
    law = gaussian(DiagonalGaussian)
    raw = DiagonalGaussian.stack([law] * 20_000).sample(generator())
    standard_error = law.log_std.exp() / 20_000**0.5
    assert ((raw.mean(0) - law.location).abs() < 4.5 * standard_error).all()
    torch.testing.assert_close(raw.std(0), law.log_std.exp(), rtol=0.03, atol=0)


def test_squashed_density_integrates_to_one():
    law = SquashedGaussian(
        torch.tensor([[0.7]]), torch.tensor([[-0.2]]), Bounds(torch.zeros(1), torch.ones(1), (1,))
    )
    action = torch.linspace(-1, 1, 200_001, dtype=torch.float64)[1:-1]
    density = law.map_rows(torch.Tensor.double).log_prob(action.atanh().unsqueeze(-1)).exp()
    assert torch.trapezoid(density, action).item() == pytest.approx(1, abs=1e-3)


def test_squashed_log_prob_stays_right_where_tanh_is_one():
    law = SquashedGaussian(
        torch.zeros(1, 1), torch.zeros(1, 1), Bounds(*torch.tensor([[-1.0], [1.0]]), (1,))
    )
    for u in (0.3, 5.0, 20.0, -20.0):
        exact = (
            -0.5 * u**2
            - 0.5 * np.log(2 * np.pi)
            - 2 * (np.log(2) - abs(u) - np.log1p(np.exp(-2 * abs(u))))
        )
        assert law.log_prob(torch.tensor([[u]])).item() == pytest.approx(exact, rel=1e-5)


def test_squashed_entropy_is_minus_the_mean_log_prob():
    law = gaussian(SquashedGaussian)
    many = SquashedGaussian.stack([law] * 40_000)
    estimate = -many.log_prob(many.sample(generator())).mean(0)
    torch.testing.assert_close(law.entropy(), estimate, rtol=0, atol=0.03)
    assert law.entropy().shape == (6,)


def test_squashed_kl_is_that_of_the_raw_laws():
    law, new = gaussian(SquashedGaussian), gaussian(SquashedGaussian, 1)
    raw_law, raw_new = gaussian(DiagonalGaussian), gaussian(DiagonalGaussian, 1)
    torch.testing.assert_close(law.kl(new), raw_law.kl(raw_new))


def test_squashed_actions_fill_the_box():
    law = gaussian(SquashedGaussian)
    raw = torch.tensor([-50.0, 0.0, 50.0]).expand(6, 3)
    torch.testing.assert_close(law.to_env(raw)[0], torch.tensor([-1.0, 0.5, 2.0]))


def test_categorical_agrees_with_torch():
    actor = shaken(spaces.Discrete(4, start=3))
    law, new = actor(torch.randn(6, INPUTS)), actor(torch.randn(6, INPUTS))
    other, other_new = (reference.Categorical(logits=part.log_probs) for part in (law, new))
    raw = law.sample(generator())
    torch.testing.assert_close(law.log_prob(raw), other.log_prob(raw))
    torch.testing.assert_close(law.entropy(), other.entropy())
    torch.testing.assert_close(law.kl(new), reference.kl_divergence(other, other_new))
    assert law.to_env(raw).min() >= 3
    torch.testing.assert_close(law.mode(), law.log_probs.argmax(-1))


def test_categorical_samples_follow_the_probabilities():
    probs = torch.tensor([0.1, 0.6, 0.0, 0.3])
    law = Categorical(probs.log().clamp(min=-1e8).expand(50_000, 4))
    counts = torch.bincount(law.sample(generator()), minlength=4) / 50_000
    torch.testing.assert_close(counts, probs, rtol=0, atol=0.01)
    assert counts[2] == 0


def test_several_choices_are_independent_categoricals():
    actor = shaken(spaces.MultiDiscrete([2, 4, 3], start=[5, 0, 1]))
    latent = torch.randn(6, INPUTS)
    law, new = actor(latent), actor(torch.randn(6, INPUTS))
    parts = [
        reference.Categorical(logits=part) for part in actor.scores(latent).split([2, 4, 3], -1)
    ]
    raw = law.sample(generator())
    assert raw.shape == (6, 3)
    assert (raw < torch.tensor([2, 4, 3])).all()
    expected = sum(part.log_prob(raw[:, k]) for k, part in enumerate(parts))
    torch.testing.assert_close(law.log_prob(raw), expected)
    torch.testing.assert_close(law.entropy(), sum(part.entropy() for part in parts))
    assert (law.kl(new) > 0).all()
    torch.testing.assert_close(law.kl(law), torch.zeros(6), rtol=0, atol=1e-6)
    torch.testing.assert_close(law.to_env(raw), raw + torch.tensor([5, 0, 1]))


def test_bits_are_independent():
    actor = shaken(spaces.MultiBinary((2, 2)))
    law = actor(torch.randn(6, INPUTS))
    raw = law.sample(generator())
    assert isinstance(law, MultiCategorical)
    assert law.to_env(raw).shape == (6, 2, 2)
    bits = reference.Bernoulli(probs=law.log_probs[..., 1].exp())
    torch.testing.assert_close(law.log_prob(raw), bits.log_prob(raw.float()).sum(-1))
    torch.testing.assert_close(law.entropy(), bits.entropy().sum(-1), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("space", SPACES[1:], ids=lambda space: type(space).__name__)
def test_masked_options_are_never_drawn_and_the_rest_is_renormalized(space):
    actor = shaken(space)
    latent = torch.randn(3000, INPUTS)
    mask = torch.ones(3000, actor.choices, dtype=torch.bool)
    forbidden = 1
    mask[:, forbidden] = False
    law = actor(latent, mask)
    raw = law.sample(generator())
    first = raw if raw.ndim == 1 else raw[:, 0]
    assert (first != forbidden).all()
    assert (law.mode().reshape(3000, -1)[:, 0] != forbidden).all()
    totals = law.log_probs.exp().sum(-1)
    torch.testing.assert_close(totals, torch.ones_like(totals))
    for number in (law.entropy(), law.kl(law), law.log_prob(raw)):
        assert torch.isfinite(number).all()
    law.log_prob(raw).sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in actor.parameters())


def test_a_row_that_allows_nothing_is_an_error():
    actor = shaken(spaces.Discrete(3))
    mask = torch.ones(2, 4, 3, dtype=torch.bool)
    mask[1, 2] = False
    with pytest.raises(DataError, match=r"row \(1, 2\) allows none \(1 such rows\)"):
        actor(torch.randn(2, 4, INPUTS), mask)


def test_masks_of_a_wrong_shape_are_errors():
    with pytest.raises(DataError, match=r"shape \(2, 3\) of the options; was \(2, 4\)"):
        masked_log_softmax(torch.zeros(2, 3), torch.ones(2, 4, dtype=torch.bool))
    actor = shaken(spaces.MultiDiscrete([2, 3]))
    with pytest.raises(DataError, match="must have 5 entries per row, one per option; had 6"):
        actor(torch.randn(2, INPUTS), torch.ones(2, 6, dtype=torch.bool))
    with pytest.raises(DataError, match="action_masks need a Discrete"):
        shaken(BOX)(torch.randn(2, INPUTS), torch.ones(2, 3, dtype=torch.bool))


@pytest.mark.parametrize("space", SPACES, ids=lambda space: type(space).__name__)
def test_the_first_policy_hardly_depends_on_the_observation(space):
    torch.manual_seed(0)
    actor = build_actor(space, 64, ActorConfig())
    one, other = actor(torch.randn(1, 64)), actor(torch.randn(1, 64))
    assert one.kl(other).item() < 0.01


@pytest.mark.parametrize("space", SPACES, ids=lambda space: type(space).__name__)
def test_draws_depend_on_the_generator_alone(space):
    law = shaken(space)(torch.randn(20, INPUTS))
    one = law.sample(generator(7))
    torch.manual_seed(99)
    assert torch.equal(one, law.sample(generator(7)))
    assert not torch.equal(one, law.sample(generator(8)))
    assert not one.requires_grad


@pytest.mark.parametrize(
    ("space", "squash"), [*((space, False) for space in SPACES), (BOX, True)], ids=str
)
def test_actions_lie_in_their_space(space, squash):
    law = shaken(space, ActorConfig(squash=squash))(torch.randn(50, INPUTS))
    for action in law.to_env(law.sample(generator())).numpy():
        assert space.contains(action.astype(space.dtype))


@pytest.mark.parametrize("space", SPACES, ids=lambda space: type(space).__name__)
def test_rows_of_action_laws_can_be_picked_and_stacked(space):
    law = shaken(space)(torch.randn(4, 3, INPUTS))
    raw = law.sample(generator())
    again = type(law).stack([law.rows(t) for t in range(4)])
    torch.testing.assert_close(again.log_prob(raw), law.log_prob(raw))
    mask = torch.tensor([[True, False, True]] * 4)
    torch.testing.assert_close(law.rows(mask).log_prob(raw[mask]), law.log_prob(raw)[mask])
    assert law.entropy().requires_grad
    assert not law.detach().entropy().requires_grad


def test_log_std_starts_where_it_is_told():
    law = build_actor(BOX, INPUTS, ActorConfig(log_std_init=-1.5))(torch.randn(2, INPUTS))
    torch.testing.assert_close(law.log_std, torch.full((2, 3), -1.5))


def test_settings_that_cannot_work_are_refused():
    unbounded = spaces.Box(-np.inf, np.inf, (2,))
    with pytest.raises(
        ConfigError, match=r"actor\.squash needs an action space with finite bounds"
    ):
        build_actor(unbounded, INPUTS, ActorConfig(squash=True))
    with pytest.raises(ConfigError, match="act on Box action spaces alone"):
        build_actor(spaces.Discrete(2), INPUTS, ActorConfig(log_std_init=-1.0))
    with pytest.raises(ConfigError, match="must be Box, Discrete, MultiDiscrete or MultiBinary"):
        build_actor(spaces.Text(4), INPUTS, ActorConfig())
