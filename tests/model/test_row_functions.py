"""Rows of ordinary models as functions of few predictors: how many, and the values and slopes."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy.special import log_ndtr

from pymc_austerity import factorise
from pymc_austerity.bounds.expressions.evaluate import evaluate
from pymc_austerity.bounds.expressions.node import constant, node
from pymc_austerity.exceptions import SelfCheckError, UnboundedError
from pymc_austerity.model.graph.rewrite import INTERPRETED_STABLE, stable
from pymc_austerity.model.self_check import jittered
from pymc_austerity.model.structure.row_functions import check_against_graph
from pymc_austerity.model.structure.term_structure import TermStructure
from tests.model.row_function_models import BITS, COUNTS, GROUP, MODELS, REAL, N, X, eta, exp, half

FOUND = {name: row for name, row in MODELS.items() if isinstance(row[1], int)}
REFUSED = {name: row for name, row in MODELS.items() if isinstance(row[1], str)}


def structure_of(function, names=None):
    with pm.Model() as model:
        function()
    variables = None if names is None else [model[name] for name in names]
    return TermStructure(factorise(model, variables, threshold=100))


def values_and_gradients(structure):
    """At a random point: rows by the graph and their gradients, and the same by the row function."""
    (function,), inner = structure.row_functions, structure.inner
    outer = structure.factorisation
    point = jittered(outer.graph)
    if structure.features is not None:
        (point,) = structure.features.at(outer, [point])
    names = list(inner.graph.values)
    parts = [np.ravel(point[names.index(name)]) for name in inner.var_names]
    positions = np.arange(0, N, 7)
    rows, data = function.rows(positions), function.data(positions)
    center = np.concatenate(parts)

    def by_expression(q):
        return evaluate(function.expression, (rows[..., :-1] @ q + rows[..., -1]).T, data)

    (term,) = inner.locals
    graph = inner.compile(stable(term.rows), [term.index], mode=INTERPRETED_STABLE)
    sizes = np.cumsum([len(part) for part in parts])[:-1]

    def by_graph(q):
        own = dict(zip(names, point, strict=True))
        for name, part in zip(inner.var_names, np.split(q, sizes), strict=True):
            own[name] = part.reshape(np.shape(own[name]))
        return graph(*own.values(), positions, *inner.leaf_values)

    direction = np.random.default_rng(1).normal(size=(5, len(center)))
    h = 1e-5
    slopes = [
        [(f(center + h * u) - f(center - h * u)) / (2 * h) for u in direction]
        for f in (by_graph, by_expression)
    ]
    return by_graph(center), by_expression(center), *slopes


@pytest.mark.parametrize("name", FOUND)
@pytest.mark.covering(2)
def test_number_of_predictors_and_rows_of_the_graph(name):
    function, p, where = MODELS[name]
    structure = structure_of(function)
    (found,) = structure.row_functions
    assert (found.n_predictors, "q" if structure.features is None else "phi") == (p, where)
    assert found.rows(np.arange(5)).shape == (5, p, found.n_dim + 1)
    theirs, ours, their_slopes, our_slopes = values_and_gradients(structure)
    assert np.all(np.isfinite(theirs))
    # PyTensor takes the square root of 2 of normal distribution functions in single precision.
    rounded = (
        "bernoulli_probit",
        "censored_normal",
        "ex_gaussian",
        "ordered_probit",
        "truncated_on_both_sides",
    )
    tolerance = 1e-7 if name in rounded else 1e-9
    np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(our_slopes, their_slopes, rtol=1e-4, atol=1e-5)


def test_the_square_root_of_two_is_in_double_precision():
    """What probit rows differ from PyMC's by is its rounding of that."""
    (found,) = structure_of(MODELS["bernoulli_probit"][0]).row_functions
    eta = np.linspace(-4.0, 4.0, N)
    ours = evaluate(found.expression, [eta], found.data(np.arange(N)))
    np.testing.assert_allclose(ours, log_ndtr(eta), rtol=1e-14)  # signs are in eta


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_in_the_way(name):
    function, reason, _ = MODELS[name]
    with pytest.raises(UnboundedError) as error:
        structure_of(function).row_functions  # noqa: B018
    assert str(error.value) == reason


