"""Bounds by jets are those of the closed forms, where these are known."""

import numpy as np
import pytest

from pymc_austerity.bounds.row_constants import ExpansionCoordinates, bounded_term

from .curvatures import CURVATURES
from .row_functions import FORMS, term_of
from .test_families import (
    Binomial,
    Cloglog,
    Gamma,
    Logistic,
    N,
    NegativeBinomial,
    Normal,
    Poisson,
    Probit,
    Student,
)

SMOOTH = [Logistic, Binomial, Normal, Student, Poisson, Probit, Cloglog, NegativeBinomial, Gamma]
EVERYWHERE = ("binary logistic", "logistic", "negative binomial", "normal")
CENTER = np.array([0.2, 0.1, -0.1])


def constants(make, order, n_rows, radii):
    """The c_i of rows as they are where there are `n_rows` of them, by jets and by the closed form."""
    rng = np.random.default_rng([SMOOTH.index(make), order])
    family = make(rng)
    rows = np.c_[np.ones(N), rng.normal(size=(N, 2)), np.zeros(N)]
    scale = 1.0 / np.sqrt(n_rows)
    coordinates = ExpansionCoordinates(order, CENTER, np.eye(3) * scale, np.eye(3) / scale)
    parts = bounded_term(term_of(family, rows), coordinates, radii).constants()
    length, eta = np.linalg.norm(rows[:, :-1], axis=1) * scale, rows[:, :-1] @ CENTER
    columns = [np.asarray(getattr(family, name), float) for name in FORMS[family.name][1]]
    with np.errstate(over="ignore"):
        known = [CURVATURES[family.name](columns, eta - length * r, eta + length * r, order) for r in radii]
    return np.concatenate([c for _, c in parts], axis=1), np.array(known) * length ** (order + 1)


@pytest.mark.parametrize("n_rows", [1e4, 1e6])
@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("make", SMOOTH)
def test_bounds_of_typical_rows(make, order, n_rows):
    radii = np.sqrt(3.0) + np.array([3.0, 6.0])
    jets, known = constants(make, order, n_rows, radii)
    assert np.all(jets >= known * (1 - 1e-9))
    near, far = jets.sum(axis=1) / np.maximum(known.sum(axis=1), 1e-300)
    assert near <= 1.001
    assert far <= 2.0  # where few moves go, less is computed


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("make", [make for make in SMOOTH if make.name in EVERYWHERE])
def test_bounds_on_the_whole_line(make, order):
    jets, known = constants(make, order, 1e4, np.array([np.inf]))
    np.testing.assert_allclose(jets, known, rtol=1e-9)
