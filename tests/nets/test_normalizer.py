"""Observation normalizer: exact statistics, frozen between updates, saved with the network."""

import numpy as np
import pytest
import torch
from gymnasium import spaces

from quantail.errors import DataError
from quantail.nets.normalizer import ObservationNormalizer, RunningMoments

BOX = spaces.Box(-np.inf, np.inf, (3,))


def test_merging_unequal_batches_is_exact():
    generator = torch.Generator().manual_seed(0)
    rows = 1e4 + torch.randn(1000, 3, generator=generator).double() * torch.tensor([0.1, 1, 50])
    moments = RunningMoments((3,))
    for batch in rows.split([1, 400, 9, 590]):
        moments.update(batch)
    torch.testing.assert_close(moments.mean, rows.mean(0), rtol=1e-10, atol=0)
    torch.testing.assert_close(moments.variance, rows.var(0, correction=0), rtol=1e-6, atol=0)
    assert float(moments.count) == 1000


def test_an_empty_batch_changes_nothing():
    moments = RunningMoments((3,))
    moments.update(torch.empty(0, 3))
    assert float(moments.count) == 0
    torch.testing.assert_close(moments.variance, torch.ones(3).double())


def test_seen_observations_come_out_with_mean_zero_and_deviation_one():
    normalizer = ObservationNormalizer(BOX, clip=10.0)
    rows = torch.randn(500, 3) * torch.tensor([0.01, 1, 300]) + 7
    normalizer.update(rows)
    out = normalizer(rows)
    torch.testing.assert_close(out.mean(0), torch.zeros(3), rtol=0, atol=1e-3)
    torch.testing.assert_close(out.std(0, correction=0), torch.ones(3), rtol=1e-3, atol=0)


def test_it_is_the_identity_before_the_first_update_and_clips():
    normalizer = ObservationNormalizer(BOX, clip=2.0)
    assert normalizer(torch.tensor([[0.5, -9.0, 1.0]])).tolist() == [[0.5, -2.0, 1.0]]


def test_reading_never_changes_the_statistics():
    normalizer = ObservationNormalizer(BOX, clip=10.0)
    normalizer.update(torch.randn(50, 3))
    before = {key: value.clone() for key, value in normalizer.state_dict().items()}
    normalizer.train()
    normalizer(torch.randn(50, 3) * 100)
    for key, value in normalizer.state_dict().items():
        assert torch.equal(value, before[key]), key


def test_constant_observations_stay_finite():
    normalizer = ObservationNormalizer(BOX, clip=10.0)
    normalizer.update(torch.full((10, 3), 4.0))
    assert normalizer(torch.full((1, 3), 4.0)).abs().max() == 0
    assert torch.isfinite(normalizer(torch.zeros(1, 3))).all()


def test_statistics_travel_with_the_state():
    normalizer, other = (ObservationNormalizer(BOX, clip=10.0) for _ in range(2))
    normalizer.update(torch.randn(50, 3) * 5)
    other.load_state_dict(normalizer.state_dict())
    rows = torch.randn(4, 3)
    assert torch.equal(other(rows), normalizer(rows))
    for part in (normalizer, other):
        part.update(rows)
    assert torch.equal(other(rows), normalizer(rows))


def test_keys_have_their_own_statistics_and_only_boxes_are_touched():
    space = spaces.Dict(
        {
            "price.last": BOX,
            "keys": spaces.Box(-1, 1, (1,)),
            "mode": spaces.Discrete(2),
            "screen": spaces.Box(0, 255, (3, 4, 4), dtype=np.uint8),
        }
    )
    normalizer = ObservationNormalizer(space, clip=10.0)
    rows = {
        "price.last": torch.randn(200, 3) * 40,
        "keys": torch.randn(200, 1) + 3,
        "mode": torch.ones(200, 2),
        "screen": torch.full((200, 3, 4, 4), 0.5),
    }
    normalizer.update(rows)
    out = normalizer(rows)
    assert out["price.last"].std().item() == pytest.approx(1, abs=0.05)
    assert out["keys"].mean().item() == pytest.approx(0, abs=1e-3)
    assert out["mode"] is rows["mode"]
    assert out["screen"] is rows["screen"]


def test_observations_that_are_not_finite_are_refused():
    normalizer = ObservationNormalizer(spaces.Dict({"price": BOX}), clip=10.0)
    rows = torch.zeros(4, 3)
    rows[2, 1] = torch.nan
    with pytest.raises(DataError, match=r"observations\['price'\] must be finite; 1 of 12"):
        normalizer.update({"price": rows})
