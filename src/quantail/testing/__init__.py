"""Checks that users can run on their own parts."""

from quantail.testing.features import check_features
from quantail.testing.rewards import RewardReport, check_reward

__all__ = ["RewardReport", "check_features", "check_reward"]
