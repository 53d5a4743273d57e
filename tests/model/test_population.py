"""Rows of several terms at positions that fall into some of them only."""

from functools import cache

import numpy as np
import pymc as pm
import pytensor
import pytest

from pymc_austerity import factorise
from pymc_austerity.model.compile.target import CompiledTarget, Positions

N = 1200
POINT = {"slopes": np.array([0.1, 0.2])}
# In the first term only, in the second only, in both and not in order, in none.
INDICES = [[3, 5], [N + 3], [N + 300, 2, 2 * N - 1], []]


@cache
def factorised():
    """Pairs, whose rows cannot be evaluated if there are none of them, and single numbers."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=N)
    factor = np.array([[1.0, 0.0], [0.3, 0.8]])
    with pm.Model() as model:
        slopes = pm.Normal("slopes", shape=2)
        pairs = rng.normal(size=(N, 2))
        chol = pm.math.exp(slopes[0]) * factor
        pm.MvNormal("pairs", mu=x[:, None] * slopes, chol=chol, observed=pairs)
        pm.Normal("single", slopes[0] * x, 1, observed=rng.normal(size=N))
    return factorise(model)


WITH_NUMBA = pytest.mark.slow("numba compiles a Cholesky factor and a triangular solve")


@pytest.mark.parametrize("index", INDICES)
def test_log_density_terms(index):
    with pytensor.config.change_flags(mode="FAST_COMPILE"):
        fact = factorised()
        full = fact.log_density_terms(POINT)
        index = np.array(index, dtype=int)
        np.testing.assert_allclose(fact.log_density_terms(POINT, index), full[index], rtol=1e-12)


@pytest.mark.parametrize("linker", ["py", pytest.param("numba", marks=WITH_NUMBA)])
def test_compiled_terms(linker):
    """In Python with all rewrites, which move selections about, and by numba."""
    fact = factorised()
    mode = "NUMBA" if linker == "numba" else pytensor.compile.mode.Mode(linker=linker, optimizer="fast_run")
    target = CompiledTarget(fact)
    args = target.args(POINT)
    q, q_new = POINT["slopes"], POINT["slopes"] + 0.1
    full = fact.log_density_terms(POINT)
    change = fact.log_density_terms({"slopes": q_new}) - full

    def function(name):
        inputs, output = target._inputs[name], target._outputs[name]
        return pytensor.function(inputs, output, mode=mode, on_unused_input="ignore")

    terms, ratios = function("log_terms"), function("log_ratios")
    for index in INDICES:
        index = np.array(index, dtype=np.int64)
        np.testing.assert_allclose(terms(q, index, *args), full[index], rtol=1e-12)
        np.testing.assert_allclose(ratios(q_new, q, index, *args), change[index], rtol=1e-9)


def test_surplus_rows():
    """One row for a term that nothing falls into, and none for others."""
    index = pytensor.tensor.vector("index", dtype="int64")
    positions = Positions(index, [4, 3, 5])
    rows = pytensor.function([index], positions.rows, mode="FAST_COMPILE")
    for wanted, expected in [
        ([5, 4, 6, 11], [[0], [1, 0, 2], [4]]),
        ([], [[0], [0], [0]]),
        ([0, 3, 3], [[0, 3, 3], [0], [0]]),
    ]:
        found = rows(np.array(wanted, dtype=np.int64))
        for own, numbers in zip(found, expected, strict=True):
            np.testing.assert_array_equal(own, numbers)


def test_one_term_is_left_as_it_is():
    index = pytensor.tensor.vector("index", dtype="int64")
    positions = Positions(index, [4])
    assert positions.rows == [index]
    assert positions.in_order([index]) is index
