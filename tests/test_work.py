"""The budget of a set-up: work is counted, and never timed."""

import math
import pickle

import pytest

from pymc_austerity import work
from pymc_austerity.exceptions import SetUpBudgetError, UnsuitableError


def test_what_is_spent_adds_up_to_the_budget_and_no_further():
    with work.budgeted(2.0):
        work.sized(30_000, 214, 0.0)
        for _ in range(4):
            work.spend(0.5e9, "The search")
        with pytest.raises(SetUpBudgetError) as caught:
            work.spend(1.0, "The search")
    assert isinstance(caught.value, UnsuitableError)  # a reason for `recommend`
    assert caught.value.reason == (
        "The search of 30,000 rows in 214 dimensions would take more than 2 billion operations, and the "
        "budget for the set-up is 2"
    )
    assert caught.value.remedy.startswith("set_up_budget=9 goes on, for about as many seconds")
    assert str(caught.value) == f"{caught.value.reason}. {caught.value.remedy}."
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_a_trial_that_is_refused_costs_nothing():
    def trial():
        with work.on_trial():
            for _ in range(2):
                work.spend(2e9, "A trial")

    with work.budgeted(3.0):
        with pytest.raises(SetUpBudgetError):
            trial()
        with work.on_trial():
            work.spend(2e9, "Another")
        with pytest.raises(SetUpBudgetError):
            work.spend(2e9, "The search")


def test_what_lies_ahead_is_added_to_what_was_spent_and_not_taken():
    with work.budgeted(10.0):
        work.spend(6e9, "One")
        work.require(4e9, "Two")
        work.require(4e9, "Two")
        with pytest.raises(
            SetUpBudgetError, match=r"would take at least 11 billion.* set_up_budget=50 goes on"
        ):
            work.require(5e9, "Two")
        work.spend(4e9, "Three")


def test_a_thousand_gradients_are_always_allowed():
    """`pm.NUTS` takes more to tune: rows without number make a set-up long, but not too long."""
    with work.budgeted(1.0):
        work.sized(10**9, 10, 5e9)
        work.spend(4_999e9, "The search")
        with pytest.raises(SetUpBudgetError, match=r"is 5,000\."):
            work.spend(2e9, "The search")
        work.sized(1000, 10, 1e3)  # with equal rows joined, of the same model
        work.spend(0.5e9, "The search")
    with work.budgeted(1.0):
        work.sized(1000, 10, 1e3)
        with pytest.raises(SetUpBudgetError, match=r"is 1\."):
            work.require(1.1e9, "The search")


def test_the_outermost_budget_counts():
    with work.budgeted(1.0), work.budgeted(1e6):
        work.spend(0.9e9, "One")
        with pytest.raises(SetUpBudgetError):
            work.spend(0.2e9, "Two")
    with work.budgeted(math.inf):
        work.spend(1e300, "One")


def test_without_a_budget_nothing_is_counted():
    assert not work.is_open()
    work.sized(1, 1, 1.0)
    work.spend(1e300, "A chain")
    work.require(1e300, "A chain")
    with work.budgeted(1.0):
        assert work.is_open()
    assert not work.is_open()


@pytest.mark.parametrize("given", [0, -1.0, math.nan, "60", None, True])
def test_values_that_are_no_budget(given):
    with pytest.raises(
        ValueError, match="set_up_budget must be a positive number, in units of 1e9 operations"
    ):
        work.checked_budget(given)
