"""Tests of Stable-Baselines3 and sb3-contrib that cannot apply to our agent, with the reasons."""

EXCLUDED: dict[str, str] = {
    "test_gae.py::test_gae_computation": (
        "replaces the values by overriding forward of SB3's own ActorCriticPolicy, which has no "
        "law of returns; tests/sb3/test_rollout_buffer.py compares our buffer with SB3's formula"
    ),
    "test_sde.py::test_only_sde_squashed": (
        "demands that actions cannot be squashed without gSDE; ours can"
    ),
    "test_save_load.py::test_load_invalid_object": (
        "damages a pickled function inside the saved file; our files hold no pickle"
    ),
}
