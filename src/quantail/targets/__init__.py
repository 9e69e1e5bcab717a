"""What the critics and the policy learn toward; pure functions."""