def test_variables_of_other_steps_are_named():
    (found,) = structure_of(MODELS["normal"][0], ["b", "b_0"]).row_functions
    assert (found.n_predictors, found.others, found.offset_fixed) == (1, ("s_log__",), True)

    def shifted():
        pm.Poisson("y", exp(eta() + pm.Normal("u", shape=70)[GROUP]), observed=COUNTS)

    (found,) = structure_of(shifted, ["b", "b_0"]).row_functions
    assert (found.n_predictors, found.others, found.offset_fixed) == (1, ("u",), False)


def test_a_term_that_is_not_what_its_function_says_is_a_defect():
    """Planted fault: a function that is larger by a thousandth."""
    structure = structure_of(MODELS["normal"][0])
    (found,), fact = structure.row_functions, structure.factorisation
    points = [list(fact.graph.point.values())]
    (term,) = fact.locals
    check_against_graph(fact, [(term, found)], points)
    wrong = node("sum", (found.expression,), (1e-3, (1.0,)))
    with pytest.raises(SelfCheckError, match="Self-check failed for the term 'y': row 0 as a function of 2"):
        check_against_graph(fact, [(term, found._replace(form=wrong))], points)


def test_equal_columns_of_data_are_one_and_equal_rows_are_constants():
    def function():
        y = pt.as_tensor(COUNTS.astype(float))
        pm.Potential("y", y * exp(eta()) + (y + 0) * pm.math.log1p(exp(eta("g"))) + np.full(N, 2.0) * half())

    (found,) = structure_of(function).row_functions
    assert found.data(np.arange(3)).shape == (1, 3)
    np.testing.assert_array_equal(found.data(np.arange(3))[0], COUNTS[:3])


def test_infinite_data_are_a_choice():
    """As in zero inflation: the log density of a part that cannot be is minus infinity."""
    offset = np.where(BITS == 1, -np.inf, REAL)

    def function():
        pm.Potential("y", pm.math.logaddexp(eta(), pt.as_tensor(offset)))

    (found,) = structure_of(function).row_functions
    assert np.all(np.isfinite(found.data(np.arange(N))))
    assert found.n_predictors == 1


def test_the_range_of_data_is_that_of_all_rows():
    def function():
        pm.Potential("y", pt.as_tensor(REAL) * exp(eta()))

    (found,) = structure_of(function).row_functions
    ranges = [one.range for one in _nodes(found.expression) if one.op == "data"]
    assert [(r.low, r.high, r.nonzero) for r in ranges] == [(REAL.min(), REAL.max(), True)]


def _nodes(root):
    return [root, *(one for arg in root.args for one in _nodes(arg))]


