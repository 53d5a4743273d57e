"""Normal regressions with a free scale, two predictors: derivatives of rows are within c_i."""

import math

import numpy as np
import pytest

from pymc_austerity.bounds.expressions import forms
from pymc_austerity.bounds.expressions.node import constant, predictor
from pymc_austerity.bounds.row_constants import ExpansionCoordinates, bounded_term

from .row_functions import row_function, sampler_of

N = 500


class Rows:
    """Rows of f = c kappa zeta - (A / 2) (y - eta)^2 exp(-2 kappa zeta), with the scale first or second."""

    def __init__(self, rng, n_dim, *, unit=1.0, errors="normal", scale="free", kappa=1.0, location=0):
        x = rng.normal(size=(N, n_dim))
        x[:, 0] = 1.0
        n_scale = 1 if scale == "free" else 2
        z = rng.normal(size=(N, n_scale)) * 0.5
        z[:, 0] = 1.0
        noise = rng.normal(size=N) if errors == "normal" else rng.standard_t(4, size=N)
        self.y = unit * (x @ rng.normal(size=n_dim) + noise)
        self.a, self.kappa, self.location = rng.gamma(2.0, size=N), kappa, location
        zero, offset = np.zeros((N, n_scale)), 0.1 * rng.normal(size=N)
        design = np.c_[unit * x, zero, unit * offset], np.c_[0 * x, z / kappa, zero[:, 0]]
        self.design = np.stack(design[:: 1 - 2 * location], axis=1)
        # Near the least squares, in which the log of the unit is the mean of zeta.
        b = np.linalg.lstsq(unit * x, self.y, rcond=None)[0]
        self.center = np.r_[b, math.log(unit) / kappa + 0.1, np.zeros(n_scale - 1)]

    def term(self, **options):
        eta, zeta = predictor(self.location), predictor(1 - self.location)

        def f(y, a):
            precision = forms.exp(forms.multiply(constant(-2 * self.kappa), zeta))
            half = forms.multiply(constant(-0.5), a, forms.square(forms.subtract(y, eta)), precision)
            return forms.add(forms.multiply(constant(-self.kappa), zeta), half)

        return row_function(self.design, f, [self.y, self.a], **options)

    def fisher(self):
        """V and W of the normal law at the center."""
        eta, zeta = self.design[:, self.location], self.design[:, 1 - self.location]
        s2 = self.a * np.exp(-2 * self.kappa * (zeta @ np.append(self.center, 1.0)))
        x, z = eta[:, :-1], self.kappa * zeta[:, :-1]
        lower = np.linalg.cholesky((x.T * s2) @ x + 2 * z.T @ z)
        return np.linalg.inv(lower).T, lower.T


SETTINGS = {
    "one": {"n_dim": 1},
    "three": {"n_dim": 3, "errors": "t"},
    "ten": {"n_dim": 10, "location": 1},
    "units": {"n_dim": 3, "unit": 1000.0},
    "scale model": {"n_dim": 3, "scale": "model", "errors": "t"},
    "precision": {"n_dim": 3, "kappa": -0.5, "location": 1},
}


def brute_force(rows, V, i, order):
    """The size of the derivatives of row i at the center, along the worst of many unit vectors."""
    at, v = rows.design[i] @ np.append(rows.center, 1.0), rows.design[i][:, :-1] @ V
    j = rows.location
    plane = np.linalg.qr(v.T)[0]  # V_i w depends on nothing else
    angle = np.linspace(0, np.pi, 3_000)
    a, b = v[[j, 1 - j]] @ plane @ np.stack([np.cos(angle), np.sin(angle)])
    b, s = rows.kappa * b, math.sqrt(rows.a[i]) * math.exp(-rows.kappa * at[1 - j])
    r = abs(rows.y[i] - at[j]) * s
    a, b = np.abs(a), np.abs(b)
    if order == 1:
        return (s**2 * a**2 + 4 * r * s * a * b + 2 * r**2 * b**2).max()
    return (b * (6 * s**2 * a**2 + 12 * r * s * a * b + 4 * r**2 * b**2)).max()


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("name", SETTINGS)
def test_at_a_small_radius_the_bound_is_the_largest_form(name, order):
    rows = Rows(np.random.default_rng([2, *map(ord, name)]), **SETTINGS[name])
    V, W = rows.fisher()
    exact = np.array([brute_force(rows, V, i, order) for i in range(40)])
    bounds = constants(rows, V, W, 1e-9, order)[:40]
    assert np.all(bounds >= exact)
    np.testing.assert_allclose(bounds, exact, rtol=5e-3)  # of the covering of directions


