"""How long a step may run: seconds, evaluated terms, or draws."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

from pymc_austerity.validation import is_real, is_whole

Kind = Literal["seconds", "terms", "draws"]


@dataclass(frozen=True)
class Budget:
    """Amount that all chains of a step together may spend after tuning; draws are those of each chain.

    Parameters
    ----------
    kind : "seconds", "terms" or "draws"
    amount : float > 0
    """

    kind: Kind
    amount: float

    def for_chain(self, chains: int) -> float:
        """Amount that one of `chains` chains may spend."""
        return self.amount if self.kind == "draws" else self.amount / chains

    def __str__(self) -> str:
        if self.kind == "draws":
            return f"{self.amount:,.0f} draws of each chain"
        number = f"{self.amount:,.0f}" if self.amount >= 100 else f"{self.amount:.3g}"
        if self.kind == "terms":
            return f"{number} local terms"
        return f"{number} second{'' if number == '1' else 's'}"


def budget_of(given: Any, name: str = "budget") -> Budget:
    """Check what was given as `budget`: seconds, or a dict with one kind and its amount."""
    if isinstance(given, Budget):
        return given
    if is_real(given):
        return _checked("seconds", given, name)
    if isinstance(given, Mapping) and len(given) == 1:
        kind, amount = next(iter(given.items()))
        if kind in get_args(Kind):
            return _checked(cast(Kind, kind), amount, name)
    raise TypeError(
        f'{name} must be a number of seconds, {{"seconds": s}}, {{"terms": n}} or {{"draws": n}}, '
        f"got {given!r}."
    )


def _checked(kind: Kind, amount: Any, name: str) -> Budget:
    if kind == "draws" and (not is_whole(amount) or amount < 1):
        raise ValueError(f"{name}: draws must be a positive integer, got {amount!r}.")
    if not is_real(amount) or not 0.0 < amount < float("inf"):
        raise ValueError(f"{name}: {kind} must be a positive number, got {amount!r}.")
    return Budget(kind, float(amount))
