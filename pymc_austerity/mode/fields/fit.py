"""The averaged expansion of a field, and the law of theta.

Any quadratic V may stand for the likelihood. The one whose slopes and curvatures are averages over the
predictors' own distribution, t_i ~ N(0, v_i) with v_i = a_i' C P^-1 C' a_i, has no drift: by Stein's lemma
the remainders' mean slope by theta and by every eps is zero at the fixed point. Passes over the rows
alternate with the maximum of log p^(theta), which reads none.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy import stats

from pymc_austerity import work
from pymc_austerity.bounds.expressions.evaluate import evaluate
from pymc_austerity.bounds.expressions.node import Expression, constant
from pymc_austerity.bounds.expressions.rebuild import rebuilt
from pymc_austerity.bounds.jets.compiled import entry
from pymc_austerity.bounds.jets.points import BLOCK, Points, points_for, run_at_points
from pymc_austerity.bounds.jets.tape import Tape, tape_of
from pymc_austerity.exceptions import NoNormalApproximationError
from pymc_austerity.kernels.fields import state as states
from pymc_austerity.kernels.fields import tree as trees
from pymc_austerity.kernels.fields.law import LAST, N_KNOTS
from pymc_austerity.kernels.fields.records import Bounds, FieldArrays, FieldRows, Law, Room, Schedule, Sums
from pymc_austerity.mode.fields.layout import Layout, add_products, write_covariances, write_variances
from pymc_austerity.model.field.priors import NoField
from pymc_austerity.model.plates.plate_model import by_powers
from pymc_austerity.model.structure.affine_expressions import leaves
from pymc_austerity.target import Index, Matrix, Vector

# Functions of kernels, to be called from Python.
log_marginal, write_displacements = entry(states.log_marginal), entry(states.write_displacements)
backward, selected_inverse = entry(trees.backward), entry(trees.selected_inverse)

# Nodes of the quadrature for averages; passes at most, and when they end, in posterior standard deviations.
_NODES, _MOST, _NEAR = 7, 40, 0.02
_AVERAGED, _NEAR_MODE = 12, 0.5
# Differences for derivatives of log p^ by theta, and how far tables of scores look, in standard deviations.
_STEP, _FAR, _GRID = 1e-3, 14.0, 281
_SHIFT = 0.3
# Newton steps for theta, after each pass over the rows.
_STEPS = 12
_OF_ROW, _OF_FILL = 30.0, 3.0


class FittedField(NamedTuple):
    """A fitted expansion with the law of theta, as other processes are handed it: it has no size N."""

    theta: Vector
    law: Law
    center: Vector
    hessian: Vector
    right: Vector
    hessian_change: Vector
    gradient_change: Vector
    n_normal: float
    squares: float


@dataclass(eq=False)
class FieldFit:
    """What passes over the rows have found; `theta` is the maximum of log p^."""

    layout: Layout
    features: Callable[[Vector], Vector]
    log_prior: Callable[[Vector], float]
    theta: Vector
    x: Vector
    plan: FieldArrays
    unit: float  # The precision of normal rows that `layout` has; 1 for others
    units: Index  # (q,): of the proposal, see `Law`
    covariance: Matrix | None = None  # Of zeta

    @property
    def fitted(self) -> FittedField:
        """What `fit_again` needs."""
        sums = self.plan.sums
        return FittedField(
            self.theta, self.plan.law, sums.center, sums.hessian, sums.right, sums.hessian_change,
            sums.gradient_change, sums.n_normal, sums.squares,
        )  # fmt: skip

    def at_zeta(self, zeta: Vector) -> float:
        """Log p^ of zeta, with the determinant of theta by zeta."""
        theta = self.theta_of(zeta)
        return self.log_density(theta) + float(theta[self.units[self.units >= 0]].sum())

    def theta_of(self, zeta: Vector) -> Vector:
        """Theta of zeta."""
        scale = np.where(self.units >= 0, zeta[np.maximum(self.units, 0)], 0.0)
        return zeta * np.exp(scale)

    @property
    def zeta(self) -> Vector:
        """The present theta as zeta."""
        scale = np.where(self.units >= 0, self.theta[np.maximum(self.units, 0)], 0.0)
        return self.theta * np.exp(-scale)

    def log_density(self, theta: Vector) -> float:
        """Log p^(theta); minus infinity where it is no number."""
        value = self.log_prior(theta)
        if not np.isfinite(value):
            return -np.inf
        work.spend(_OF_FILL * self.layout.tree.fronts[-1], "The fit of a field")
        found = value + log_marginal(self.plan, self.features(theta), 0)
        return found if np.isfinite(found) else -np.inf


def fit_field(
    layout: Layout,
    features: Callable[[Vector], Vector],
    log_prior: Callable[[Vector], float],
    theta: Vector,
    precision: int = -1,
    unit: float = 1.0,
    units: Index | None = None,
) -> FieldFit:
    """Fit from `theta` on.

    Raises
    ------
    NoNormalApproximationError
        If there is no maximum.
    """
    program = tape_of(layout.columns.expression, 1, 2)
    plan = _empty(layout, program, precision)
    theta = np.array(theta, dtype=np.float64)
    units = np.full(len(theta), -1) if units is None else units
    fit = FieldFit(layout, features, log_prior, theta, np.zeros(len(layout.elements)), plan, unit, units)
    nothing = np.zeros(0)
    if precision >= 0:
        _expand(fit, program, nothing)
        _maximise(fit)
        return _finished(fit)
    for k in range(_MOST):
        _expand(fit, program, nothing)
        step = _center(fit)
        if k in (3, 5, 7):
            _maximise(fit)
            step = max(step, _center(fit))
        if step < _NEAR_MODE and k > 7:
            break
    else:
        raise NoNormalApproximationError(
            "The effects of a field have no mode that is found: the data may separate responses perfectly "
            "where priors are improper. Give proper priors."
        )
    for _ in range(_AVERAGED):
        _expand(fit, program, _variances(fit))
        before = fit.theta
        _maximise(fit)
        step = _center(fit)
        sds = np.ones(0) if fit.covariance is None else np.sqrt(np.diag(fit.covariance))
        if step < _NEAR and np.all(np.abs(fit.theta - before) < _NEAR * sds + 1e-4):
            break
    _expand(fit, program, _variances(fit))
    _maximise(fit)
    return _finished(fit)


def fit_again(
    layout: Layout,
    features: Callable[[Vector], Vector],
    log_prior: Callable[[Vector], float],
    fitted: FittedField,
    precision: int = -1,
    unit: float = 1.0,
) -> FieldFit:
    """A `FieldFit` from what another process has fitted, in one pass over the rows."""
    theta = fitted.theta
    program = tape_of(layout.columns.expression, 1, 2)
    plan = _empty(layout, program, precision)
    fit = FieldFit(layout, features, log_prior, theta, fitted.center, plan, unit, fitted.law.units)
    _write_taylor(fit, program)
    own = fitted._asdict()
    sums = fit.plan.sums._replace(**{name: own[name] for name in fitted._fields[2:]})
    fit.plan = fit.plan._replace(sums=sums, law=fitted.law)
    return fit


def with_scale(
    layout: Layout, features: Callable[[Vector], Vector], theta: Vector, precision: int
) -> tuple[Layout, float]:
    """The layout with the free scale of normal rows at a number, and the precision there.

    Raises
    ------
    NoField
        If the curvature of rows is not the precision.
    """
    assert layout.scale is not None
    number, factor, offset = layout.scale
    powers = by_powers(layout.columns.expression)
    if powers is None or leaves(powers[2], "data"):
        raise NoField("the mean of normal rows is no linear function of effects")
    for at in (theta + _SHIFT, theta):
        found = features(at)
        unit, scale = math.exp(found[precision]), factor * found[number] + offset
        if not np.isclose(-2.0 * float(evaluate(powers[2], {1: scale}, {})), unit, rtol=1e-8, atol=0.0):
            raise NoField("the free scale of normal rows is not their standard deviation")
    expression = _with_number(layout.columns.expression, scale)
    return replace(layout, columns=layout.columns._replace(expression=expression)), unit


def _with_number(expression: Expression, number: float) -> Expression:
    """Rows with a number in the place of predictor 1."""
    value = constant(number)
    return rebuilt(expression, lambda one: value if one.op == "predictor" and one.value == 1 else None)


def _empty(layout: Layout, program: Tape, precision: int) -> FieldArrays:
    """A plan without bounds or proposals."""
    tree, n_x = layout.tree, len(layout.elements)
    n_h, n_v = len(layout.first), len(tree.first)
    rows = FieldRows(
        layout.columns.x, layout.lookups, layout.columns.values, layout.columns.offsets.copy(),
        np.zeros(len(layout.rows)), np.zeros(len(layout.rows)), layout.columns.data, program,
    )  # fmt: skip
    sums = Sums(
        np.zeros(n_x), np.zeros(n_h), np.zeros(n_x), np.zeros(n_h), np.zeros(n_x),
        layout.first.astype(np.int32), layout.second.astype(np.int32), layout.of_pairs.astype(np.int32),
        layout.of_elements.astype(np.int32), 0.0, 0.0, precision,
    )  # fmt: skip
    none = np.zeros(1, np.int64)
    bounds = Bounds(
        none, none[:0], none, np.zeros(0), none[:0], none[:0], np.zeros(0), layout.cells, layout.of_cells,
        np.zeros((len(layout.of_cells), 0), np.int64), np.zeros((0, 0)), np.zeros(0), np.zeros((0, 0, 1)),
        np.zeros((0, len(layout.of_cells), 0)), 0.0, np.zeros(len(layout.of_cells), np.int64),
    )  # fmt: skip
    room, unknown = room_for(layout, program, 0, 0), Schedule(1, np.ones(1, np.int64), np.ones(1))
    return FieldArrays(
        tree, rows, sums, layout.prior, bounds, no_law(), np.ones(n_v), unknown, True, precision < 0, False,
        np.zeros(1, np.int64), room,
    )  # fmt: skip


def no_law() -> Law:
    """The law of no numbers."""
    nothing = np.zeros((0, 0))
    return Law(np.zeros(0), np.zeros(0), np.zeros((0, N_KNOTS)), nothing, nothing, np.zeros(0, np.int64))


def room_for(layout: Layout, program: Tape, n_levels: int, n_blocks: int) -> Room:
    """Room for two states."""
    tree, n_x = layout.tree, len(layout.elements)
    n, n_v = len(tree.node_of), len(tree.first)
    return Room(
        np.zeros((2, tree.fronts[-1])), np.zeros((2, n)), np.zeros((2, n)), np.zeros((2, n)),
        np.zeros((2, n_x)), np.zeros((2, n_levels)), np.zeros((2, len(layout.prior.map.rows))),
        np.zeros((2, len(layout.prior.pulls.columns))), np.zeros((2, n)), np.zeros((3, n_blocks)),
        np.zeros(n_v, np.int64), np.zeros(n_v), np.zeros(n_v, np.bool_),
        np.zeros((2, int(tree.depth.max(initial=0)) + 1)), np.zeros(n_v), np.zeros((1, BLOCK)),
        np.zeros((len(layout.columns.data), BLOCK)), points_for(program), np.zeros(0), np.full(2, -1.0),
    )  # fmt: skip


def _where(layout: Layout) -> tuple[Index, np.ndarray, int]:
    return layout.combinations, layout.pairs, layout.n_lookups


def _design(layout: Layout) -> tuple[Matrix, np.ndarray, Matrix]:
    return layout.columns.x, layout.lookups, layout.columns.values


def predictors_at(layout: Layout, x: Vector) -> Vector:
    """eta_i at x."""
    result = layout.columns.offsets + layout.columns.x @ x[layout.n_lookups :]
    for f in range(layout.lookups.shape[1]):
        result += layout.columns.values[:, f] * x[layout.lookups[:, f]]
    return result


def _write_taylor(fit: FieldFit, program: Tape) -> None:
    """Predictors, slopes and curvatures of all rows at fit.x."""
    rows, nodes = fit.plan.rows, np.zeros(1)
    work.spend(_OF_ROW * len(fit.layout.rows), "The fit of a field")
    rows.predictors[:] = predictors_at(fit.layout, fit.x)
    points = points_for(program)
    eta = rows.predictors
    _write_slopes(program, rows.data, eta, nodes[:0], nodes, nodes, points, rows.slopes, rows.weights)
    rows.slopes[:] /= fit.unit
    rows.weights[:] /= fit.unit
    if not (np.isfinite(rows.slopes).all() and np.isfinite(rows.weights).all()):
        raise NoNormalApproximationError("Some rows of a field have no finite derivatives near its mode.")


def _expand(fit: FieldFit, program: Tape, variances: Vector) -> None:
    """Expand about fit.x: H and g of averages, and what Taylor's differ by."""
    layout, n = fit.layout, len(fit.layout.rows)
    _write_taylor(fit, program)
    rows, n_h = fit.plan.rows, len(fit.layout.first)
    taylor_gradient, taylor = np.zeros(len(fit.x)), np.zeros(n_h)
    add_products(_where(layout), _design(layout), rows.slopes, rows.weights, taylor_gradient, taylor)
    slopes, weights, gradient, hessian = rows.slopes, rows.weights, taylor_gradient, taylor
    if len(variances):
        work.spend(_OF_ROW * n * _NODES, "The fit of a field")
        nodes, shares = np.polynomial.hermite_e.hermegauss(_NODES)
        slopes, weights = np.empty(n), np.empty(n)
        _write_slopes(
            program, rows.data, rows.predictors, variances, nodes, shares / shares.sum(),
            points_for(program), slopes, weights,
        )  # fmt: skip
        gradient, hessian = np.zeros(len(fit.x)), np.zeros(n_h)
        add_products(_where(layout), _design(layout), slopes, weights, gradient, hessian)
    _take(fit, gradient, hessian, taylor_gradient, taylor)
    if not np.isfinite(log_marginal(fit.plan, fit.features(fit.theta), 0)):  # far out some rows curve upwards
        gradient, hessian = np.zeros(len(fit.x)), np.zeros(n_h)
        add_products(_where(layout), _design(layout), slopes, np.maximum(weights, 0.0), gradient, hessian)
        _take(fit, gradient, hessian, taylor_gradient, taylor)


