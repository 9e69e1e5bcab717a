"""The skin: the only package that imports Stable-Baselines3."""
