"""How long chaos lasts: a fixed profile for every build, longer ones by the environment.

`CAPTF_CHAOS_EXAMPLES` is the number of stories that each test tells, `CAPTF_CHAOS_STEPS` the length of a story
of the state machine; `CAPTF_CHAOS_SEED=random` tells other stories than the fixed ones. A story that failed
says how to tell it again.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, Phase, settings


def chaos_profile(examples: int, steps: int = 30) -> settings:
    """The settings of one chaos test, with its number of stories in an ordinary build."""
    return settings(
        max_examples=int(os.environ.get("CAPTF_CHAOS_EXAMPLES", str(examples))),
        stateful_step_count=int(os.environ.get("CAPTF_CHAOS_STEPS", str(steps))),
        derandomize=os.environ.get("CAPTF_CHAOS_SEED", "fixed") != "random",
        database=None,
        deadline=None,
        print_blob=True,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.explicit, Phase.generate, Phase.shrink),
    )
