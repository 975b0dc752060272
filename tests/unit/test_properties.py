"""What holds for the tests of properties themselves."""

from __future__ import annotations

import threading

from hypothesis import given, settings
from hypothesis import strategies as st


def test_an_example_may_take_its_time() -> None:
    """On a busy machine each may take any time; Hypothesis would fail one that takes more than 0.2 s."""

    @settings(max_examples=1)
    @given(st.none())
    def holds(nothing: None) -> None:
        threading.Event().wait(0.25)

    holds()