def _take(fit: FieldFit, gradient: Vector, hessian: Vector, taylor_gradient: Vector, taylor: Vector) -> None:
    sums = fit.plan.sums
    squares, n_normal = 0.0, 0.0
    if sums.precision >= 0:
        squares = float((fit.plan.rows.slopes**2).sum())
        squares += float(2.0 * gradient @ fit.x + fit.x @ product(sums, hessian, fit.x))
        n_normal = float(len(fit.layout.rows))
    fit.plan = fit.plan._replace(
        sums=sums._replace(
            center=fit.x.copy(),
            hessian=hessian,
            right=gradient + product(sums, hessian, fit.x),
            hessian_change=taylor - hessian,
            gradient_change=taylor_gradient - gradient,
            n_normal=n_normal,
            squares=squares,
        )
    )


def product(sums: Sums, hessian: Vector, x: Vector) -> Vector:
    """A symmetric matrix by elements of H times x."""
    n = len(x)
    result = np.bincount(sums.first, hessian * x[sums.second], minlength=n)
    off = sums.first != sums.second
    return result + np.bincount(sums.second[off], (hessian * x[sums.first])[off], minlength=n)


@entry
def _write_slopes(
    program: Tape,
    data: Matrix,
    predictors: Vector,
    variances: Vector,
    nodes: Vector,
    weights: Vector,
    points: Points,
    slopes: Vector,
    curvatures: Vector,
) -> None:
    """f_i' and -f_i'', at the predictors or averaged over normal variables about them."""
    n = predictors.shape[0]
    n_nodes = nodes.shape[0] if variances.shape[0] > 0 else 1
    eta, own = np.zeros((1, BLOCK)), np.empty((data.shape[0], BLOCK))
    for start in range(0, n, BLOCK):
        m = min(BLOCK, n - start)
        own[:, :m] = data[:, start : start + m]
        for lane in range(m):
            slopes[start + lane] = curvatures[start + lane] = 0.0
        for k in range(n_nodes):
            weight = weights[k] if variances.shape[0] > 0 else 1.0
            for lane in range(m):
                eta[0, lane] = predictors[start + lane]
                if variances.shape[0] > 0:
                    eta[0, lane] += nodes[k] * np.sqrt(variances[start + lane])
            run_at_points(program, eta[:, :m], own[:, :m], 0, points)
            found = points.coefficients[program.root]
            for lane in range(m):
                slopes[start + lane] += weight * found[1, lane]
                curvatures[start + lane] -= 2.0 * weight * found[2, lane]


