"""The density in the coordinates of a chain on a field, against the model's own."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import stats

from pymc_austerity import factorise
from pymc_austerity.mode.fields.draws import height_of
from pymc_austerity.mode.fields.field_model import field_model
from pymc_austerity.mode.fields.maps import Entries, matrix_of, value_of
from pymc_austerity.model.factorisation import point_of
from pymc_austerity.model.field.priors import NoField
from tests.mode.fields.fields import TURNS, arrays_of, fitted, grid

_STATES = 4
# Far out PyMC's Cholesky factor of L L' loses digits.
_NEAR = ("several_answers",)


def log_volume(one, arrays, features):
    """Log of the determinant of the derivatives of the model's values by eps."""
    total = 0.0
    for own in one.field.layouts[0].maps.coordinates:
        if own.has_mean:  # of what the model has, and the mean of z
            total += (own.size - 1) * np.log(np.abs(value_of(own.own, features)[0]))
            continue
        matrix = matrix_of(own.own, features, (own.size, own.size)).toarray()
        if own.shift is not None:
            matrix[:, own.shift.columns] += value_of(own.shift, features)
        total += np.linalg.slogdet(matrix)[1]
    held = arrays.held
    if held.is_bound:  # they stay as they are, and their coordinates do not
        n = len(held.coordinates)
        total -= np.linalg.slogdet(matrix_of(Entries(*held.map), features, (n, n)).toarray())[1]
    tree, front = arrays.tree, arrays.room.fronts[0]
    places = [
        tree.fronts[v] + j * (tree.size[v] + 1) for v in range(len(tree.size)) for j in range(tree.size[v])
    ]
    return total - np.log(front[places]).sum()


def means_of(one, z):
    """Standard normal numbers that are in no value of the model: means of effects whose sum is zero."""
    every = [c for c in one.field.layouts[0].maps.coordinates if c.has_mean]
    return np.array([z[c.first : c.first + c.size].mean() * np.sqrt(c.size) for c in every])


def of_tails(arrays, features):
    """Log density of heavy-tailed effects less that given their precisions, which the chain has."""
    tails, own = arrays.prior.tails, arrays.room.precisions
    total, at = 0.0, tails.coordinates
    for t, precision, degrees, number in zip(arrays.room.z[0, at], own[at], *tails[1:], strict=True):
        law = stats.t(degrees * features[number]) if degrees else stats.laplace()
        total += law.logpdf(t) + 0.5 * precision * t * t
    return total


def differences(name, *, turn=0, planted=lambda arrays: arrays):
    """The density of the chain less the model's at some states, and how much may be rounding; and errors.

    These are the largest ones of the inverse.
    """
    one = fitted(name)
    arrays, values = arrays_of(one, turn=turn, planted=planted), one.field.values
    log_density = one.model.compile_logp()
    rng, found, errors, size = np.random.default_rng(3), [], [], 0.0
    for _ in range(_STATES):
        theta, which = one.fit.theta.copy(), arrays.law.which
        far = 0.5 if name in _NEAR else 3.0
        theta[which] += rng.choice([0.5, far]) * rng.standard_normal(len(which))
        eps, features = rng.standard_normal(len(arrays.tree.node_of)), values.features(theta)
        ours = values.log_prior(theta) + height_of(arrays, features, eps) - 0.5 * eps @ eps
        z = np.empty(values.maps.n_coordinates)
        z[arrays.coordinates] = arrays.room.z[0]
        z[arrays.held.coordinates] = arrays.held.z[int(arrays.held.is_bound)]
        q = values(theta, z)
        point = point_of(one.field.factorisation, q, one.model.initial_point())
        means = means_of(one, z)
        theirs = float(log_density(point)) - 0.5 * means @ means
        if not np.isfinite(theirs):  # probabilities of ordered answers have underflowed
            continue
        found.append(ours - theirs - log_volume(one, arrays, features) + of_tails(arrays, features))
        size = max(size, abs(ours))
        back = values.coordinates(q)
        error = values(*back) - q if means.any() else back[1] - z
        errors.append(max(np.abs(back[0] - theta).max(initial=0.0), np.abs(error).max()))
    assert len(found) > _STATES // 2
    return np.array(found), 1e-8 + 1e-14 * size, max(errors)


@pytest.mark.parametrize(("name", "turn"), TURNS)
def test_the_density_is_the_models(name, turn):
    """Up to a constant, at states that the rest of the chain never sees together."""
    found, rounding, error = differences(name, turn=turn)
    assert np.ptp(found) < rounding
    assert error < 1e-8


def _without(name):
    return lambda arrays: arrays._replace(
        sums=arrays.sums._replace(**{name: np.zeros_like(getattr(arrays.sums, name))})
    )


def _half_of_the_prior(arrays):
    own = arrays.prior.precision
    halved = own._replace(coefficients=0.5 * own.coefficients)
    return arrays._replace(prior=arrays.prior._replace(precision=halved))


def _sums_that_do_not_pull(arrays):
    return arrays._replace(prior=arrays.prior._replace(intercept=-1))


def _held_that_do_not_meet(arrays):
    return arrays._replace(held=arrays.held._replace(hessian=np.zeros_like(arrays.held.hessian)))


def _held_without_a_prior(arrays):
    return arrays._replace(held=arrays.held._replace(is_bound=False))


