"""Plates of hierarchies in spellings that are read by their field: those of the spelling that plates know."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

from pymc_austerity import TunaMH
from pymc_austerity.exceptions import SelfCheckError
from pymc_austerity.model.plates import any_spelling
from pymc_austerity.model.plates.plate_model import PlateModel
from pymc_austerity.step_methods.metropolis import plate_search
from pymc_austerity.target import Index
from tests.model.plates.plates import GROUPS, G, N, X, bernoulli, beta, built, plates_of, reason, scale

DAYS, BLOCKS = np.arange(N) % 7, GROUPS % 8
ONES = (GROUPS[:, None] == np.arange(G)).astype(float)
# So many groups that a matrix of their effects is as long as data.
MANY = 500
OF_MANY = np.arange(N) % MANY
KEPT = np.arange(G + 8) % 5 < 4  # so many as there are groups
W = np.c_[np.ones(N), X[:, 0]]


def normal(**kwargs):
    return pm.Normal("u", 0.0, scale(), **kwargs)


def scaled(**kwargs):
    return scale() * pm.Normal("u", **kwargs)


def factor():
    return pm.LKJCholeskyCov("chol", n=2, eta=2, sd_dist=pm.Exponential.dist(2, shape=2))[0]


def correlated(n_groups=G):
    """An intercept and a slope, not centred."""
    return pt.dot(factor(), pm.Normal("z", shape=(2, n_groups))).T


def with_slopes(effects):
    """The spelling that plates know, beside means of both."""

    def define():
        u = effects()
        a, b = pm.Normal("a"), pm.Normal("b")
        bernoulli(a + b * X[:, 0] + u[GROUPS, 0] + u[GROUPS, 1] * X[:, 0])

    return define


def with_rows_of(effects):
    """All effects of a group at once."""

    def define():
        u = effects()
        a, b = pm.Normal("a"), pm.Normal("b")
        bernoulli(a + b * X[:, 0] + (u[GROUPS] * W).sum(axis=-1))

    return define


def mean_inside():
    u = correlated()
    bernoulli(pm.Normal("a") + u[GROUPS, 0] + (pm.Normal("b") + u[GROUPS, 1]) * X[:, 0])


def columns_first():
    u = correlated()
    intercepts, slopes = u[:, 0], u[:, 1]
    bernoulli(pm.Normal("a") + pm.Normal("b") * X[:, 0] + intercepts[GROUPS] + slopes[GROUPS] * X[:, 0])


def predictor(effects):
    """The effects of rows beside coefficients of data."""
    return lambda: bernoulli(X @ beta() + effects())


def of_many_groups():
    u = correlated(MANY)
    bernoulli(X @ beta() + u[OF_MANY, 0] + u[OF_MANY, 1] * X[:, 0])


def of_many_groups_by_right_product():
    u = pm.Normal("z", shape=(MANY, 2)) @ factor().T
    bernoulli(X @ beta() + u[OF_MANY, 0] + u[OF_MANY, 1] * X[:, 0])


def independent():
    return pm.Normal("u", 0.0, pm.HalfNormal("tau", shape=2), shape=(G, 2))


def independent_scaled():
    return pm.HalfNormal("tau", shape=2) * pm.Normal("u", shape=(G, 2))


def two_vectors():
    tau = pm.HalfNormal("tau", shape=2)
    u, v = (pm.Normal(name, 0.0, tau[k], shape=G) for k, name in enumerate("uv"))
    a, b = pm.Normal("a"), pm.Normal("b")
    bernoulli(a + b * X[:, 0] + u[GROUPS] + v[GROUPS] * X[:, 0])


def two_indices_of_location():
    mean = pm.Normal("mean", shape=8)
    bernoulli(X @ beta() + pm.Normal("u", mean[:, None], scale(), shape=(8, 7))[BLOCKS, DAYS])


def one_index_of_location():
    mean = pm.Normal("mean", shape=8)
    u = pm.Normal("u", mean[np.arange(56) // 7], scale(), shape=56)
    bernoulli(X @ beta() + u[BLOCKS * 7 + DAYS])


def around(mean, shape):
    return pm.Normal("u", mean, scale(), shape=shape)


def beside_one(cells):
    """Cells of two short factors beside many groups."""

    def define():
        v = pm.Normal("v", 0.0, pm.HalfNormal("tau_v"), shape=G)
        bernoulli(X @ beta() + v[GROUPS] + cells())

    return define


SPELLINGS = {
    "two indices": (
        predictor(lambda: normal(shape=(G, 7))[GROUPS, DAYS]),
        predictor(lambda: normal(shape=G * 7)[GROUPS * 7 + DAYS]),
    ),
    "two indices, scaled": (
        predictor(lambda: scaled(shape=(G, 7))[GROUPS, DAYS]),
        predictor(lambda: scaled(shape=G * 7)[GROUPS * 7 + DAYS]),
    ),
    "two indices, nested": (two_indices_of_location, one_index_of_location),
    "cells beside groups": (
        beside_one(lambda: normal(shape=(3, 7))[BLOCKS % 3, DAYS]),
        beside_one(lambda: normal(shape=21)[BLOCKS % 3 * 7 + DAYS]),
    ),
    "cells beside groups, scaled": (
        beside_one(lambda: scaled(shape=(3, 7))[BLOCKS % 3, DAYS]),
        beside_one(lambda: scaled(shape=21)[BLOCKS % 3 * 7 + DAYS]),
    ),
    "cells with a location": (
        beside_one(lambda: around(pm.Normal("mean", shape=(3, 1)), (3, 7))[BLOCKS % 3, DAYS]),
        beside_one(lambda: around(pm.Normal("mean", shape=(3, 1)).repeat(7), 21)[BLOCKS % 3 * 7 + DAYS]),
    ),
    "less an effect": (
        predictor(lambda: -normal(shape=(G, 7))[GROUPS, DAYS]),
        predictor(lambda: -normal(shape=G * 7)[GROUPS * 7 + DAYS]),
    ),
    "a mask": (
        predictor(lambda: normal(shape=G + 8)[KEPT][GROUPS]),
        predictor(lambda: normal(shape=G + 8)[np.flatnonzero(KEPT)[GROUPS]]),
    ),
    "one column": (
        predictor(lambda: normal(shape=(G, 1))[GROUPS, 0]),
        predictor(lambda: normal(shape=G)[GROUPS]),
    ),
    "indicators": (
        predictor(lambda: pm.math.dot(ONES, normal(shape=G))),
        predictor(lambda: normal(shape=G)[GROUPS]),
    ),
    "indicators, scaled": (
        predictor(lambda: ONES @ scaled(shape=G)),
        predictor(lambda: scaled(shape=G)[GROUPS]),
    ),
    "sum over columns": (with_rows_of(correlated), with_slopes(correlated)),
    "mean inside": (mean_inside, with_slopes(correlated)),
    "columns first": (columns_first, with_slopes(correlated)),
    "many groups": (of_many_groups, of_many_groups_by_right_product),
    "independent": (with_slopes(independent), two_vectors),
    "independent, all at once": (with_rows_of(independent), two_vectors),
    "independent, scaled": (with_rows_of(independent_scaled), with_slopes(independent_scaled)),
}


def at(plate: PlateModel, graphs: list) -> list[np.ndarray]:
    """Graphs of the prior, at some values of all variables of these names."""
    point = {name: 0.3 * np.cos(np.arange(np.size(x))) for name, x in plate.shared.graph.point.items()}
    values = [np.reshape(point[name], x.shape) for name, x in plate.shared.graph.point.items()]
    return plate.shared.compile(graphs, [])(*values, *plate.shared.leaf_values)


@pytest.mark.parametrize("name", SPELLINGS)
@pytest.mark.covering(6)
def test_plates_are_those_of_the_spelling_that_is_known(name):
    found, known = (plates_of(define) for define in SPELLINGS[name])
    assert isinstance(found, PlateModel)
    assert isinstance(known, PlateModel)
    assert (found.n_groups, found.n_effects) == (known.n_groups, known.n_effects)
    assert (found.is_centered, found.n_shared) == (known.is_centered, known.n_shared)
    one, other = (plate.rows(np.arange(N)) for plate in (found, known))
    for ours, theirs in zip(one, other, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-14)
    priors = [[g for p in plate.priors for g in (p.location, p.scale)] for plate in (found, known)]
    for ours, theirs in zip(at(found, priors[0]), at(known, priors[1]), strict=True):
        np.testing.assert_array_equal(*np.broadcast_arrays(ours, theirs))


DRAWN = [
    "two indices", "cells beside groups", "cells beside groups, scaled", "sum over columns", "independent",
    "indicators, scaled",
]  # fmt: skip


@pytest.mark.parametrize("name", DRAWN)
@pytest.mark.slow("kernels of plates are compiled")
def test_draws_are_those_of_the_spelling_that_is_known(name, monkeypatch):
    monkeypatch.setattr(plate_search, "_field_plan", lambda *_: None)  # slopes, too
    paths = []
    for define in SPELLINGS[name]:
        model = built(define)
        step = TunaMH(model=model, switch_above=np.inf, progressbar=False)
        step.setup_chain(np.random.default_rng(4), 5, 25)
        point, drawn = model.initial_point(), []
        first = "a" if "a" in point else "beta"
        for _ in range(30):
            point, _ = step.step(point)
            drawn.append(point[first])
        paths.append(np.array(drawn))
    np.testing.assert_allclose(*paths, rtol=1e-12)
    assert np.ptp(paths[0]) > 0.0


def outer_product():
    discrimination, ability = pm.HalfNormal("a", shape=(1, 6)), pm.Normal("t", shape=(N, 1))
    pm.Bernoulli("y", logit_p=discrimination * ability, observed=np.tile(GROUPS[:, None] % 2, 6))


def scales_of_columns():
    mean = pm.Normal("mu", shape=(2, 1))
    pm.Normal("y", mean, pm.HalfNormal("s", shape=3), observed=np.resize(X, (1331, 2, 3)))


def skewed():
    shape = pm.Normal("alpha", 0.0, 2.0, initval=1.0)
    pm.SkewNormal("y", mu=X @ beta(), sigma=scale(), alpha=shape, observed=X[:, 0])


@pytest.mark.parametrize("define", [outer_product, scales_of_columns, skewed], ids=lambda d: d.__name__)
def test_without_groups_there_is_no_plate(define):
    assert plates_of(define) is None


def test_coefficients_in_a_matrix_may_stand_beside_a_plate():
    def define():
        coefficients = pm.Normal("B", shape=(40, 2))
        bernoulli(np.resize(X, (N, 40)) @ coefficients[:, 0] + pm.Normal("a") + normal(shape=G)[GROUPS])

    assert isinstance(plates_of(define), PlateModel)


def test_other_matrices_are_no_groups():
    def nearly():
        bernoulli(X @ beta() + pm.math.dot(np.r_[ONES[:-1], 0.5 * ONES[-1:] + 0.5], normal(shape=G)))

    assert reason(nearly) == "nothing like a plate"


def test_a_row_of_another_group_is_found(monkeypatch):
    """A planted fault in what rows are written as."""
    written = any_spelling._looked_up

    def next_group(graph, places: Index, *others):
        return written(graph, (places + 1) % int(np.prod(graph.type.shape)), *others)

    monkeypatch.setattr(any_spelling, "_looked_up", next_group)
    with pytest.raises(SelfCheckError, match="its rows, written as sums of effects, differ"):
        plates_of(SPELLINGS["sum over columns"][0])
