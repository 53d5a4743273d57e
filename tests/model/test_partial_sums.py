"""Differences of cumulative sums, as `pm.LKJCholeskyCov` has them, lose nothing where PyMC loses all."""

import mpmath
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

from pymc_austerity import factorise

VALUE = "chol_cholesky-cov-packed__"


def lkj_model(n, eta=2.0):
    with pm.Model() as model:
        scales = pm.HalfNormal.dist(1.0, shape=n)
        pm.LKJCholeskyCov("chol", n=n, eta=eta, sd_dist=scales, compute_corr=False)
    return model


def lkj_density(n, eta, packed):
    """Log density of the packed factor with logarithms of its diagonal, to 50 digits."""
    with mpmath.workdps(50):
        rows = np.split(np.array([mpmath.mpf(float(x)) for x in packed]), np.cumsum(np.arange(1, n)))
        total = mpmath.mpf(0)
        for k, row in enumerate(rows):
            logarithm = row[-1]
            diagonal = mpmath.e**logarithm
            scale = mpmath.sqrt(sum(x**2 for x in row[:-1]) + diagonal**2)
            corr = diagonal / scale
            total += (2 * eta - 3 + n - k) * mpmath.log(corr) + mpmath.log(corr) - k * mpmath.log(scale)
            total += mpmath.log(2) / 2 - mpmath.log(mpmath.pi) / 2 - scale**2 / 2 + logarithm
        return float(total)


@pytest.mark.parametrize("n", [2, 3])
@pytest.mark.parametrize("size", [1.0, 3e-8, 5e-9, 1e-30])
def test_scales_far_below_those_before(n, size):
    model, eta = lkj_model(n), 2.0
    fact = factorise(model)
    packed = np.array([0.8776, -0.3, np.log(0.5), 0.2, -0.4, 0.1][: n * (n + 1) // 2])
    small = packed.copy()
    small[1], small[2] = size * packed[1], packed[2] + np.log(size)
    # The normaliser is left out of the reference.
    found = fact.global_log_density({VALUE: small}) - fact.global_log_density({VALUE: packed})
    expected = lkj_density(n, eta, small) - lkj_density(n, eta, packed)
    assert found == pytest.approx(expected, abs=1e-8)
    with np.errstate(all="ignore"):
        theirs = float(model.compile_logp()({VALUE: small}) - model.compile_logp()({VALUE: packed}))
    # PyMC's own is the planted fault.
    assert (abs(theirs - expected) < 1e-8) == (size == 1.0)


@pytest.mark.parametrize(
    ("last", "first", "kind"),
    [
        ([1, 4], [0, 2], "int64"),
        ([1, 4], [0, 2], "uint8"),  # of 300 elements
        ([5, 3], [5, 0], "int64"),
        ([-1], [0], "int8"),
        ([0], [4], "int64"),
    ],
    ids=str,
)
def test_any_such_differences(last, first, kind):
    with pm.Model() as model:
        sums = pt.cumsum(pm.Normal("x", shape=300) ** 2)
        pm.Potential("p", (sums[np.array(last, dtype=kind)] - sums[np.array(first, dtype=kind)]).sum())
    point = {"x": np.arange(300) % 7 - 2.2}
    found = factorise(model).global_log_density(point)
    assert found == pytest.approx(float(model.compile_logp()(point)), rel=1e-12)


def test_only_elements_between_them_are_added():
    with pm.Model() as model:
        x = pm.Normal("x", shape=4)
        sums = pt.cumsum(x**2)
        pm.Potential("p", (sums[np.array([1])] - sums[np.array([0])]).sum())
    point = {"x": np.array([0.5, 2.0, 1e200, 1.0])}  # of which the square is infinite
    with np.errstate(over="ignore"):
        fact = factorise(model)
        value = fact.compile(dict(fact.globals)["p"], [])(*fact.point_values(point), *fact.leaf_values)
    assert float(value) == pytest.approx(4.0)
