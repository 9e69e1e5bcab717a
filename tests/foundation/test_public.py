"""The public names can be imported from the package, and only when asked for."""

import pytest

import quantail


@pytest.mark.parametrize("name", [n for n in quantail.__all__ if n != "__version__"])
def test_public_name(name: str) -> None:
    assert getattr(quantail, name).__name__ == name


def test_unknown_name() -> None:
    with pytest.raises(AttributeError, match="module 'quantail' has no attribute 'PPO'"):
        _ = quantail.PPO
