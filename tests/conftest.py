import os

from hypothesis import HealthCheck, settings

# The same examples on every machine and at every run; looking for new ones is a deliberate act: HYPOTHESIS_PROFILE=hunt.
settings.register_profile(
    "ci",
    derandomize=True,
    max_examples=30,
    stateful_step_count=25,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("hunt", max_examples=1000, stateful_step_count=60, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))
