"""`factorise` on a catalogue of models, against the log density that PyMC computes.

One test for each model; `factorise_checks` has what it checks. `make test` runs the models of `covering.txt`.
"""

import re

import pytest

from pymc_austerity import FactorisationError, factorise

from .catalogue import MODELS, REFUSED
from .catalogue_record import COVERING, ENTRIES, RECORDED, Recorded
from .factorise_checks import Case, check


def parameters(entries):
    """The entries; those that are recorded and not in the covering set are run by hand."""
    slow = pytest.mark.full_size("outside the covering set: see tests/model/covering.py")
    outside = RECORDED.keys() - COVERING
    return [pytest.param(e, id=e.name, marks=[slow] if e.name in outside else []) for e in entries]


@pytest.mark.parametrize("entry", parameters(MODELS))
@pytest.mark.covering(3)
def test_model(entry):
    case = Case(entry)
    check(case)
    found = Recorded.of(entry, case.local)
    assert RECORDED.get(entry.name, found) == found, (
        "as_recorded: other local terms than in catalogue_names.txt"
    )


@pytest.mark.parametrize("entry", parameters(REFUSED))
def test_refused(entry):
    model, _ = entry.build()
    with pytest.raises(FactorisationError) as caught:
        factorise(model)
    message = str(caught.value)
    assert isinstance(caught.value, ValueError)
    for word in entry.words:
        assert re.search(word, message), f"{word!r} not in: {message}"


# The record of the catalogue.


def test_names_differ():
    assert len(ENTRIES) == len(MODELS) + len(REFUSED)


def test_no_model_was_renamed_or_removed():
    """How many models are handled is counted over these names."""
    assert sorted(RECORDED.keys() - ENTRIES.keys()) == []


def test_files_and_outcomes_are_as_recorded():
    known = [Recorded.of(entry, None) for name, entry in ENTRIES.items() if name in RECORDED]
    assert [
        r for r in known if (r.file, r.outcome) != (RECORDED[r.name].file, RECORDED[r.name].outcome)
    ] == []


def test_covering_set_is_of_recorded_models():
    """So every name in it exists, and few are chosen of many."""
    assert RECORDED.keys() >= COVERING
    assert 0 < len(COVERING) < len(RECORDED) / 2
