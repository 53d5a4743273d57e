"""Bounds of fourth derivatives of functions of one predictor: never below the truth, and not far above it."""

import numpy as np
import pytest
from numpy.polynomial import chebyshev

from pymc_austerity.bounds.expressions.evaluate import evaluate
from pymc_austerity.bounds.jets import efforts
from pymc_austerity.bounds.jets.tape import tape_of
from tests.bounds.jets.likelihoods import LIKELIHOODS, rows
from tests.bounds.jets.test_derivative_norms import bounds_of

NAMES = [name for name, one in LIKELIHOODS.items() if len(one.level) == 1 and name != "normal"]
_DEGREE, _POINTS = 20, 64


def largest_fourth(likelihood, eta, reach, columns):
    """By a polynomial fit of each row over its interval; and what rounding may add to it."""
    nodes, grid = np.cos(np.pi * (np.arange(_POINTS) + 0.5) / _POINTS), np.linspace(-1.0, 1.0, 201)
    found, rounding = np.empty(len(eta)), np.empty(len(eta))
    for i, (center, half) in enumerate(zip(eta, reach, strict=True)):
        own = np.repeat(columns[:, i : i + 1], _POINTS, axis=1)
        values = np.broadcast_to(evaluate(likelihood.expression, [center + half * nodes], own), (_POINTS,))
        fit = chebyshev.chebfit(nodes, values, _DEGREE)
        found[i] = np.abs(chebyshev.chebval(grid, chebyshev.chebder(fit, 4))).max() / half**4
        rounding[i] = 1e-7 * (1.0 + np.abs(values).max()) / half**4
    return found, rounding


@pytest.mark.parametrize("many", [False, True], ids=["jets", "tables"])
@pytest.mark.parametrize("name", NAMES)
def test_bounds(name, many, monkeypatch):
    likelihood, rng = LIKELIHOODS[name], np.random.default_rng(9)
    eta, directions, columns = rows(likelihood, rng, 300, 3, 400.0)
    if many:
        monkeypatch.setattr(efforts, "_MANY_ROWS", 100)
    length = np.linalg.norm(directions[:, 0], axis=1)
    ours, _ = bounds_of(likelihood, eta, directions, columns, 4, (6.0,))
    data = np.asarray(columns, dtype=float)
    exact, rounding = (one * length**4 for one in largest_fourth(likelihood, eta[:, 0], 6.0 * length, data))
    assert (rounding < 1e-3 * exact.max()).all()
    assert (ours[0] >= exact * (1.0 - 1e-6) - rounding).all()
    assert ours[0].sum() <= 1.15 * exact.sum()


def test_no_program_goes_beyond_the_orders_that_are_known():
    with pytest.raises(ValueError, match="order 6"):
        tape_of(LIKELIHOODS["poisson"].expression, 1, 6)