def _center(fit: FieldFit) -> float:
    """Move x to its mean given theta; how far that is, in posterior standard deviations of the whole."""
    plan, room = fit.plan, fit.plan.room
    features = fit.features(fit.theta)
    if not np.isfinite(log_marginal(plan, features, 0)):
        raise NoNormalApproximationError("The expansion of a field has no maximum at its scales.")
    backward(fit.layout.tree, room.fronts[0], room.shifts[0], room.z[0])
    write_displacements(plan, features, 0)
    d = room.d[0]
    step = float(np.sqrt(max(d @ product(plan.sums, plan.sums.hessian, d), 0.0)))
    fit.x = fit.x + d
    return step


def _variances(fit: FieldFit) -> Vector:
    """a_i' C P^-1 C' a_i of all rows at theta."""
    plan, layout = fit.plan, fit.layout
    log_marginal(plan, fit.features(fit.theta), 0)
    inverse = np.zeros(layout.tree.fronts[-1])
    selected_inverse(layout.tree, plan.room.fronts[0], inverse)
    covariance = np.empty(len(plan.sums.first))
    write_covariances(plan.prior, plan.sums, plan.room.elements[0], inverse, covariance)
    result = np.empty(len(layout.rows))
    write_variances(_where(layout), _design(layout), covariance, result)
    return result