def constants(rows, V, W, radius, order):
    """The c_i of all rows for one radius."""
    coordinates = ExpansionCoordinates(order, rows.center, V, W)
    parts = bounded_term(rows.term(), coordinates, np.array([radius])).constants()
    return np.concatenate([c[0] for _, c in parts])


def worst_share(rows, bounds, V, radius, order):
    """The largest part of its bound that the derivative of a row reaches within the radius."""
    rng, shares = np.random.default_rng(4), []
    for row in range(40):
        plane = np.linalg.qr((rows.design[row, :, :-1] @ V).T)[0]
        for angle in rng.uniform(0, 2 * np.pi, 12):
            moved = Rows.__new__(Rows)
            vars(moved).update(vars(rows))
            moved.center = rows.center + radius * V @ plane @ [np.cos(angle), np.sin(angle)]
            shares.append(brute_force(moved, V, row, order) / bounds[row])
    return max(shares)


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.covering(1)
def test_planted_faults_are_noticed(name, order):
    """Bounds of the center alone, and bounds without a third of what is needed."""
    rows = Rows(np.random.default_rng([4, *map(ord, name)]), **SETTINGS[name])
    V, W = rows.fisher()
    radius = 2.0 * (math.sqrt(V.shape[1]) + 3.0)
    bounds = constants(rows, V, W, radius, order)
    share = worst_share(rows, bounds, V, radius, order)
    assert 0.67 < share <= 1.0
    assert worst_share(rows, 0.67 * bounds, V, radius, order) > 1.0
    assert worst_share(rows, constants(rows, V, W, 1e-9, order), V, radius, order) > 1.0


def test_other_steps_and_a_users_curvature_are_refused():
    rows = Rows(np.random.default_rng(8), 3)
    V, W = rows.fisher()
    with pytest.raises(ValueError, match="term 'y' depends on variables of other steps .'u'"):
        sampler_of([rows.term(others=("u",))], rows.center, V, W)
    with pytest.raises(ValueError, match=r"curvature\['y'\] .* one linear predictor, but the term 'y' has 2"):
        sampler_of([rows.term()], rows.center, V, W, curvature={"y": lambda *_: 1.0})


def test_rows_without_weight_have_no_remainder():
    rows = Rows(np.random.default_rng(9), 3)
    rows.a[:10] = 0.0
    V, W = rows.fisher()
    sampler = sampler_of([rows.term()], rows.center, V, W)
    np.testing.assert_array_equal(sampler.constants[:2, :10], 0.0)


def test_terms_of_one_and_of_two_predictors_together():
    rng = np.random.default_rng(11)
    rows = Rows(rng, 3)
    V, W = rows.fisher()
    design = np.c_[rows.design[:, 0, :-1], np.zeros(N)]
    counts = row_function(
        design, lambda: forms.subtract(forms.multiply(constant(2.0), predictor(0)), forms.exp(predictor(0)))
    )
    both, one, two = (
        sampler_of(terms, rows.center, V, W) for terms in ([rows.term(), counts], [counts], [rows.term()])
    )
    of_each = np.concatenate([two.constants, one.constants], axis=1)
    np.testing.assert_allclose(both.constants, of_each, rtol=1e-6)
