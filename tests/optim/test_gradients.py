"""Gradient norms count each parameter once; the limit's default and its off switch."""

import math

import pytest
import torch
from torch import nn
from torch.nn import Parameter

from quantail.errors import ConfigError
from quantail.optim.gradients import clip_gradients, gradient_norm, group_norms
from tests.catalogue import catalogue


def with_gradient(*numbers: float) -> Parameter:
    parameter = Parameter(torch.zeros(len(numbers)))
    parameter.grad = torch.tensor(numbers)
    return parameter


@catalogue("F50")
@pytest.mark.parametrize(
    ("limit", "after"),
    [(None, 0.5), (0.5, 0.5), (2.0, 2.0), (0.0, 10.0), (-1.0, 10.0), (20.0, 10.0)],
)
def test_limit(limit: float | None, after: float) -> None:
    parameters = [with_gradient(6.0, 0.0), with_gradient(8.0)]
    result = clip_gradients(parameters, limit)
    assert result.before == 10
    assert result.after.item() == pytest.approx(after, rel=1e-6)
    assert parameters[0].grad.tolist() == pytest.approx([0.6 * after, 0], rel=1e-6)
    assert gradient_norm(parameters).item() == pytest.approx(after, rel=1e-6)


def test_a_norm_that_is_not_finite_is_refused() -> None:
    parameter = with_gradient(1.0, math.nan)
    with pytest.raises(
        FloatingPointError, match="norm must be finite before it is clipped; was nan"
    ):
        clip_gradients([parameter], 0.5)
    assert parameter.grad[0] == 1
    with pytest.raises(ConfigError, match="max_grad_norm must be a number; was nan"):
        clip_gradients([with_gradient(1.0)], math.nan)


@catalogue("F48")
def test_groups_that_partition_the_parameters_add_up() -> None:
    torch.manual_seed(0)
    core, head = nn.LSTM(3, 4, num_layers=2), nn.Linear(4, 1)
    out, _ = core(torch.randn(5, 2, 3))
    head(out).square().sum().backward()
    groups = {
        **{f"layer {k}": [p for n, p in core.named_parameters() if f"_l{k}" in n] for k in (0, 1)},
        "head": head.parameters(),
    }
    norms = group_norms(groups)
    total = torch.nn.utils.clip_grad_norm_([*core.parameters(), *head.parameters()], math.inf)
    assert sum(norm.item() ** 2 for norm in norms.values()) == pytest.approx(total.item() ** 2)
    assert all(norm > 0 for norm in norms.values())


@catalogue("F48")
def test_a_parameter_counts_once() -> None:
    parameter = with_gradient(3.0, 4.0)
    assert gradient_norm([parameter, parameter]) == 5
    clip_gradients([parameter, parameter], 1.0)
    assert parameter.grad.tolist() == pytest.approx([0.6, 0.8])
    with pytest.raises(ConfigError, match='groups "a" and "b" share a parameter of shape'):
        group_norms({"a": [parameter], "b": [parameter]})


@catalogue("F65")
def test_no_gradient_counts_as_zero() -> None:
    assert gradient_norm([]) == 0
    assert gradient_norm([Parameter(torch.ones(2))]) == 0
    assert group_norms({"a": []})["a"] == 0
    assert clip_gradients([Parameter(torch.ones(2))], 0.5).after == 0
