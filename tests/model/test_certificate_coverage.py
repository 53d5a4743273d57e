"""How many models of the catalogue have a certificate, and what is in the way of the others."""

import re
from collections import Counter

import numpy as np
import pytest

from pymc_austerity import FactorisationError
from pymc_austerity.bounds.jets.derivative_norms import Effort, derivative_norms
from pymc_austerity.bounds.jets.tape import tape_of
from pymc_austerity.exceptions import UnboundedError
from pymc_austerity.model.factorise import build
from pymc_austerity.model.structure.term_structure import TermStructure
from tests.model.catalogue_record import MODELS

# One in so many: all take five minutes.
STRIDE = 24
# Before bounds were derived from graphs: 166 of 423 models.
BEFORE, LEAST = 166 / 423, 0.6
N_ROWS = 200
# Half the width of a box of unit directions.
NARROW = 1e-6


def is_bounded(structure):
    """Whether third derivatives of some rows have finite bounds near a point beside the start."""
    inner = structure.inner
    fixed = [np.ravel(value) for name, value in inner.graph.point.items() if name in inner.var_names]
    q = np.concatenate(fixed) if structure.features is None else np.zeros(sum(map(len, fixed)))
    q = q + 0.1 * np.random.default_rng(1).normal(size=len(q))
    for function in structure.row_functions:
        some = np.unique(np.linspace(0, function.n_rows - 1, N_ROWS).astype(np.int64))
        rows, p = function.rows(some), function.n_predictors
        if p == 0:
            continue
        eta, directions = rows[..., :-1] @ q + rows[..., -1], rows[..., :-1]
        tape = tape_of(function.expression, p, 3)
        c = derivative_norms(tape, eta, directions, function.data(some), NARROW, 3, Effort(0, (1,) * p))
        if np.mean(np.isfinite(c)) < 0.9:
            return False
    return True


def outcome(entry):
    """Without a local term there is nothing to bound: None."""
    model, _ = entry.build()
    try:
        fact = build(model, None, threshold=1000, initial_point=None, check=False)
    except FactorisationError:
        return None
    if not fact.n_local:
        return None
    structure = TermStructure(fact)
    try:
        most = max(function.n_predictors for function in structure.row_functions)
    except UnboundedError as error:
        return re.sub(r"'[^']*'( and '[^']*')*", "...", str(error))
    # Features have no value of their own at the start; that a bound is finite is then not asked.
    if structure.features is None and not is_bounded(structure):
        return "a kink, or a pole, near the start"
    return f"certificate, {most} predictor{'s' if most != 1 else ''}"


@pytest.mark.slow("takes one model in 24 of the catalogue apart")
def test_most_models_have_a_certificate():
    found = Counter(filter(None, map(outcome, MODELS[::STRIDE])))
    total = sum(found.values())
    certified = sum(number for reason, number in found.items() if reason.startswith("certificate"))
    for reason, number in found.most_common():
        print(f"{number:5d}  {reason}")
    print(f"{certified} of {total} models: {certified / total:.0%}; {BEFORE:.0%} before")
    assert total > 12
    assert certified / total >= LEAST
