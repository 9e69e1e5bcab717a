"""Critics learn the law of the return, not only its mean.

One state, rewards N(0, 1) for ever: the discounted return is N(0, 1 / (1 - γ²)). The critic sees a
constant and bootstraps on itself, as in training. With the scalar λ-return as target the learned
spread must come out too small by √((1 - γ²) / (1 - γ²λ²)), which shows that the test can tell.

Distances are to the true law. A staircase of 32 quantiles or 51 atoms is 0.045 or 0.05 deviations
away from a normal law however well it is learned, one of 64 or 101 steps 0.024; so these are the
sizes to ask for where the whole shape matters.
"""

import math

import pytest
import torch
from torch import Tensor

from quantail.nets.critics import CategoricalCritic, QuantileCritic
from quantail.nets.critics.categorical import CategoricalValues
from quantail.nets.critics.quantile import QuantileValues
from quantail.targets.advantages import lambda_returns
from quantail.targets.distributions import sr_lambda

GAMMA, LAM = 0.95, 0.9
DEVIATION = 1 / math.sqrt(1 - GAMMA**2)
TRUTH = torch.distributions.Normal(0.0, DEVIATION)
CVAR = -2.0627128 * DEVIATION  # of N(0, 1) at 0.05: -φ(z) / 0.05 with Φ(z) = 0.05
STEPS, ENVS, ROLLOUTS = 128, 16, 400
LEVELS = (torch.arange(2000) + 0.5) / 2000

FINE = [
    QuantileCritic(n_quantiles=64, levels="tail", tail_alpha=0.05),
    QuantileCritic(n_quantiles=64),
    CategoricalCritic(n_atoms=101),
]
Critic = QuantileCritic | CategoricalCritic
Law = QuantileValues | CategoricalValues


def learn(critic: Critic, *, scalar_target: bool) -> Law:
    """Train a critic on itself, with steps that shrink to nothing; return its last law."""
    generator = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    head = critic.build(1)
    optimizer = torch.optim.Adam(head.parameters())
    latent, none = torch.ones(STEPS, ENVS, 1), torch.zeros(STEPS, ENVS, dtype=torch.bool)
    ends = {"terminated": none, "truncated": none, "gamma": GAMMA, "lam": LAM}
    for rollout in range(ROLLOUTS):
        optimizer.param_groups[0]["lr"] = 0.02 * (1 - rollout / ROLLOUTS)
        law = head(latent[0, 0]).detach()
        rewards = torch.randn(STEPS, ENVS, generator=generator)
        if scalar_target:
            atoms = lambda_returns(rewards, law.mean().expand(STEPS, ENVS), **ends).unsqueeze(-1)
            weights = torch.ones(1)
        else:
            current, weights = law.atoms(generator)
            current = current.expand(STEPS, ENVS, -1)
            atoms = sr_lambda(rewards, current, **ends, generator=generator)
        head.update_scale(atoms.flatten(0, 1), weights, torch.ones(STEPS * ENVS))
        optimizer.zero_grad()
        head(latent).loss(atoms, weights).mean().backward()
        optimizer.step()
    result: Law = head(latent[0, 0]).detach()
    return result


def quantiles(law: Law) -> Tensor:
    """The quantile function of one row at ``LEVELS``."""
    if isinstance(law, QuantileValues):
        cell = torch.searchsorted(law.weights.cumsum(0), LEVELS).clamp(max=len(law.weights) - 1)
        return law.quantiles[cell]
    cell = torch.searchsorted(law.probs().cumsum(0), LEVELS).clamp(max=len(law.support) - 1)
    return law.support[cell]


def distance(law: Law) -> float:
    """W1 to the true law, in deviations."""
    return float((quantiles(law) - TRUTH.icdf(LEVELS)).abs().mean()) / DEVIATION


@pytest.mark.parametrize("critic", FINE, ids=["tail", "uniform", "categorical"])
def test_sr_lambda_teaches_the_law(critic: Critic) -> None:
    law = learn(critic, scalar_target=False)
    assert 0.97 <= float(law.std()) / DEVIATION <= 1.02
    assert distance(law) <= 0.03
    assert float(law.cvar(0.05)) / CVAR == pytest.approx(1, abs=0.04)


def test_the_default_critic_learns_the_law_up_to_its_staircase() -> None:
    law = learn(QuantileCritic(), scalar_target=False)
    assert isinstance(law, QuantileValues)
    best = law.map_rows(lambda _: TRUTH.icdf(law.levels))
    assert 0.97 <= float(law.std()) / float(best.std()) <= 1.02
    assert float(law.cvar(0.05)) / float(best.cvar(0.05)) == pytest.approx(1, abs=0.04)
    assert distance(law) <= distance(best) + 0.01


@pytest.mark.parametrize("critic", FINE[::2], ids=["tail", "categorical"])
def test_scalar_targets_teach_a_law_that_is_too_narrow(critic: Critic) -> None:
    law = learn(critic, scalar_target=True)
    shrunk = math.sqrt((1 - GAMMA**2) / (1 - (GAMMA * LAM) ** 2))
    assert shrunk == pytest.approx(0.602, abs=1e-3)
    assert float(law.std()) / DEVIATION == pytest.approx(shrunk, abs=0.04)
    assert float(law.cvar(0.05)) / CVAR == pytest.approx(shrunk, abs=0.04)
    assert distance(law) > 0.25
