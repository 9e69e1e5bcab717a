"""Checks that users can run on their own parts."""

from quantail.testing.features import check_features

__all__ = ["check_features"]
