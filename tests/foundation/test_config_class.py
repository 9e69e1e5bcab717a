"""Ranges hold however a configuration is built."""

import dataclasses
import math

import pytest

from quantail.config_class import config
from quantail.errors import ConfigError
from tests.catalogue import catalogue
from tests.foundation.shapes import CategoricalHead, Learning, QuantileHead, Root


@config
class Many:
    """Thousands of numbers, as a run's state has them."""

    numbers: tuple[float, ...] = ()


def test_is_frozen_slotted_and_keyword_only() -> None:
    head = QuantileHead(n_quantiles=8)
    with pytest.raises(dataclasses.FrozenInstanceError):
        head.n_quantiles = 9  # type: ignore[misc]
    assert not hasattr(head, "__dict__")
    with pytest.raises(TypeError, match="positional"):
        QuantileHead("quantile", 8)  # type: ignore[misc]


@catalogue("X47")
@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: QuantileHead(n_quantiles=1), "n_quantiles: must be at least 2; was 1"),
        (lambda: QuantileHead(n_quantiles=513), "n_quantiles: must be at most 512; was 513"),
        (lambda: Learning(rate=0.0), "rate: must be greater than 0; was 0.0"),
        (lambda: Learning(rate=1.0), "rate: must be less than 1; was 1.0"),
        (lambda: Learning(gamma=float("nan")), "gamma: must be finite; was nan"),
        (lambda: Learning(max_grad_norm=-1.0), "max_grad_norm: must be greater than 0; was -1.0"),
        (
            lambda: QuantileHead(levels="dense"),
            "levels: must be one of 'uniform', 'tail'; was",
        ),
        (lambda: QuantileHead(n_quantiles=8.0), "n_quantiles: must be a whole number; was 8.0"),
        (lambda: QuantileHead(n_quantiles=True), "n_quantiles: must be a whole number; was True"),
        (lambda: Learning(gamma="0.9"), "gamma: must be a number; was '0.9'"),
        (lambda: CategoricalHead(support=(0.0, "1")), r"support\[1\]: must be a number; was '1'"),
        (
            lambda: CategoricalHead(support=[0.0, 1.0]),
            "support: must be a tuple; was",
        ),
        (
            lambda: Root(head=Learning()),
            "head: must be one of QuantileHead, CategoricalHead; was Learning",
        ),
        (lambda: Root(verbose=1), "verbose: must be True or False; was 1"),
        (lambda: Root(windows=()), r"windows: must have at least 1 item\(s\); was \(\)"),
    ],
)
def test_out_of_range_is_refused_never_clipped(build: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build()  # type: ignore[operator]


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ((1.0, math.inf), r"numbers\[1\]: must be finite; was inf"),
        ((1.0, math.nan), r"numbers\[1\]: must be finite; was nan"),
        ((1.0, "2"), r"numbers\[1\]: must be a number; was '2'"),
        ((True, 1.0), r"numbers\[0\]: must be a number; was True"),
    ],
)
def test_each_of_many_numbers_is_checked(numbers: tuple[float, ...], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Many(numbers=numbers)
    assert Many(numbers=(1.0, 2)).numbers == (1.0, 2)


def test_all_ranges_are_reported_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        Learning(rate=2.0, gamma=-1.0)
    assert [problem.path for problem in caught.value.problems] == ["rate", "gamma"]


def test_contradictions_are_checked_after_ranges() -> None:
    with pytest.raises(ConfigError, match=r"support must rise; was \(3.0, 1.0\). Swap"):
        CategoricalHead(support=(3.0, 1.0))


def test_none_is_allowed_where_the_type_says_so() -> None:
    assert Learning(max_grad_norm=None).max_grad_norm is None


def test_own_post_init_is_refused() -> None:
    with pytest.raises(TypeError, match=r"Sneaky: write the checks into check\(\)"):

        @config
        class Sneaky:
            def __post_init__(self) -> None:
                """Would replace the range checks."""
