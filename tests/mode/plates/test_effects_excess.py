"""What a prior of effects adds to the marginal of theta: by the kernels, and by differences."""

import numpy as np
import pytest

from pymc_austerity.kernels.plates.cells import Cells
from pymc_austerity.kernels.plates.effects_density import LAPLACE, LOGISTIC, NORMAL, STUDENT_T, log_excess
from pymc_austerity.kernels.plates.records import EffectsDensity, GroupSums
from pymc_austerity.mode.plates.effects_excess import EffectsExcess
from pymc_austerity.mode.plates.group_means import locations

G, P = 6, 2
RNG = np.random.default_rng(5)
EPS = RNG.standard_normal((3, G))
AT = np.array([0.2, -0.1, -0.7, 0.3, 4.5])  # d, log tau^2, log lambda, shape


def sums():
    return GroupSums(
        linear=np.arange(P),
        center=np.zeros(P),
        dense=np.arange(P),
        varying=np.arange(P),
        gradient=np.zeros(P),
        information=np.eye(P),
        slopes=RNG.normal(size=G),
        curvatures=np.array([0.0, 0.5, 2.0, 8.0, 30.0, 100.0]),
        means=RNG.normal(size=(G, P)),
        cells=Cells(0, np.zeros(1, np.int64), np.zeros(0, np.int32)),
        shares=np.zeros(0),
        moved=np.arange(1),
        located=RNG.normal(size=(G, 1)),
        parents=np.zeros(0, np.int64),
        offsets=RNG.normal(size=G),
        effects=np.zeros(G),
        phi=np.zeros(0),
        phi_slopes=np.zeros((0, P)),
        n_normal=0.0,
        squares=0.0,
    )


SUMS = sums()


def at(excess, x):
    return excess(SUMS, x[:P], *x[P:])


@pytest.mark.parametrize("kind", [STUDENT_T, LOGISTIC, LAPLACE])
def test_derivatives(kind):
    excess, h = EffectsExcess(EffectsDensity(kind, 1.2), EPS), 1e-5
    found = at(excess, AT)
    steps = h * np.eye(len(AT))
    values = np.array([at(excess, AT + s).value - at(excess, AT - s).value for s in steps]) / (2 * h)
    slopes = np.array([at(excess, AT + s).gradient - at(excess, AT - s).gradient for s in steps]) / (2 * h)
    np.testing.assert_allclose(found.gradient, values, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(found.hessian, slopes, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("kind", [STUDENT_T, LOGISTIC, LAPLACE])
def test_differences_are_those_of_the_kernel(kind):
    """Constants are left out; the kink of Laplace's density is rounded off."""
    density = EffectsDensity(kind, 1.2)
    excess = EffectsExcess(density, EPS)

    def by_kernel(x):
        nu, b = locations(SUMS, x[:P]), np.exp(x[3]) * SUMS.curvatures
        tau = np.exp(0.5 * x[2])
        r = 1.0 / (1.0 + b * tau**2)
        y = tau * r * (np.exp(x[3]) * SUMS.slopes - b * nu) + np.sqrt(r) * EPS
        return np.mean([sum(log_excess(density, x[4], one) for one in row) for row in y])

    other = AT + np.array([0.3, 0.2, 0.4, -0.3, 1.0 if kind == STUDENT_T else 0.0])
    expected = by_kernel(other) - by_kernel(AT)
    found = at(excess, other).value - at(excess, AT).value
    assert found == pytest.approx(expected, abs=0.15 if kind == LAPLACE else 1e-9)


def test_a_normal_prior_adds_nothing():
    found = at(EffectsExcess(EffectsDensity(NORMAL, 1.0), EPS), AT)
    assert found.value == 0.0
    assert not found.gradient.any()
    assert not found.hessian.any()
