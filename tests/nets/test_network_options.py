"""Shared encoders, critics without memory, first weights, images and dropout."""

import pytest
import torch
from gymnasium import spaces
from torch import nn

from quantail.errors import ConfigError
from quantail.nets.actor_critic import ActorCritic, PolicyConfig
from quantail.nets.cores import LstmConfig, NoCoreConfig

BOX = spaces.Box(-1.0, 1.0, (6,))
ACTIONS = spaces.Discrete(3)
CORE = LstmConfig(hidden_size=8)


def network(**settings: object) -> ActorCritic:
    torch.manual_seed(0)
    given = {"core": CORE, "encoder_layers": (5,), **settings}
    return ActorCritic(BOX, ACTIONS, PolicyConfig(**given))  # type: ignore[arg-type]


def output(net: ActorCritic, x: torch.Tensor, starts: torch.Tensor):
    return net(x, net.initial_state(x.shape[1]), starts)


def test_a_shared_encoder_gets_the_gradients_of_actor_and_critics() -> None:
    net = network(share_encoder=True)
    assert net.critic_encoder is None
    assert net.critic_core is not None
    assert {"shared_encoder", "actor_core", "critic_core"} <= set(net.parameter_groups())
    said = output(net, torch.randn(4, 3, 6), torch.zeros(4, 3, dtype=torch.bool))
    for loss in (said.actions.entropy().sum(), said.values[0].mean().sum()):
        net.zero_grad()
        loss.backward(retain_graph=True)
        gradients = [parameter.grad for parameter in net.actor_encoder.parameters()]
        assert all(gradient is not None and gradient.any() for gradient in gradients)


def test_critics_without_memory_see_the_present_alone() -> None:
    net = network(critic_memory=False)
    assert net.initial_state(3).critic == ()
    x = torch.randn(4, 3, 6)
    never = torch.zeros(4, 3, dtype=torch.bool)
    first, second = output(net, x, never), output(net, torch.cat([x[:3] + 1, x[3:]]), never)
    assert torch.equal(first.values[0].mean()[3], second.values[0].mean()[3])
    assert not torch.equal(first.actions.log_probs[3], second.actions.log_probs[3])
    assert not torch.equal(first.values[0].mean()[2], second.values[0].mean()[2])


def is_orthogonal(layer: nn.Linear) -> bool:
    weight = layer.weight if layer.weight.shape[0] <= layer.weight.shape[1] else layer.weight.T
    product = weight @ weight.T
    return torch.allclose(product, product[0, 0] * torch.eye(len(product)), atol=1e-5)


@pytest.mark.parametrize("orthogonal", [True, False])
def test_first_weights(orthogonal: bool) -> None:
    net = network(orthogonal_init=orthogonal)
    modules = [net.actor_mlp, net.actor, *(critic.mlp for critic in net.critics)]
    layers = [m for part in modules for m in part.modules() if isinstance(m, nn.Linear)]
    assert len(layers) == 7
    assert all(is_orthogonal(layer) == orthogonal for layer in layers)


@pytest.mark.parametrize("scale", [True, False])
def test_images_are_scaled_only_when_asked(scale: bool) -> None:
    images = spaces.Box(0, 255, (1, 4, 4), "uint8")
    config = PolicyConfig(core=NoCoreConfig(), scale_images=scale)
    net = ActorCritic(images, ACTIONS, config)
    seen = net._inputs(torch.full((2, 1, 4, 4), 255, dtype=torch.uint8))
    assert torch.equal(seen, torch.full((2, 1, 4, 4), 1.0 if scale else 255.0))


def test_dropout_acts_between_layers_while_learning_alone() -> None:
    core = LstmConfig(hidden_size=8, layers=2, dropout=0.5).build(6)
    x, starts = torch.randn(5, 3, 6), torch.zeros(5, 3, dtype=torch.bool)

    def read() -> torch.Tensor:
        return core(x, core.initial_state(3), starts)[0]

    core.train()
    assert not torch.equal(read(), read())
    core.eval()
    assert torch.equal(read(), read())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"share_core": True, "share_encoder": True}, "share_encoder has no effect"),
        ({"share_core": True, "critic_memory": False}, "critic_memory = false needs a recurrent"),
        ({"core": NoCoreConfig(), "critic_memory": False}, "critic_memory = false needs"),
    ],
)
def test_contradictions_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        network(**settings)


def test_dropout_needs_two_layers() -> None:
    with pytest.raises(ConfigError, match=r"core.dropout acts between layers and there is one"):
        LstmConfig(dropout=0.5)
