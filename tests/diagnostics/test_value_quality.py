"""Explained variance against its definition."""

import pytest
import torch

from quantail.diagnostics.value_quality import explained_variance


def test_perfect_constant_and_worse() -> None:
    observed = torch.tensor([1.0, 2.0, 4.0])
    ones = torch.ones(3)
    assert float(explained_variance(observed, observed, ones)) == pytest.approx(1.0)
    assert float(explained_variance(ones, observed, ones)) == pytest.approx(0.0)
    assert float(explained_variance(-observed, observed, ones)) == pytest.approx(-3.0)


def test_rows_without_weight_do_not_count() -> None:
    observed = torch.tensor([1.0, 2.0, 4.0, 1e6])
    predicted = torch.tensor([1.0, 2.0, 3.0, torch.nan])
    weights = torch.tensor([1.0, 1.0, 1.0, 0.0])
    expected = explained_variance(predicted[:3], observed[:3], weights[:3])
    assert float(explained_variance(predicted, observed, weights)) == float(expected)


def test_a_weight_of_two_is_two_rows() -> None:
    observed = torch.tensor([1.0, 2.0, 4.0])
    predicted = torch.tensor([1.5, 2.0, 3.0])
    twice = explained_variance(predicted, observed, torch.tensor([1.0, 2.0, 1.0]))
    rows = torch.tensor([0, 1, 1, 2])
    assert float(twice) == pytest.approx(
        float(explained_variance(predicted[rows], observed[rows], torch.ones(4)))
    )


@pytest.mark.parametrize("observed", [[3.0], [3.0, 3.0, 3.0]])
def test_undefined_is_nan(observed: list[float]) -> None:
    rows = torch.tensor(observed)
    assert torch.isnan(explained_variance(rows, rows, torch.ones_like(rows)))
