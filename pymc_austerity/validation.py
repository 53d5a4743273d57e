"""What counts as a number among parameters (NumPy's too, but not booleans), and words for messages."""

import functools
import warnings
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from numbers import Integral, Real
from typing import Any, TypeGuard

import numpy as np


def is_real(value: Any) -> TypeGuard[float]:
    """Is this a real number?"""
    return isinstance(value, Real) and not isinstance(value, bool)


def is_whole(value: Any) -> TypeGuard[int]:
    """Is this a whole number?"""
    return isinstance(value, Integral) and not isinstance(value, bool)


def require_whole(least: int, why: str = "", /, **given: Any) -> None:
    """Refuse parameters that are no whole numbers of at least `least`, and say `why`."""
    for name, value in given.items():
        if not is_whole(value) or value < least:
            raise ValueError(f"{name} must be an integer of at least {least}, got {value!r}. {why}".rstrip())


# What a message says of an interval without an end, after "must be".
_ENDLESS = {
    "(0, inf)": "positive and finite",
    "[0, inf)": "finite and not negative",
    "[0, inf]": "at least 0",
    "[1, inf)": "at least 1",
    "(1, inf)": "a number above 1",
    "[-inf, inf]": "a number",
}


def require_real(name: str, value: Any, interval: str, why: str = "") -> None:
    """Refuse a parameter that is no number in an interval, such as "(0, 0.5]", and say `why`."""
    if not is_real(value) or not is_within(value, interval):
        said = _ENDLESS.get(interval, f"in {interval}")
        raise ValueError(f"{name} must be {said}, got {value!r}. {why}".rstrip())


def is_within(value: Any, interval: str) -> Any:
    """Is a number, or each of an array, in an interval? NaN is in none."""
    low, high = map(float, interval[1:-1].split(","))
    above = value >= low if interval[0] == "[" else value > low
    return above & (value <= high if interval[-1] == "]" else value < high)


def require_switches(**given: Any) -> None:
    """Refuse parameters that are neither True nor False."""
    for name, value in given.items():
        if not isinstance(value, bool | np.bool_):
            raise ValueError(f"{name} must be True or False, got {value!r}.")


def first_batch(chosen: int | None, default: int, n_local: int) -> int:
    """Terms in a first batch: so many as were chosen, which have to be there, or at most the default."""
    if chosen is None:
        return min(default, n_local)
    if chosen > n_local:
        raise ValueError(f"batch_size must be at most the number of local terms, {n_local}, got {chosen}.")
    return chosen


def few_digits(value: float) -> str:
    """A number with no more digits than can be read; thousands are grouped."""
    return f"{value:,.0f}" if abs(value) >= 100.0 else f"{value:.3g}"


def renamed[**P, R](**names: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Let a function take keywords by their old names too, with a warning, for one version."""

    def decorated(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def called(*args: P.args, **kwargs: P.kwargs) -> R:
            given: Any = {names.get(name, name): value for name, value in kwargs.items()}
            for old in names.keys() & kwargs.keys():
                warnings.warn(f"{old}= is now {names[old]}=.", FutureWarning, stacklevel=2)
            return function(*args, **given)

        return called

    return decorated


def nearest(name: str, known: Iterable[str]) -> str:
    """A question that names what may have been meant; empty if nothing is like it."""
    close = get_close_matches(name, list(known), n=1)
    return f" Did you mean {close[0]!r}?" if close else ""