def _maximise(fit: FieldFit) -> None:
    """Move theta to the maximum of log p^."""
    q = len(fit.theta)
    if q == 0:
        return
    steps = np.eye(q) * _STEP

    def value(theta: Vector) -> float:  # of zeta, all through this search
        found = -fit.at_zeta(theta)
        return found if np.isfinite(found) else 1e300

    def gradient(theta: Vector) -> Vector:
        return np.array([(value(theta + s) - value(theta - s)) / (2.0 * _STEP) for s in steps])

    def hessian(theta: Vector) -> Matrix:
        columns = [(gradient(theta + s) - gradient(theta - s)) / (2.0 * _STEP) for s in steps * 10.0]
        found = np.array(columns) / 10.0
        return 0.5 * (found + found.T)

    theta = fit.zeta
    h = hessian(theta)
    for _ in range(_STEPS):
        g = gradient(theta)
        lam, vectors = np.linalg.eigh(h)
        lam = np.maximum(np.abs(lam), 0.1)
        move = -vectors @ ((vectors.T @ g) / lam)
        size = math.sqrt(max(float(-g @ move), 0.0))
        if size < 1e-2:
            break
        move *= min(1.0, 1.5 / max(np.abs(move).max(), 1e-300))
        start, t = value(theta), 1.0
        while t > 1e-3 and not value(theta + t * move) < start + 1e-9:
            t /= 2.0
        if t <= 1e-3:
            break
        theta = theta + t * move
        if t < 1.0 or size > 1.0:  # the second derivatives are those of another place
            h = hessian(theta)
    fit.theta = fit.theta_of(theta)
    fit.covariance = (vectors / lam) @ vectors.T


