"""The checks of a catalogue model find planted faults, and their messages name the check."""

import copy
from dataclasses import replace

import numpy as np
import pytest

from .catalogue_record import ENTRIES
from .factorise_checks import Case, check


class Broken:
    """A factorisation with some of it replaced."""

    def __init__(self, split, **replaced):
        self.split = split
        self.__dict__.update(replaced)

    def __getattr__(self, name):
        return getattr(self.split, name)

    def __repr__(self):
        return repr(self.split)


@pytest.fixture(scope="module")
def case():
    """A model of two vectors, intact; a test changes a copy."""
    case = Case(ENTRIES["two_observed"])
    check(case)
    return case


def broken(case, which="all", **replaced):
    """The case with a part of its factorisation (`all` or `subset`) replaced."""
    case = copy.copy(case)
    setattr(case, which, Broken(getattr(case, which), **replaced))
    return case


def with_terms(case, which, change):
    """The case with ``change(split, point, index, whole)`` for terms, `whole` if all are asked for."""
    split = getattr(case, which)

    def log_density_terms(point, index=None):
        whole = index is None
        index = np.arange(split.n_local) if whole else np.asarray(index)
        return change(split, point, index, whole)

    return broken(case, which, log_density_terms=log_density_terms)


def shifted(split, point, index, whole):
    return split.log_density_terms(point, index if whole else (index + 1) % split.n_local)


def in_order(split, point, index, whole):
    return split.log_density_terms(point, np.sort(index))


def backwards(split, point, index, whole):
    return split.log_density_terms(point, split.n_local - 1 - index)


def scaled(split, point, index, whole):
    return split.log_density_terms(point, index) * (1 + 1e-8)


def one_dropped(split, point, index, whole):
    return np.where(index == 7, 0.0, split.log_density_terms(point, index))


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (shifted, "positions"),
        (in_order, "positions"),
        (backwards, "terms"),
        (scaled, "sum_of_terms"),
        (one_dropped, "sum_of_terms"),
    ],
)
def test_wrong_terms_are_found(case, change, name):
    """Planted fault: terms that are shifted, sorted, scaled or dropped."""
    with pytest.raises(AssertionError, match=f"^{name}: "):
        check(with_terms(case, "all", change))


@pytest.mark.parametrize("change", [shifted, in_order, scaled, one_dropped])
def test_wrong_terms_of_a_subset_of_variables_are_found(case, change):
    """Planted fault: the same for a subset of variables."""
    with pytest.raises(AssertionError, match="^subset_of_variables: "):
        check(with_terms(case, "subset", change))


@pytest.mark.parametrize(("which", "name"), [("all", "sum_of_terms"), ("subset", "subset_of_variables")])
def test_lost_global_part_is_found(case, which, name):
    """Planted fault: no global part."""
    with pytest.raises(AssertionError, match=f"^{name}: "):
        check(broken(case, which, global_log_density=lambda point: 0.0))


@pytest.mark.parametrize("which", ["all", "subset"])
def test_lost_term_is_found(case, which):
    """Planted fault: no global terms."""
    name = "names_and_sizes" if which == "all" else "subset_of_variables"
    with pytest.raises(AssertionError, match=f"^{name}: "):
        check(broken(case, which, global_terms=[]))


def test_vector_that_is_also_global_is_found(case):
    """Planted fault: a local term that is global, too."""
    with pytest.raises(AssertionError, match="^whole_vectors_are_local: "):
        check(broken(case, global_terms=["beta", "rate", "y"]))


def test_refusal_of_a_model_that_can_be_split_is_found(case):
    refused = copy.copy(case)
    refused.refusal = "Rows of the term 'y' cannot be computed from a subsample."
    with pytest.raises(AssertionError, match="^is_split_or_refused: Rows of the term"):
        check(refused)


@pytest.mark.parametrize("message", ["Rows cannot be computed.", "This term, 'y', is a defect."])
def test_refusal_in_wrong_words_is_found(case, message):
    refused = copy.copy(case)
    refused.entry, refused.refusal = replace(case.entry, required=False, refused_so_far=True), message
    with pytest.raises(AssertionError, match="^is_split_or_refused: "):
        check(refused)


def test_split_of_a_model_that_was_refused_is_found(case):
    split = copy.copy(case)
    split.entry = replace(case.entry, refused_so_far=True)
    with pytest.raises(AssertionError, match="^is_split_or_refused: is split, no longer refused"):
        check(split)