def _other_rates(arrays):
    matched = arrays.prior.matched
    constants = matched.constants * np.array([1.0, 1.01, 1.0, 1.0])[:, None]
    return arrays._replace(prior=arrays.prior._replace(matched=matched._replace(constants=constants)))


@pytest.mark.parametrize(
    ("name", "planted"),
    [
        ("nested_slopes", _without("hessian_change")),
        ("nested_slopes", _without("gradient_change")),
        ("nested_slopes", _half_of_the_prior),
        ("bym2", _sums_that_do_not_pull),
        ("zero_sum", _sums_that_do_not_pull),
        ("crossed_slopes", _without("hessian_change")),
        ("crossed_slopes", _without("gradient_change")),
        ("crossed_slopes", _half_of_the_prior),
        ("crossed_slopes", _held_that_do_not_meet),
        ("bradley_terry", _held_that_do_not_meet),
        ("bradley_terry", _without("hessian_change")),
        ("bradley_terry", _half_of_the_prior),
        ("crossed_normal", _half_of_the_prior),
        ("crossed_normal", _held_that_do_not_meet),
        ("bradley_terry", _held_without_a_prior),
        ("gamma_rates", _other_rates),
        ("beta_rates", _other_rates),
        ("logistic_effects", _other_rates),
        ("one_factor", _half_of_the_prior),
        ("three_levels", _half_of_the_prior),
        ("walk", _half_of_the_prior),
        ("vector_walk", _half_of_the_prior),
        ("autoregression", _half_of_the_prior),
        ("areas", _half_of_the_prior),
        ("bym2", _half_of_the_prior),
        ("smooth", _half_of_the_prior),
        ("rasch", _half_of_the_prior),
        ("normal_rows", _half_of_the_prior),
        ("survey", _half_of_the_prior),
        ("dispersions", _half_of_the_prior),
        ("own_scales", _half_of_the_prior),
        ("ordered", _half_of_the_prior),
        ("zero_inflated", _half_of_the_prior),
        ("choices", _half_of_the_prior),
        ("football", _half_of_the_prior),
        ("heavy_tails", _half_of_the_prior),
        ("cauchy_effects", _half_of_the_prior),
        ("gamma_rates", _half_of_the_prior),
        ("beta_rates", _half_of_the_prior),
        ("own_variances", _half_of_the_prior),
        ("zero_sum", _half_of_the_prior),
        ("mixture", _half_of_the_prior),
        ("several_answers", _half_of_the_prior),
    ],
)
def test_planted_faults_of_the_density_are_found(name, planted):
    turn = 2 if name == "bradley_terry" else 0  # that which moves the scale
    found, _, _ = differences(name, turn=turn, planted=planted)
    assert np.ptp(found) > 1e-3


def test_scales_of_zero_are_ordinary():
    """Nothing is divided by a scale: at tau = 1e-12 the density is what it is without the effects."""
    one = fitted("one_factor")
    arrays, values = arrays_of(one), one.field.values
    place = list(values.shared.var_names).index("tau_log__")
    heights = []
    for log_tau in (np.log(1e-12), np.log(1e-100)):
        theta = one.fit.theta.copy()
        theta[place] = log_tau
        eps = np.random.default_rng(1).standard_normal(len(arrays.tree.node_of))
        heights.append(height_of(arrays, values.features(theta), eps))
        assert np.isfinite(values(theta, arrays.room.z[0])).all()
    np.testing.assert_allclose(heights[0], heights[1], rtol=1e-9)


def _areas_in_some_rows(scale, level, phi, areas):
    return level + (pt.stack([0.0, scale])[np.arange(25) % 2] * phi)[areas]


def _all_rows_have_one_area(scale, level, phi, areas):
    return scale * (phi[0] + phi[areas])


def _an_area_is_the_intercept(scale, level, phi, areas):
    """It is independent of the others, but the precision of its coordinate is not one."""
    neighbours = np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, 1.0, 0.0]])
    u = pm.CAR("u", mu=np.zeros(3), W=neighbours, alpha=pm.Uniform("alpha", 0.1, 0.9), tau=2.0)
    return u[0] + scale * phi[areas]


def _an_island_without_rows(scale, level, phi, areas):
    return level + scale * phi[np.where(areas == 7, 8, areas)]


@pytest.mark.parametrize(
    ("predictor", "said"),
    [
        (_areas_in_some_rows, "rows have its elements times numbers that differ"),
        (_all_rows_have_one_area, "the rows have no intercept"),
        (_an_area_is_the_intercept, "the rows have no intercept"),
        (_an_island_without_rows, "1 elements of 'phi' are in no row"),
    ],
)
def test_sums_that_no_intercept_takes_up(predictor, said):
    rng, neighbours = np.random.default_rng(1), grid(5)
    neighbours[7] = neighbours[:, 7] = 0.0
    areas, y = rng.integers(25, size=1200), rng.normal(size=1200)
    with pm.Model() as model:
        scale, level, phi = pm.HalfNormal("scale"), pm.Normal("level"), pm.ICAR("phi", neighbours)
        pm.Normal("y", predictor(scale, level, phi, areas), 1.0, observed=y)
    with pytest.raises(NoField, match=said):
        field_model(model, factorise(model))
