"""Normal regressions with a free scale: remainders are within c_i M, and the form is found in models."""

import math

import numpy as np
import pytest
from pymc_austerity.bounds.families.normal_location_scale import FAMILY

from pymc_austerity.bounds.families import normal_location_scale
from pymc_austerity.bounds.remainder import certify_remainders, remainder_range
from pymc_austerity.bounds.row_constants import ExpansionCoordinates
from pymc_austerity.bounds.row_sampler import row_sampler_of, tier_and_expected
from pymc_austerity.target import PredictorPair

from .families import predictor

LONG = np.longdouble
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

    def pair(self, name="y"):
        return PredictorPair(name, N, len(self.center), self.design.__getitem__, self.slopes, True, ())

    def slopes(self, values, positions, point):
        eta, zeta = values[[self.location, 1 - self.location]][:, :, None]
        a, r = self.a[positions] * np.exp(-2 * self.kappa * zeta), self.y[positions] - eta
        both = np.stack([a * r, self.kappa * (a * r**2 - 1)])
        return both[[self.location, 1 - self.location]]

    def fisher(self):
        """V and W of the normal law at the center."""
        eta, zeta = self.design[:, self.location], self.design[:, 1 - self.location]
        s2 = self.a * np.exp(-2 * self.kappa * (zeta @ np.append(self.center, 1.0)))
        x, z = eta[:, :-1], self.kappa * zeta[:, :-1]
        lower = np.linalg.cholesky((x.T * s2) @ x + 2 * z.T @ z)
        return np.linalg.inv(lower).T, lower.T

    def remainders(self, q, order=2):
        """In extended precision, with derivatives written by hand."""
        at, t = self.design.astype(LONG) @ np.append(self.center, 1.0).astype(LONG), q - self.center
        change = self.design[..., :-1].astype(LONG) @ t.astype(LONG)
        i, k = self.location, LONG(self.kappa)
        eta, zeta, u, v = at[:, i], k * at[:, 1 - i], change[:, i], k * change[:, 1 - i]
        s2, r = self.a * np.exp(-2 * zeta), self.y - eta
        now = -self.a / 2 * (r - u) ** 2 * np.exp(-2 * (zeta + v))
        result = now + s2 * r**2 / 2 - s2 * r * u - s2 * r**2 * v
        return result + (s2 * u**2 + 4 * s2 * r * u * v + 2 * s2 * r**2 * v**2) / 2 if order == 2 else result


SETTINGS = {
    "one": {"n_dim": 1},
    "three": {"n_dim": 3, "errors": "t"},
    "ten": {"n_dim": 10, "location": 1},
    "units": {"n_dim": 3, "unit": 1000.0},
    "scale model": {"n_dim": 3, "scale": "model", "errors": "t"},
    "precision": {"n_dim": 3, "kappa": -0.5, "location": 1},
}


def made_of(rows, order=2):
    V, W = rows.fisher()
    return V, row_sampler_of(
        [rows.pair()], {}, ExpansionCoordinates(order, rows.center, V, W), 1e-12, np.inf, {}
    )


def pairs(rng, center, V):
    d = V.shape[1]
    for away in (0.1, 1.0, 3.0, 8.0):
        for step in (1e-3, 0.3, 2.0, 8.0):
            w = away * rng.normal(size=d) / math.sqrt(d)
            yield center + V @ (w + step * rng.normal(size=d) / math.sqrt(d)), center + V @ w
        yield center - V @ w, center + V @ w
        yield center + 0.0, center + V @ w


def largest_shares(rows, sampler, V, rng, order=2):
    """The largest |R_i(q') - R_i(q)| / (c_i M) over all rows, for each pair of states."""
    for q_new, q in pairs(rng, rows.center, V):
        tier, expected = tier_and_expected(sampler, q_new, q)
        assert tier_and_expected(sampler, q, q_new) == (tier, expected)
        if expected < math.inf:
            change = rows.remainders(q_new, order) - rows.remainders(q, order)
            bound = sampler.constants[tier] / sampler.totals[tier] * expected
            yield float(((np.abs(change) - 1e-15) / bound).max())


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("name", SETTINGS)
def test_changes_of_remainders_are_within(name, order):
    rng = np.random.default_rng([order, *map(ord, name)])
    rows = Rows(rng, **SETTINGS[name])
    V, sampler = made_of(rows, order)
    assert np.all(np.isfinite(sampler.totals))
    assert np.all(sampler.totals > 0.0)
    assert sampler.radii[2] == 8.0 * sampler.radii[0]  # nothing is known beyond
    shares = list(largest_shares(rows, sampler, V, rng, order))
    assert len(shares) > 15
    # Some row comes near its bound, where moves are long.
    assert 0.1 < max(shares) <= 1.0


