"""Slabs, and what the coordinates of a sub-model are drawn from, against SciPy."""

import numpy as np
import pytest
from scipy import stats

from pymc_austerity.proposals.jumps import (
    DEGREES,
    INFLATION,
    LAPLACE,
    NORMAL,
    STUDENT_T,
    SubmodelExpansion,
    coordinates_of,
    drawn,
    drawn_from_slab,
    given_the_others,
    log_density,
    log_slab,
    slab_precision,
    submodel,
)

# Locations, scales and degrees of freedom of two coefficients.
SLAB = np.array([0.5, -1.0, 2.0, 0.3, 3.0, 7.0])
FAMILIES = {
    NORMAL: lambda j: stats.norm(SLAB[j], SLAB[2 + j]),
    LAPLACE: lambda j: stats.laplace(SLAB[j], SLAB[2 + j]),
    STUDENT_T: lambda j: stats.t(SLAB[4 + j], SLAB[j], SLAB[2 + j]),
}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("j", [0, 1])
def test_slab(family, j):
    expected, rng = FAMILIES[family](j), np.random.default_rng(1)
    for x in (-3.0, 0.0, 0.7, 10.0):
        assert log_slab(family, SLAB, j, x) == pytest.approx(expected.logpdf(x), abs=1e-12)
    draws = [drawn_from_slab(family, SLAB, j, rng) for _ in range(2000)]
    assert stats.kstest(draws, expected.cdf).pvalue > 1e-3


def test_the_normal_distribution_in_place_of_a_slab():
    assert slab_precision(NORMAL, SLAB, 1) == pytest.approx(1 / 0.3**2)
    assert slab_precision(LAPLACE, SLAB, 1) == pytest.approx(1 / FAMILIES[LAPLACE](1).var())
    # Fisher's information of the location.
    t = FAMILIES[STUDENT_T](1)
    h = 1e-4
    curvature = t.expect(lambda x: -(t.logpdf(x + h) - 2 * t.logpdf(x) + t.logpdf(x - h)) / h**2)
    assert slab_precision(STUDENT_T, SLAB, 1) == pytest.approx(curvature, rel=1e-3)


@pytest.fixture(scope="module")
def expansion():
    rng = np.random.default_rng(2)
    root = rng.normal(size=(4, 6))
    return SubmodelExpansion(NORMAL, np.ones(6), rng.normal(size=4), root @ root.T)


def test_coordinates():
    assert coordinates_of(np.array([1.0, 0.0, 1.0]), 5).tolist() == [0, 2, 3, 4]
    assert coordinates_of(np.zeros(2), 2).tolist() == []


@pytest.mark.parametrize("gamma", [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [0.0, 0.0]])
def test_submodel(expansion, gamma):
    """The polynomial at coefficients that are zero where they are not in the model, plus the slab."""
    own = submodel(expansion, SLAB, coordinates_of(np.array(gamma), 4))
    some = own.coordinates
    active = np.array([j for j in some if j < 2], dtype=int)
    total = expansion.precision.copy()
    right = expansion.linear.copy()
    for j in active:
        total[j, j] += 1 / SLAB[2 + j] ** 2
        right[j] += SLAB[j] / SLAB[2 + j] ** 2
    total = total[np.ix_(some, some)]
    np.testing.assert_allclose(own.lower @ own.lower.T, total, rtol=1e-12)
    np.testing.assert_allclose(own.mean, np.linalg.solve(total, right[some]), rtol=1e-10)
    expected = stats.multivariate_t(own.mean, INFLATION**2 * np.linalg.inv(total), df=DEGREES)
    rng = np.random.default_rng(3)
    for _ in range(3):
        x = own.mean + rng.normal(size=len(some))
        assert log_density(own, x) == pytest.approx(expected.logpdf(x), abs=1e-10)
    draws = np.array([drawn(own, rng) for _ in range(4000)])
    np.testing.assert_allclose(draws.mean(axis=0), own.mean, atol=5 * draws.std(axis=0).max() / 4000**0.5)
    square = np.einsum("ni,ij,nj->n", draws - own.mean, total, draws - own.mean) / INFLATION**2
    # Squared distances have an F distribution.
    k = len(some)
    assert stats.kstest(square / k, stats.f(k, DEGREES).cdf).pvalue > 1e-3


def test_one_coordinate_given_the_others(expansion):
    some, x = coordinates_of(np.array([1.0, 1.0]), 4), np.array([0.3, -0.2, 1.0, 0.5])
    whole = submodel(expansion, SLAB, some)
    total = whole.lower @ whole.lower.T
    for i in range(4):
        own = given_the_others(expansion, SLAB, some, i, x)
        others = [k for k in range(4) if k != i]
        mean = whole.mean[i] - total[i, others] @ (x - whole.mean)[others] / total[i, i]
        assert own.coordinates.tolist() == [i]
        assert own.mean[0] == pytest.approx(mean)
        assert own.lower[0, 0] ** 2 == pytest.approx(total[i, i])
    nothing = given_the_others(expansion, SLAB, some, -1, x)
    assert log_density(nothing, np.empty(0)) == 0.0