def _finished(fit: FieldFit) -> FieldFit:
    fit.plan = fit.plan._replace(law=_law(fit))
    return fit


def _law(fit: FieldFit) -> Law:
    """Scores of each coordinate: its density along the mean of the others given it."""
    q = len(fit.theta)
    if q == 0:
        return no_law()
    assert fit.covariance is not None
    sds = np.sqrt(np.diag(fit.covariance))
    knots = np.empty((q, N_KNOTS))
    scores = np.linspace(-LAST, LAST, N_KNOTS)
    grid = np.linspace(-_FAR, _FAR, _GRID)
    for j in range(q):
        line = fit.covariance[:, j] / sds[j]
        coarse = np.linspace(-_FAR, _FAR, 57)
        heights = np.array([fit.at_zeta(fit.zeta + t * line) for t in coarse])
        heights = np.maximum(heights - heights.max(), -700.0)
        log_density = np.interp(grid, coarse, heights)
        knots[j] = _table(grid, log_density, scores)
    correlation = fit.covariance / np.outer(sds, sds)
    factor = np.linalg.cholesky(correlation)
    return Law(fit.zeta, sds, knots, factor, np.linalg.inv(factor), fit.units)


def _table(grid: Vector, log_density: Vector, scores: Vector) -> Vector:
    """Places at which a density has the distribution function of normal scores, increasing."""
    density = np.exp(log_density)
    mass = np.concatenate([[0.0], np.cumsum(0.5 * (density[1:] + density[:-1]))])
    below = mass / mass[-1]
    above = (mass[-1] - mass) / mass[-1]
    own = np.where(
        below < 0.5, stats.norm.ppf(np.clip(below, 1e-300, 1)), stats.norm.isf(np.clip(above, 1e-300, 1))
    )
    inside = np.abs(own) < LAST + 2.0
    inside &= np.concatenate([[True], np.diff(own) > 1e-9])
    found = np.interp(scores, own[inside], grid[inside])
    slope = np.maximum(np.diff(found), 0.02)
    middle = len(scores) // 2
    return found[middle] + np.concatenate([[0.0], np.cumsum(slope)]) - slope[:middle].sum()
