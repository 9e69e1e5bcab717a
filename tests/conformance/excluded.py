"""Tests of Stable-Baselines3 and sb3-contrib that cannot apply to our agent, with the reasons."""

EXCLUDED: dict[str, str] = {}
