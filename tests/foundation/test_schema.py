"""How a metric is declared."""

from dataclasses import dataclass

import pytest

from quantail.diagnostics.schema import declared, find_metric, metric, tagged
from quantail.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyMetrics:
    approx_kl: float = metric("train/approx_kl", "nats", "KL of old and new.", better="lower")
    stops: int | None = metric("train/stops", "1", "Early stops.", healthy=(0, 3), aggregate="sum")


def test_declaration_is_complete() -> None:
    known = declared(PolicyMetrics)
    assert list(known) == ["train/approx_kl", "train/stops"]
    assert known["train/approx_kl"].better == "lower"
    assert known["train/stops"].healthy == (0, 3)
    assert known["train/stops"].aggregate == "sum"


def test_record_becomes_tags_and_leaves_out_what_is_missing() -> None:
    assert tagged(PolicyMetrics(approx_kl=0.5, stops=None)) == {"train/approx_kl": 0.5}


def test_misspelled_metric_cannot_be_recorded() -> None:
    with pytest.raises(TypeError, match="aprox_kl"):
        PolicyMetrics(aprox_kl=0.5, stops=1)  # type: ignore[call-arg]


def test_tag_declared_twice() -> None:
    @dataclass(frozen=True)
    class Again:
        kl: float = metric("train/approx_kl", "nats", "The same.")

    with pytest.raises(ValueError, match="Again.kl declares train/approx_kl a second time"):
        declared(PolicyMetrics, Again)


def test_field_without_declaration() -> None:
    @dataclass(frozen=True)
    class Bare:
        loss: float

    with pytest.raises(ValueError, match=r"Bare.loss is not declared with metric\(...\)"):
        declared(Bare)


@pytest.mark.parametrize(
    ("tag", "sentence", "healthy", "message"),
    [
        ("Train/KL", "Fine.", None, "must read group/name in lower case"),
        ("train", "Fine.", None, "must read group/name in lower case"),
        ("train/kl", "No period", None, "the sentence must end with a period"),
        ("train/kl", "Fine.", (1.0, 1.0), r"healthy range \(1.0, 1.0\) is empty"),
    ],
)
def test_sloppy_declarations_are_refused(
    tag: str, sentence: str, healthy: tuple[float, float] | None, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        metric(tag, "1", sentence, healthy=healthy)


def test_objective_must_be_declared() -> None:
    known = declared(PolicyMetrics)
    assert find_metric("train/stops", known, "selection.metric").unit == "1"
    with pytest.raises(
        ConfigError,
        match=r"selection.metric must name a declared metric \(train/approx_kl, train/stops\); "
        "was 'train/aprox_kl'",
    ):
        find_metric("train/aprox_kl", known, "selection.metric")
