"""Steps: optimizers, schedules, controllers."""
