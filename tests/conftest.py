"""Settings shared by all tests."""

from hypothesis import HealthCheck, settings

# Derandomized: a red run can be repeated, and CI never fails by luck of the draw. No deadline, as
# the machines are noisy.
settings.register_profile(
    "default", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("default")
