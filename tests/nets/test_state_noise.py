"""State-dependent exploration: its law against draws, its gradients, its config."""

import pytest
import torch
from gymnasium import spaces

from quantail.errors import ConfigError
from quantail.nets.actors import (
    ActorConfig,
    SquashedStateGaussian,
    StateGaussian,
    StateNoise,
    StateNoiseActor,
    build_actor,
    explored,
)

BOX = spaces.Box(-2.0, 2.0, (2,))
FEATURES = 4


def head(squash: bool = False, **noise: bool) -> StateNoiseActor:
    torch.manual_seed(0)
    config = ActorConfig(squash=squash, log_std_init=-0.5, state_noise=StateNoise(**noise))
    actor = build_actor(BOX, FEATURES, config)
    assert isinstance(actor, StateNoiseActor)
    torch.nn.init.normal_(actor.log_std)
    return actor


@pytest.mark.parametrize("squash", [False, True])
@pytest.mark.parametrize("per_action", [False, True])
@pytest.mark.parametrize("expln", [False, True])
def test_draws_follow_the_law(squash: bool, per_action: bool, expln: bool) -> None:
    actor = head(squash, per_action=per_action, expln=expln)
    law = actor(torch.randn(3, FEATURES))
    assert type(law) is (SquashedStateGaussian if squash else StateGaussian)
    weights = actor.draw_weights(40_000, torch.Generator().manual_seed(1))
    assert weights.shape == (40_000, FEATURES, 2)
    draws = torch.stack([explored(law.rows(row), weights) for row in range(3)])
    torch.testing.assert_close(draws.mean(1), law.location, atol=0.05, rtol=0.02)
    torch.testing.assert_close(draws.std(1), law.log_std.exp(), atol=0.0, rtol=0.02)


def test_one_set_of_weights_is_a_function_of_the_state() -> None:
    actor = head()
    features = torch.randn(1, FEATURES).expand(5, -1)
    weights = actor.draw_weights(1)[0]
    same = explored(actor(features), weights)
    assert torch.equal(same, same[:1].expand(5, -1))
    each = explored(actor(features), actor.draw_weights(5))
    assert len(each.unique(dim=0)) == 5


def test_noise_of_each_row_uses_its_own_weights() -> None:
    actor = head()
    law, weights = actor(torch.randn(3, FEATURES)), actor.draw_weights(3)
    for row in range(3):
        noise = sum(law.features[row, i] * weights[row, i] for i in range(FEATURES))
        torch.testing.assert_close(explored(law, weights)[row], law.location[row] + noise)


def test_the_deviation_learns_and_the_features_do_not() -> None:
    actor = head()
    latent = torch.randn(3, FEATURES, requires_grad=True)
    law = actor(latent)
    (law.log_prob(law.sample()) * 0 + law.entropy()).sum().backward()
    assert actor.log_std.grad is not None
    assert actor.log_std.grad.abs().min() > 0
    assert latent.grad is None or not latent.grad.any()


def test_expln_is_smooth_at_zero_and_grows_slowly() -> None:
    noise = StateNoise(expln=True)
    at = torch.tensor([-1.0, 0.0, 3.0], dtype=torch.float64, requires_grad=True)
    std = noise.std(at)
    expected = torch.tensor([-1.0, 0.0, 3.0], dtype=torch.float64)
    expected = torch.stack([expected[0].exp(), expected[1].exp(), 1 + (1 + expected[2]).log()])
    torch.testing.assert_close(std.detach(), expected)
    std.sum().backward()
    torch.testing.assert_close(at.grad[1], torch.tensor(1.0, dtype=torch.float64))
    assert torch.autograd.gradcheck(noise.std, (at.detach().clone().requires_grad_() + 0.1,))


def test_shapes_of_the_deviations() -> None:
    assert head(per_action=True).log_std.shape == (FEATURES, 2)
    assert head(per_action=False).log_std.shape == (FEATURES, 1)


def test_state_noise_needs_a_box() -> None:
    with pytest.raises(ConfigError, match=r"actor.state_noise act on Box action spaces alone"):
        build_actor(spaces.Discrete(2), FEATURES, ActorConfig(state_noise=StateNoise()))
