"""Is a difference more than chance and promises allow? Messages that say by how much."""

from typing import Any

import numpy as np
import numpy.typing as npt

# Standard errors beyond a promise at which a check fails. With fixed seeds a correct object passes for good,
# or was unlucky once (6e-5 for each comparison) when the seed was chosen.
LIMIT = 4.0


def require(condition: Any, message: str) -> None:
    """Raise `AssertionError` with `message` unless `condition` is true; also under ``python -O``."""
    if not condition:
        raise AssertionError(message)


def require_close(
    what: str, found: float, expected: float, error: float, allowed: float, meaning: str
) -> None:
    """Fail if `found` is further from `expected` than promised, by more than `LIMIT` standard errors.

    `what` names the quantity, `error` is the standard error of `found`, and `allowed` the largest systematic
    difference that is promised; one that is not a number fails too. `meaning` says what a failure means.
    """
    difference = found - expected
    if abs(difference) <= allowed + LIMIT * error:
        return
    beyond = (abs(difference) - allowed) / error if error > 0.0 else np.inf
    raise AssertionError(
        f"{what} is {found:.5g} and should be {expected:.5g}. The difference, {difference:+.3g}, is "
        f"{beyond:.1f} standard errors (of {error:.2g}) beyond the {allowed:.3g} that is allowed; the limit "
        f"is {LIMIT:g}. {meaning}"
    )


def require_same(what: str, found: Any, expected: Any, meaning: str, rtol: float = 0.0) -> None:
    """Fail if two arrays differ anywhere, with the first place and how many differ; two NaN are equal."""
    found, expected = np.asarray(found), np.asarray(expected)
    require(
        found.shape == expected.shape, f"{what}: shape {found.shape} instead of {expected.shape}. {meaning}"
    )
    if rtol:
        same = np.isclose(found, expected, rtol=rtol, atol=0.0, equal_nan=True)
    else:
        same = (found == expected) | ((found != found) & (expected != expected))
    if np.all(same):
        return
    place = tuple(int(k) for k in np.argwhere(~np.atleast_1d(same))[0])
    one, other = np.atleast_1d(found)[place], np.atleast_1d(expected)[place]
    raise AssertionError(
        f"{what}: {np.sum(~same)} of {same.size} values differ, the first at {place}: {one!r} instead of "
        f"{other!r}. {meaning}"
    )


def require_same_state(what: str, found: Any, expected: Any, meaning: str) -> None:
    """Fail if two tuples of arrays, such as states of proposals, differ."""
    names = getattr(expected, "_fields", range(len(expected)))
    for name, one, other in zip(names, found, expected, strict=True):
        require_same(f"{what}, {name}", one, other, meaning)


def error_of_mean(draws: npt.ArrayLike) -> float:
    """Standard error of the mean of correlated draws, (n,) or (chains, n), from batch means.

    Notes
    -----
    Batches of n^(2/3) draws: long enough that the batch means of a chain with an autocorrelation time far
    below them are independent.

    *When it fails*: for a chain that mixes too slowly for that, it is too small.
    """
    chains = np.atleast_2d(np.asarray(draws, dtype=np.float64))
    length = round(chains.shape[1] ** (2.0 / 3.0))
    count = chains.shape[1] // length
    batches = chains[:, : count * length].reshape(-1, length).mean(axis=1)
    return float(batches.std(ddof=1) / np.sqrt(len(batches)))