def brute_force(rows, V, i, order):
    """The size of the derivatives of row i at the center, along the worst of many unit vectors."""
    at, v = rows.design[i] @ np.append(rows.center, 1.0), rows.design[i][:, :-1] @ V
    j = rows.location
    plane = np.linalg.qr(v.T)[0]  # V_i w depends on nothing else
    angle = np.linspace(0, np.pi, 20_000)
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
    V, _ = rows.fisher()
    some = np.arange(40)
    constants = FAMILY.identify(lambda values: rows.slopes(values, some, {}))
    np.testing.assert_array_equal(constants[:, 0], rows.location)
    np.testing.assert_allclose(constants[:, 1], rows.a[some], rtol=1e-9)
    np.testing.assert_allclose(constants[:, 2], rows.y[some], rtol=1e-9)
    np.testing.assert_allclose(constants[:, 3], rows.kappa, rtol=1e-9)
    design = rows.design[some]
    values = design @ np.append(rows.center, 1.0)
    bounds = FAMILY.norms(constants, values, design[..., :-1] @ V, 0.0, order)
    exact = [brute_force(rows, V, i, order) for i in some]
    assert np.all(bounds >= exact)
    np.testing.assert_allclose(bounds, exact, rtol=1e-5)


def test_largest_form_at_the_edges():
    """By hand: parallel and perpendicular predictors, a residual or a reach of zero."""
    one, zero = np.ones(1), np.zeros(1)

    def largest(p, q, cosine, order=2):
        return normal_location_scale.largest_form(p, q, cosine, order)[0]

    assert largest(one, one, one) == pytest.approx(1 + 2 + 2 / 3, rel=1e-7)
    assert largest(zero, one, zero) == pytest.approx(2 / 3, rel=1e-7)
    # sin t cos^2 t
    assert largest(one, zero, zero) == pytest.approx(2 / math.sqrt(27), rel=1e-7)
    assert largest(one, one, one, 1) == pytest.approx(7.0, rel=1e-7)
    assert largest(one, zero, zero, 1) == pytest.approx(1.0, rel=1e-7)
    assert largest(zero, zero, one) == 0.0


def test_largest_form_of_many():
    rng = np.random.default_rng(3)
    p, q = 10 ** rng.uniform(-8, 8, size=(2, 2000))
    cosine = np.where(rng.random(2000) < 0.5, rng.random(2000), 1 - 10 ** rng.uniform(-15, 0, 2000))
    t = np.linspace(0, np.pi, 3000)[:, None]
    a, b = np.abs(np.cos(t)), np.abs(np.cos(t - np.arccos(cosine)))
    p, q = p / np.maximum(p, q), q / np.maximum(p, q)
    for order, form in ((1, p**2 * a**2 + 4 * p * q * a * b + 2 * q**2 * b**2),
                        (2, b * (p**2 * a**2 + 2 * p * q * a * b + 2 / 3 * q**2 * b**2))):  # fmt: skip
        exact, bound = form.max(axis=0), normal_location_scale.largest_form(p, q, cosine, order)
        assert np.all(bound >= exact * (1 - 1e-12))
        np.testing.assert_allclose(bound, exact, rtol=1e-5)


def without_cross_term(p, q, cosine, order):
    """The largest form, by brute force, without the term of a b."""
    t = np.linspace(0, np.pi, 500)[:, None]
    a, b = np.abs(np.cos(t)), np.abs(np.cos(t - np.arccos(cosine)))
    return (b * (p**2 * a**2 + 2 / 3 * q**2 * b**2)).max(axis=0)


def planted(bug):
    def norms(constants, values, v, radius, order):
        """For kappa = 1, and the location first."""
        reach = radius * np.linalg.norm(v[:, 1], axis=1)
        moved = values.copy()
        if bug == "residual of the center":
            moved[:, 1] -= reach
            return FAMILY.norms(constants, moved, v, 0.0, order)
        if bug == "scale of the center":
            moved[:, 1] += reach
        size = FAMILY.norms(constants, moved, v, radius, order)
        return size / np.linalg.norm(v[:, 1], axis=1) if bug == "no factor b" else size

    return norms


