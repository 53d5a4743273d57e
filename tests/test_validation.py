"""Numbers that parameters may be: ends of intervals, and what is no number."""

import math

import numpy as np
import pytest

from pymc_austerity.validation import is_within, require_real, require_whole


@pytest.mark.parametrize(
    ("interval", "inside", "outside"),
    [
        ("(0, 0.5]", [1e-300, 0.5], [0.0, -1.0, np.nextafter(0.5, 1.0), math.inf]),
        ("[0, 1)", [0, np.float32(0.5)], [-1e-300, 1, 1.0]),
        ("(0, inf)", [5e-324, 1e308, np.int64(3)], [0.0, math.inf, -math.inf]),
        ("[0, inf]", [0.0, math.inf], [-1e-300]),
        ("[-inf, inf]", [-math.inf, 0, math.inf], []),
    ],
)
def test_a_number_in_an_interval(interval, inside, outside):
    for value in inside:
        require_real("x", value, interval)
    for value in [*outside, math.nan, "0.1", True, None, [0.1]]:
        with pytest.raises(ValueError, match=r"x must be .*, got "):
            require_real("x", value, interval)
    np.testing.assert_array_equal(
        is_within(np.array([*inside, *outside, math.nan]), interval)[: len(inside)], True
    )
    assert not is_within(np.array([*outside, math.nan]), interval).any()


def test_what_is_said():
    with pytest.raises(ValueError, match=r"^x must be in \(0, 1\), got 2\. It is a share\.$"):
        require_real("x", 2, "(0, 1)", "It is a share.")
    with pytest.raises(ValueError, match=r"^x must be positive and finite, got 0\.$"):
        require_real("x", 0, "(0, inf)")
    require_whole(2, n=2, m=np.int32(7))
    for value in (1, 2.0, True, None, "2"):
        with pytest.raises(ValueError, match=f"^n must be an integer of at least 2, got {value!r}. Rows.$"):
            require_whole(2, "Rows.", n=value)
