"""How much work a set-up may take, counted in elementary operations: one model gives one choice everywhere.

Nothing is timed. An operation takes an ordinary core about a nanosecond, so that a unit of a budget, 1e9 of
them, is about a second. `budgeted` opens a budget. What is done is told to `spend`, before it is where it is
long, and what lies ahead to `require`: either raises an error where the budget does not allow for it.
Without a budget, as in a chain, both do nothing.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from pymc_austerity.exceptions import SetUpBudgetError, UnsuitableError
from pymc_austerity.validation import few_digits, is_real

# Units of a budget, if nobody says how many, and operations of a unit.
DEFAULT_BUDGET, UNIT = 60.0, 1e9
# Operations for a multiplication and addition in a product of matrices.
OF_FLOP = 0.1
# A set-up may always cost as much as so many gradients of all rows: `pm.NUTS` takes more to tune.
_GRADIENTS = 1_000.0
# A budget that is named is so many times what is known to be needed.
_MORE = 4.0


@dataclass
class Ledger:
    """Operations that a set-up has taken of its budget."""

    budget: float  # As it was given
    limit: float  # As many operations, or those of some gradients if these are more
    spent: float = 0.0
    # n_rows, n_dim: of the model, for messages
    n_rows: int = 0
    n_dim: int = 0


_OPEN: ContextVar[Ledger | None] = ContextVar("set_up_budget", default=None)


def checked_budget(given: object) -> float:
    """Check the option `set_up_budget`."""
    if not is_real(given) or not given > 0.0:
        raise ValueError(
            "set_up_budget must be a positive number, in units of 1e9 operations, or inf, got "
            f"{given!r}. A unit takes about a second."
        )
    return float(given)


@contextmanager
def budgeted(budget: float) -> Iterator[None]:
    """Open a budget of some units for what is done within, unless one is open already."""
    if _OPEN.get() is not None:
        yield
        return
    token = _OPEN.set(Ledger(budget, budget * UNIT))
    try:
        yield
    finally:
        _OPEN.reset(token)


def sized(n_rows: int, n_dim: int, of_gradient: float) -> None:
    """Tell the size of the model, and the operations of a gradient of all its rows.

    Where equal rows are joined later, the limit remains that of all.
    """
    if ledger := _OPEN.get():
        ledger.n_rows, ledger.n_dim = n_rows, n_dim
        ledger.limit = max(ledger.limit, _GRADIENTS * of_gradient)


def spend(operations: float, what: str) -> None:
    """Take operations from the budget; `what` needs them, and begins a sentence of `SetUpBudgetError`."""
    if ledger := _OPEN.get():
        _refuse(ledger, ledger.spent + operations, what, is_all=False)
        ledger.spent += float(operations)


def require(operations: float, what: str) -> None:
    """Make sure that the budget allows for all that lies ahead, of which nothing is taken yet."""
    if ledger := _OPEN.get():
        _refuse(ledger, ledger.spent + operations, what, is_all=True)


@contextmanager
def on_trial() -> Iterator[None]:
    """Give what is taken within back to the budget if it ends in `UnsuitableError`."""
    ledger = _OPEN.get()
    spent = 0.0 if ledger is None else ledger.spent
    try:
        yield
    except UnsuitableError:
        if ledger is not None:
            ledger.spent = spent
        raise


def is_open() -> bool:
    """Is there a budget?"""
    return _OPEN.get() is not None


def _refuse(ledger: Ledger, needed: float, what: str, *, is_all: bool) -> None:
    if needed <= ledger.limit:
        return
    units, limit = needed / UNIT, ledger.limit / UNIT
    size = f"{ledger.n_rows:,} rows in {ledger.n_dim:,} dimensions"
    took = f"at least {few_digits(units)}" if is_all else f"more than {few_digits(limit)}"
    digits = 10.0 ** math.floor(math.log10(_MORE * units))
    raise SetUpBudgetError(
        f"{what} of {size} would take {took} billion operations, and the budget for the set-up is "
        f"{few_digits(limit)}",
        f"set_up_budget={math.ceil(_MORE * units / digits) * digits:g} goes on, for about as many seconds. "
        "Fewer dimensions help more, since work grows with their square: leave variables to a step of their "
        "own, or write effects of groups as u[group] with a prior whose scale is sampled, so that they are a "
        "field",
    )