def operations(mu):
    """Operations on short axes, none of which is affine in `mu` (N, 3)."""
    cells = pt.exp(mu)
    total = pt.concatenate([cells, mu], axis=1)
    return {
        "cumsum": lambda: pt.cumsum(cells, axis=1)[:, -1],
        "cumprod": lambda: pt.cumprod(cells, axis=1)[:, 1:].sum(axis=1),
        "max": lambda: pt.max(cells, axis=1),
        "min": lambda: pt.min(cells, axis=1),
        "prod": lambda: pt.prod(cells, axis=1),
        "all": lambda: pt.switch(pt.all(cells > 0.5, axis=1), cells[:, 0], mu[:, 1]),
        "any": lambda: pt.switch(pt.any(cells > 1.5, axis=1), cells[:, 0], mu[:, 1]),
        "count": lambda: (cells > 1.0).sum(axis=1) * cells[:, 0],
        "join": lambda: total[:, ::2].sum(axis=1),
        "set": lambda: pt.set_subtensor(cells[:, 1], 2.0 * mu[:, 0] ** 2).sum(axis=1),
        "inc": lambda: (pt.inc_subtensor(cells[:, :2], mu[:, 1:]) ** 2).sum(axis=1),
        "set by list": lambda: pt.set_subtensor(cells[:, [0, 2]], mu[:, :2]).prod(axis=1),
        "log softmax": lambda: pt.special.log_softmax(mu, axis=1)[:, 0],
        "softmax": lambda: pt.special.softmax(mu, axis=1)[:, 2],
        "take": lambda: cells[pt.arange(N), COUNTS % 3],
        "take from the end": lambda: cells[pt.arange(N), COUNTS % 3 - 3],
        "take along axis": lambda: pt.take_along_axis(cells, (COUNTS % 3)[:, None], axis=1)[:, 0],
        "log-sum-exp": lambda: pm.math.logsumexp(cells, axis=1, keepdims=False),
        "split": lambda: pt.split(cells, [1, 2], axis=1)[1].sum(axis=1),
        "dot": lambda: cells @ np.array([1.0, -2.0, 0.5]),
        "dot of data": lambda: (X * cells).sum(axis=1),
        "reshape": lambda: cells.reshape((N, 3, 1))[:, 1, 0],
        "stack": lambda: pt.stack([cells[:, 0], mu[:, 1]], axis=1).prod(axis=1),
        "transpose": lambda: cells.T[1],
        "clip": lambda: pt.clip(mu[:, 0], -0.5, 0.5),
        "truth": lambda: ((cells[:, 0] > 1.0) ^ (mu[:, 1] > 0.0)) * cells[:, 2],
        "powers": lambda: cells[:, 0] ** mu[:, 1] + pt.sqrt(cells[:, 2]) + pt.exp2(mu[:, 0]),
        "logarithms": lambda: pt.log2(cells[:, 0]) * pt.log10(1 + cells[:, 1]) * pt.log1p(cells[:, 2]),
        "circle": lambda: pt.sin(mu[:, 0]) * pt.cos(mu[:, 1]) * pt.arctan(mu[:, 2]),
        "hyperbola": lambda: pt.tanh(mu[:, 0]) * pt.cosh(mu[:, 1]) * pt.sinh(mu[:, 2]),
        "gamma": lambda: pt.gamma(cells[:, 0]) * pt.psi(cells[:, 1]) * pt.gammaln(cells[:, 2]),
        "error": lambda: pt.erf(mu[:, 0]) * pt.erfc(mu[:, 1]) * pt.erfcx(mu[:, 2]),
        "signs": lambda: pt.sign(mu[:, 0]) * pt.abs(mu[:, 1]) * pt.expm1(mu[:, 2]),
    }


@pytest.mark.parametrize("name", operations(pt.matrix()))
@pytest.mark.covering(7)
def test_operations(name):
    def function():
        mu = X + pm.Normal("m", shape=3)
        pm.Potential("y", operations(mu)[name]())

    structure = structure_of(function)
    theirs, ours, _, _ = values_and_gradients(structure)
    np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12)


def test_a_condition_that_all_values_meet_is_none():
    """Guards of PyMC are gone where the ranges of data decide them."""
    (found,) = structure_of(MODELS["poisson"][0]).row_functions
    assert {one.op for one in _nodes(found.expression)}.isdisjoint({"select", "positive", "zero"})
    assert constant(0.0) not in _nodes(found.expression)


def test_a_constant_that_is_not_a_number_is_not_the_only_column_of_data():
    """Neither is the other, though no columns are compared where there is one."""
    y = np.random.default_rng(1).normal(size=N)

    def logp(value, b):
        return pt.switch(pt.gt(b, -5.0), -0.5 * (value - b) ** 2, np.nan)

    (function,) = structure_of(
        lambda: pm.CustomDist("y", pm.Normal("b"), logp=logp, observed=y)
    ).row_functions
    positions = np.arange(4)
    rows, data = function.rows(positions), function.data(positions)
    for b, expected in ((-6.0, np.full(4, np.nan)), (2.0, -0.5 * (y[:4] - 2.0) ** 2)):
        found = evaluate(function.expression, (rows[..., 0] * b + rows[..., 1]).T, data)
        np.testing.assert_allclose(found, expected, rtol=1e-14)