def worst_share(norms, units, radius):
    """The largest part of its bound that the third derivative reaches within the radius."""
    y = np.array([-1.0, 0.0, 0.01, 1.0, 2.0])
    constants = np.column_stack([np.zeros(5), np.ones(5), y, np.ones(5)])
    bounds = norms(constants, np.zeros((5, 2)), np.tile(np.diag(units), (5, 1, 1)), radius, 2)
    angles = np.linspace(0, 2 * np.pi, 60)
    circle = np.stack([np.cos(angles), np.sin(angles)])
    eta, zeta = radius * np.outer(units, np.ones(60)) * circle
    a, b = circle * np.array(units)[:, None]
    s, r = np.exp(-zeta)[:, None], ((y[:, None] - eta) * np.exp(-zeta))[..., None]
    third = np.abs(b * (6 * s**2 * a**2 + 12 * r * s * a * b + 4 * r**2 * b**2))
    return (third.max(axis=(1, 2)) / bounds).max()


@pytest.mark.parametrize(
    ("bug", "units", "radius"),
    [
        ("no cross term", (1.0, 1.0), 1e-3),
        ("residual of the center", (5.0, 0.1), 4.0),
        ("scale of the center", (0.1, 0.3), 4.0),
        ("no factor b", (0.1, 5.0), 0.1),
        ("no factor b", (0.1, 0.1), 0.1),
    ],
)
def test_planted_bugs_are_noticed(monkeypatch, bug, units, radius):
    assert 0.3 < worst_share(FAMILY.norms, units, radius) <= 1.0
    if bug == "no cross term":
        monkeypatch.setattr(normal_location_scale, "largest_form", without_cross_term)
    share = worst_share(planted(bug), units, radius)
    # Where |b| < 1, rows without the factor have bounds far too large.
    assert share > 1.0 or (bug == "no factor b" and share < 0.15)


def test_certificate_of_all_rows_together():
    rng = np.random.default_rng(5)
    rows = Rows(rng, 3, errors="t")
    V, W = rows.fisher()
    certificate, exact = certify_remainders([rows.pair()], {}, ExpansionCoordinates(2, rows.center, V, W), 20)
    others = np.delete(np.arange(N), exact)
    for q_new, q in pairs(rng, rows.center, V):
        change = (rows.remainders(q_new) - rows.remainders(q))[others]
        assert np.ptp(change) <= remainder_range(certificate, q_new, q) + 1e-15


def test_other_steps_and_a_users_curvature_are_refused():
    rows = Rows(np.random.default_rng(8), 3)
    V, W = rows.fisher()
    moved = rows.pair()._replace(others=("u",))
    with pytest.raises(ValueError, match="term 'y' depends on variables of other steps .'u'"):
        row_sampler_of([moved], {}, ExpansionCoordinates(2, rows.center, V, W), 0.0, np.inf, {})
    with pytest.raises(ValueError, match="term 'y' has two"):
        row_sampler_of(
            [rows.pair()], {}, ExpansionCoordinates(2, rows.center, V, W), 0.0, np.inf, {"y": lambda *_: 1.0}
        )


def test_rows_without_weight_have_no_remainder():
    rows = Rows(np.random.default_rng(9), 3)
    rows.a[:10] = 0.0
    _, sampler = made_of(rows)
    np.testing.assert_array_equal(sampler.constants[:2, :10], 0.0)


def test_a_row_of_another_form_is_noticed(monkeypatch):
    monkeypatch.setattr("pymc_austerity.bounds.families.recognise._SAMPLE_OF_PAIRS", 20)
    rows = Rows(np.random.default_rng(10), 3)

    def slopes(values, positions, point):
        """One row is cut off, as the slope of a Huber loss."""
        both = rows.slopes(values, positions, point)
        both[0] = np.where(positions == 1, np.clip(both[0], -100.0, 100.0), both[0])
        return both

    V, W = rows.fisher()
    pair = rows.pair()._replace(slopes=slopes)
    with pytest.raises(ValueError, match="Some rows of the term 'y' are not normal location and scale"):
        row_sampler_of([pair], {}, ExpansionCoordinates(2, rows.center, V, W), 0.0, np.inf, {})


def test_terms_of_one_and_of_two_predictors_together():
    rng = np.random.default_rng(11)
    rows = Rows(rng, 3)
    V, W = rows.fisher()
    design = np.c_[rows.design[:, 0, :-1], np.zeros(N)]
    counts = predictor(design, np.errstate(over="ignore")(lambda eta, i, point: 2.0 - np.exp(eta)))
    both, one, two = (
        row_sampler_of(terms, {}, ExpansionCoordinates(2, rows.center, V, W), 0.0, np.inf, {})
        for terms in ([rows.pair(), counts], [counts], [rows.pair()])
    )
    np.testing.assert_array_equal(both.constants, np.concatenate([two.constants, one.constants], axis=1))
