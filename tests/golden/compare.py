"""Are two results the same, bit for bit, and if not, how far apart?"""

from collections.abc import Mapping

import numpy as np

Arrays = Mapping[str, np.ndarray]


def differences(one: Arrays, two: Arrays) -> list[str]:
    """A line for each array that is not the same; NaN equals NaN."""
    found = []
    for name in dict.fromkeys([*one, *two]):
        if name not in one or name not in two:
            found.append(f"{name}: only in the {'first' if name in one else 'second'}")
            continue
        a, b = np.asarray(one[name]), np.asarray(two[name])
        if (a.dtype, a.shape) != (b.dtype, b.shape):
            found.append(f"{name}: {a.dtype} {a.shape}, then {b.dtype} {b.shape}")
            continue
        differ = unequal(a, b)
        if differ.any():
            first = tuple(int(i) for i in np.argwhere(differ)[0])
            place = "chain {}, draw {}".format(*first) if len(first) > 1 else f"{first}"
            found.append(
                f"{name}: {differ.sum()} of {differ.size} differ, first at {place}: {a[first]!s}, then "
                f"{b[first]!s}{_distance(a, b)}"
            )
    return found


def unequal(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Which elements of two arrays of one type and shape have other bits; 0.0 and -0.0 have."""
    if a.dtype.kind != "f":
        return np.asarray(a != b)
    bits = f"u{a.dtype.itemsize}"
    a, b = np.asarray(a, order="C"), np.asarray(b, order="C")
    return (a.view(bits) != b.view(bits)) & ~(np.isnan(a) & np.isnan(b))


def _distance(a: np.ndarray, b: np.ndarray) -> str:
    """The largest difference, in standard deviations over chains and draws where there are any."""
    if a.dtype.kind not in "fiub":
        return ""
    a, b = a.astype(float), b.astype(float)
    with np.errstate(all="ignore"):
        gaps = np.abs(a - b)
        sd = a.std(axis=(0, 1), keepdims=True) if a.ndim > 1 else np.array(np.nan)
        scaled = gaps / sd
    if np.isfinite(scaled).any():
        return f"; at most {scaled[np.isfinite(scaled)].max():.2g} sd apart"
    if np.isfinite(gaps).any():
        return f"; at most {gaps[np.isfinite(gaps)].max():.2g} apart"
    return ""
