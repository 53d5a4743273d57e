"""The averaged expansion of a field, and the law of theta.

Any quadratic V may stand for the likelihood. The one whose slopes and curvatures are averages over the
predictors' own distribution, t_i ~ N(0, v_i) with v_i = A_i C P^-1 C' A_i', has no drift: by Stein's lemma
the remainders' mean slope by theta and by every eps is zero at the fixed point. Passes over the rows
alternate with the maximum of log p^(theta), which reads none.

A field that is moved in turns has an expansion for each. They share the center x*, which is found by turns,
and the v_i, to which each adds what its own effects have, as if the others stayed.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy import sparse
from scipy.sparse import linalg

from pymc_austerity import work
from pymc_austerity.bounds.expressions.evaluate import evaluate
from pymc_austerity.bounds.expressions.node import Expression, constant
from pymc_austerity.bounds.expressions.rebuild import rebuilt
from pymc_austerity.bounds.jets.compiled import entry
from pymc_austerity.bounds.jets.points import BLOCK, points_for
from pymc_austerity.bounds.jets.tape import Tape, tape_of
from pymc_austerity.exceptions import NoNormalApproximationError
from pymc_austerity.kernels.fields import held as holding
from pymc_austerity.kernels.fields import state as states
from pymc_austerity.kernels.fields import tree as trees
from pymc_austerity.kernels.fields.records import (
    Bounds,
    Cubic,
    Elements,
    FieldArrays,
    FieldRows,
    Held,
    Law,
    Loose,
    Room,
    Schedule,
    Sums,
)
from pymc_austerity.kernels.fields.tree import write_positions
from pymc_austerity.mode.fields import search
from pymc_austerity.mode.fields.heavy_tails import expected_precisions, mean_log_prior
from pymc_austerity.mode.fields.held import with_elements
from pymc_austerity.mode.fields.law import law_of, no_law
from pymc_austerity.mode.fields.layout import Layout
from pymc_austerity.mode.fields.maps import matrix_of
from pymc_austerity.mode.fields.matched import averaged, mean_excess
from pymc_austerity.mode.fields.passes import (
    add_products,
    derivatives_of,
    nodes_of,
    not_upwards,
    part_of,
    predictors_at,
    product,
    quadratic_of,
    slopes_and_weights,
    variances_of,
    varying,
)
from pymc_austerity.mode.fields.prior import write_covariances
from pymc_austerity.mode.row_tables import parts
from pymc_austerity.model.field.priors import NoField
from pymc_austerity.model.structure.affine_expressions import by_powers
from pymc_austerity.target import Index, Matrix, Vector

# Functions of kernels, to be called from Python.
log_marginal, mean_log_marginal = entry(states.log_marginal), entry(states.mean_log_marginal)
write_state, selected_inverse = entry(states.write_state), entry(trees.selected_inverse)
held_log_density, write_right = entry(holding.held_log_density), entry(holding.write_right)
write_elements = entry(states.write_elements)
write_precision, factorise = entry(states.write_precision), entry(trees.factorise)

# Passes at most, and when they end, in posterior standard deviations.
_MOST, _NEAR = 60, 0.02
_AVERAGED, _NEAR_MODE, _LAST_ROUGH = 12, 0.5, 30
# How far apart two scales of normal rows are compared.
_SHIFT = 0.3
_OF_ROW, _OF_FILL = 30.0, 3.0
# A pivot that is so small, beside the diagonal, is none.
_UNTOLD = 1e-11
# Draws of what is held.
_DRAWS, _SEED = 16, 2027


class FittedField(NamedTuple):
    """A fitted expansion with the law of theta, as other processes are handed it: it has no size N."""

    theta: Vector
    law: Law
    center: Vector  # x* of all elements of rows, held or not
    precisions: Vector  # Of heavy-tailed effects
    hessian: Vector
    right: Vector
    hessian_change: Vector
    gradient_change: Vector
    n_normal: float
    squares: float
    matched_hessian: Vector
    matched_right: Vector


class Parameters(NamedTuple):
    """Theta of a field, and what a turn moves of it."""

    names: tuple[str, ...]  # The variable of each element
    features: Callable[[Vector], Vector]
    log_prior: Callable[[Vector], float]
    precision: int  # Which feature the logarithm of the precision of normal rows is; -1 for other rows
    unit: float  # The precision of normal rows that the layout has; 1 for others
    which: tuple[Index, ...]  # By turns: elements of theta that it moves
    units: tuple[Index, ...]  # By turns: of the proposal, see `Law`
    is_bound: tuple[bool, ...]  # By turns: whether these have a part in C of what it holds


class HeldDraws(NamedTuple):
    """What a turn holds, in some draws: with its mean alone the rows would seem to be explained better."""

    z: Matrix  # (k, m): coordinates, where theta has a part in their prior; else (0, 0)
    rights: Matrix  # (k, n_x): g + H x* less what held effects take
    squares: Vector  # (k,): residual sums of normal rows


_NO_DRAWS = HeldDraws(np.zeros((0, 0)), np.zeros((0, 0)), np.zeros(0))


@dataclass(eq=False)
class FieldFit:
    """What passes over the rows have found for a turn; `theta` is the maximum of log p^."""

    layout: Layout
    features: Callable[[Vector], Vector]
    log_prior: Callable[[Vector], float]
    theta: Vector
    everywhere: Vector  # The center of all elements of rows; all turns share it
    plan: FieldArrays
    unit: float
    which: Index
    units: Index
    covariance: Matrix | None = None  # Of zeta
    is_stale: bool = False  # Whether that is of another place
    log_precisions: Vector | None = None  # Expected logarithms of the precisions of heavy-tailed effects
    places: Matrix | None = None  # Of effects that are normal only nearly: where their excess is averaged
    draws: HeldDraws = _NO_DRAWS

    @property
    def x(self) -> Vector:
        """The center of what the turn moves."""
        own = self.layout.elements
        return np.where(own >= 0, self.everywhere[own], 0.0)

    @property
    def fitted(self) -> FittedField:
        """What `fit_again` needs."""
        sums = self.plan.sums
        return FittedField(
            self.theta, self.plan.law, self.everywhere, self.plan.room.precisions,
            sums.hessian, sums.right, sums.hessian_change,
            sums.gradient_change, sums.n_normal, sums.squares, sums.matched_hessian, sums.matched_right,
        )  # fmt: skip

    def at_zeta(self, zeta: Vector) -> float:
        """Log p^ of zeta, with the determinant of theta by zeta."""
        theta = self.theta_of(zeta)
        return self.log_density(theta) + float(theta[self.which][self.units[self.units >= 0]].sum())

    def theta_of(self, zeta: Vector) -> Vector:
        """All of theta, with zeta of what the turn moves."""
        scale = np.where(self.units >= 0, zeta[np.maximum(self.units, 0)], 0.0)
        theta = self.theta.copy()
        theta[self.which] = zeta * np.exp(scale)
        return theta

    @property
    def zeta(self) -> Vector:
        """Zeta of the present theta, of what the turn moves."""
        own = self.theta[self.which]
        return own * np.exp(-np.where(self.units >= 0, own[np.maximum(self.units, 0)], 0.0))

    def log_density(self, theta: Vector) -> float:
        """Log p^(theta); minus infinity where it is no number."""
        value = self.log_prior(theta)
        if not np.isfinite(value):
            return -np.inf
        work.spend(_OF_FILL * self.layout.tree.fronts[-1], "The fit of a field")
        features, plan, draws = self.features(theta), self.plan.quadratic, self.draws
        held = self.plan.held
        if len(draws.rights):
            value += mean_log_marginal(plan, features, draws.rights, draws.squares)
        else:
            value += log_marginal(plan, features, 0)
        for z in draws.z:
            held.z[0] = z
            value += held_log_density(held, features) / len(draws.z)
        if self.log_precisions is not None:
            tails = self.plan.prior.tails
            precisions = self.plan.room.precisions[tails.coordinates]
            value += mean_log_prior(tails, features, precisions, self.log_precisions)
        if self.places is not None:
            with np.errstate(all="ignore"):
                value += mean_excess(self.plan.prior.matched, features, self.places)
        return value if np.isfinite(value) else -np.inf


def fit_field(layouts: tuple[Layout, ...], parameters: Parameters, theta: Vector) -> tuple[FieldFit, ...]:
    """Fit all turns from `theta` on.

    Raises
    ------
    NoNormalApproximationError
        If there is no maximum.
    """
    columns = layouts[0].columns
    program = tape_of(columns.expression, columns.n_predictors, 2)
    x = np.zeros(int(np.sum(layouts[0].elements >= 0)) + len(layouts[0].held.elements))
    given = layouts[0].prior
    x[layouts[0].elements[given.given]] = given.constants * parameters.features(theta)[given.numbers]
    fits = _begun(layouts, parameters, program, np.array(theta, dtype=np.float64), x)
    prior = layouts[0].prior
    is_at_once = not (len(prior.tails.coordinates) or len(prior.matched.coordinates) or len(fits) > 1)
    if parameters.precision >= 0 and is_at_once:
        _expand(fits[0], None)
        _require_told(fits[0])
        _maximise(fits[0])
        return _finished(fits, parameters.names)
    is_normal, n_whole = parameters.precision >= 0, 0
    # Where rows have numbers of the model as predictors, V tells little of theta far away: steps are short.
    has_numbers = len(prior.given) > 0
    for k in range(_MOST):
        moves, is_far = [], False
        for fit in fits:
            _expand(fit, None)
            if k == 0:  # further out rows may be flat where they tell enough
                _require_told(fit)
            moves.append(_center(fit, is_guarded=not is_normal))
            is_due = n_whole in (3, 5, 7) or (has_numbers and 3 <= n_whole < _LAST_ROUGH)
            if is_due and moves[-1].length == 1.0:
                _draw_held(fits, fit)
                before, zeta = fit.theta, fit.zeta
                _maximise(fit, search.ROUGHLY, most=1 if has_numbers else None)
                moves.append(_center(fit, is_guarded=not is_normal))
                fit.theta = before + moves[-1].length * (fit.theta - before)
                is_far |= has_numbers and _moved(fit, zeta, _NEAR_MODE) > 1.0
                _share(fits, fit.theta)
        n_whole += int(all(one.length == 1.0 for one in moves))
        if max(one.size for one in moves) < _NEAR_MODE and n_whole > 8 and not is_far:
            break
    else:
        raise NoNormalApproximationError(
            "The effects of a field have no mode that is found: rows may tell little of some, or separate "
            "responses perfectly. Give priors that say more."
        )
    for _ in range(_AVERAGED):
        covariances, step, moved = _covariances(fits), 0.0, 0.0
        for fit in fits:
            _expand(fit, None if is_normal else covariances)
            before = fit.zeta
            _draw_held(fits, fit)
            _maximise(fit, most=1 if has_numbers else None)
            step = max(step, _center(fit).size)
            moved = max(moved, _moved(fit, before, _NEAR))
            _share(fits, fit.theta)
        if step < _NEAR and moved < 1.0:
            break
    covariances = _covariances(fits)
    for fit in fits:
        _expand(fit, None if is_normal else covariances)
        fit.plan = fit.plan._replace(held=with_elements(fit.layout, fit.plan))
    for fit in fits:
        _draw_held(fits, fit)
        _maximise(fit, afresh=True)
        _share(fits, fit.theta)
    return _finished(fits, parameters.names)


def _moved(fit: FieldFit, before: Vector, near: float) -> float:
    """How far zeta has moved, in units of `near` posterior deviations."""
    if fit.covariance is None:
        return 0.0
    return float((np.abs(fit.zeta - before) / (near * np.sqrt(np.diag(fit.covariance)) + 1e-4)).max())


def _begun(
    layouts: tuple[Layout, ...], parameters: Parameters, program: Tape, theta: Vector, x: Vector
) -> tuple[FieldFit, ...]:
    """Fits that share a center."""
    return tuple(
        FieldFit(
            layout, parameters.features, parameters.log_prior, theta, x,
            _empty(layout, program, parameters.precision, is_bound=is_bound), parameters.unit, which, units,
        )
        for layout, which, units, is_bound in zip(
            layouts, parameters.which, parameters.units, parameters.is_bound, strict=True
        )
    )  # fmt: skip


def _share(fits: tuple[FieldFit, ...], theta: Vector) -> None:
    """Tell all turns theta that one has found."""
    for fit in fits:
        fit.theta = theta


def fit_again(
    layouts: tuple[Layout, ...], parameters: Parameters, fitted: tuple[FittedField, ...]
) -> tuple[FieldFit, ...]:
    """What another process has fitted, in one pass over the rows."""
    columns = layouts[0].columns
    program = tape_of(columns.expression, columns.n_predictors, 2)
    fits = _begun(layouts, parameters, program, fitted[0].theta, fitted[0].center)
    for fit, found in zip(fits, fitted, strict=True):
        _write_taylor(fit)
        own = found._asdict()
        sums = fit.plan.sums._replace(center=fit.x, **{name: own[name] for name in found._fields[4:]})
        fit.plan = fit.plan._replace(sums=sums, law=found.law)
        fit.plan.room.precisions[:] = found.precisions
        fit.plan = fit.plan._replace(held=with_elements(fit.layout, fit.plan))
        _begin_turn(fit)
    return fits


def with_scale(
    layouts: tuple[Layout, ...], features: Callable[[Vector], Vector], theta: Vector, precision: int
) -> tuple[tuple[Layout, ...], float]:
    """The layouts with the free scale of normal rows at a number, and the precision there.

    Raises
    ------
    NoField
        If the curvature of rows is not the precision.
    """
    own = layouts[0]
    assert own.scale is not None
    number, factor, offset = own.scale
    powers = by_powers(own.columns.expression)
    assert powers is not None
    for at in (theta + _SHIFT, theta):
        found = features(at)
        unit, scale = math.exp(found[precision]), factor * found[number] + offset
        if not np.isclose(-2.0 * float(evaluate(powers[2], {1: scale}, {})), unit, rtol=1e-8, atol=0.0):
            raise NoField("the free scale of normal rows is not their standard deviation")
    expression = _with_number(own.columns.expression, scale)
    return tuple(replace(one, columns=one.columns._replace(expression=expression)) for one in layouts), unit


def _with_number(expression: Expression, number: float) -> Expression:
    """Rows with a number in the place of predictor 1."""
    value = constant(number)
    return rebuilt(expression, lambda one: value if one.op == "predictor" and one.value == 1 else None)


def _empty(layout: Layout, program: Tape, precision: int, *, is_bound: bool) -> FieldArrays:
    """A plan without bounds or proposals."""
    tree, n_x = layout.tree, len(layout.elements)
    n_h, n_v, n_matched = len(layout.first), len(tree.first), len(layout.prior.matched.coordinates)
    tables, p, n_rows = layout.columns.tables, layout.columns.n_predictors, layout.n_rows
    rows = FieldRows(
        layout.design, tables.zeros(n_rows, p), tables.zeros(n_rows, p),
        tables.zeros(n_rows, p * (p + 1) // 2), layout.columns.data, program,
    )  # fmt: skip
    sums = Sums(
        np.zeros(n_x), np.zeros(n_h), np.zeros(n_x), np.zeros(n_h), np.zeros(n_x),
        layout.first.astype(np.int32), layout.second.astype(np.int32), layout.of_pairs.astype(np.int32),
        layout.of_elements.astype(np.int32), 0.0, 0.0, precision, np.zeros(n_matched), np.zeros(n_matched),
    )  # fmt: skip
    none, nothing, n_cells = np.zeros(1, np.int64), np.zeros(0), len(layout.of_cells)
    empty = none[:0]
    loose = Loose(empty, none, empty, nothing, empty, np.zeros((n_rows, 0), np.int32), np.zeros((n_rows, 0)))
    apart = np.ones(n_cells, np.int64)
    cubic = Cubic(
        np.zeros(n_cells + 1, np.int64), apart, apart, nothing, np.full(n_x, -1), empty,
        np.zeros((0, 1)), np.zeros((p, p, p), np.int64), nothing,
    )  # fmt: skip
    bounds = Bounds(
        none, empty, none, nothing, empty, empty, empty, empty, loose, nothing, layout.cells, layout.of_cells,
        np.zeros((n_cells, 0), np.int64), np.zeros((0, 0)), np.zeros((n_cells, 1)), cubic,
        nothing, np.zeros((0, 0, 1)), np.zeros((0, n_cells, 0)), 0.0, np.zeros(n_cells, np.int64),
    )  # fmt: skip
    room, unknown = room_for(layout, program, 0, 0), Schedule(1, np.ones(1, np.int64), np.ones(1), 0.0)
    return FieldArrays(
        layout.order, tree, rows, sums, layout.prior, _empty_held(layout, is_bound=is_bound), bounds,
        no_law(), np.ones(n_v), unknown, True, precision < 0, False, np.zeros(1, np.int64), room,
    )  # fmt: skip


def _empty_held(layout: Layout, *, is_bound: bool) -> Held:
    """What is held, at a center of zero and without sums or bounds."""
    own = layout.held
    n, nothing, none = len(own.elements), np.zeros(0), np.zeros(0, np.int64)
    return Held(
        own.coordinates, Elements(*own.map), np.zeros(n), own.columns, own.values, own.of_columns,
        none, none, nothing, none, none, nothing, nothing, own.starts, is_bound,
        np.zeros(n), np.zeros((2, len(own.map.rows))), np.zeros((2, len(own.coordinates))),
    )  # fmt: skip


def room_for(layout: Layout, program: Tape, n_levels: int, n_blocks: int) -> Room:
    """Room for two states."""
    tree, n_x = layout.tree, len(layout.elements)
    n, n_v = len(tree.node_of), len(tree.first)
    return Room(
        np.zeros((2, tree.fronts[-1])), np.zeros((2, n)), np.zeros((2, n)), np.zeros((2, n)),
        np.zeros((2, n_x)), np.zeros((2, n_levels)), np.zeros((2, len(layout.prior.map.rows))), np.ones(n),
        np.zeros((2, len(layout.prior.pulls.columns))), np.zeros((2, n)), np.zeros((3, n_blocks)),
        np.zeros(n_v, np.int64), np.zeros(n_v), np.zeros(n_v, np.bool_),
        np.zeros((2, int(tree.depth.max(initial=0)) + 1)), np.zeros(n_v),
        np.zeros((2, len(layout.of_cells))), np.zeros((3, len(layout.of_cells))),
        np.zeros(len(layout.of_cells), np.int64),
        np.zeros((layout.columns.n_predictors, BLOCK)),
        np.zeros((len(layout.columns.data), BLOCK)), points_for(program), np.zeros(n_x), np.zeros(1),
        np.zeros(0), np.full(2, -1.0),
    )  # fmt: skip


def _write_taylor(fit: FieldFit) -> None:
    """Predictors, slopes and curvatures of all rows at fit.x."""
    rows, n = fit.plan.rows, fit.layout.n_rows
    work.spend(_OF_ROW * n, "The fit of a field")
    of_held = fit.everywhere[fit.layout.held.elements]
    for part in parts(n):
        rows.predictors[part] = predictors_at(fit.layout, part, fit.x, of_held)
        slopes, weights = _slopes_and_weights(fit, part)
        rows.slopes[part], rows.weights[part] = slopes / fit.unit, weights / fit.unit
        if not (np.isfinite(rows.slopes[part]).all() and np.isfinite(rows.weights[part]).all()):
            raise NoNormalApproximationError("Some rows of a field have no finite derivatives near its mode.")


def _slopes_and_weights(
    fit: FieldFit, part: slice, covariances: Matrix | None = None, some: Index | None = None
) -> tuple[Matrix, Matrix]:
    """Slopes and curvatures of a part of the rows at their predictors, or averages with `covariances`."""
    rows = fit.plan.rows
    own = None if covariances is None else covariances[fit.layout.read(part)]
    found = derivatives_of(rows, part, rows.predictors[part], 2, own, some)
    return slopes_and_weights(found, rows.predictors.shape[1])


def _expand(fit: FieldFit, covariances: Matrix | None) -> None:
    """Expand about fit.x: H and g of averages, and what Taylor's differ by.

    `covariances` are those of all rows as they were read.
    """
    layout, n_h = fit.layout, len(fit.layout.first)
    _write_taylor(fit)
    rows = fit.plan.rows
    some = np.zeros(0, np.int64) if covariances is None else varying(covariances)

    def sums(covariances: Matrix | None, *, are_downwards: bool = False) -> tuple[Vector, Vector]:
        """Sums of products over all rows."""
        gradient, hessian = np.zeros(len(fit.x)), np.zeros(n_h)
        for part in parts(layout.n_rows):
            slopes, weights = rows.slopes[part], rows.weights[part]
            if covariances is not None:
                slopes, weights = _slopes_and_weights(fit, part, covariances, some)
            if are_downwards:
                weights = not_upwards(weights)
            add_products(layout, part, part_of(layout.design, part), slopes, weights, gradient, hessian)
        return gradient, hessian

    taylor_gradient, taylor = gradient, hessian = sums(None)
    if covariances is not None:
        n_nodes = len(nodes_of(max(len(some), 1))[1])
        work.spend(_OF_ROW * layout.n_rows * n_nodes, "The fit of a field")
        gradient, hessian = sums(covariances)
    _take(fit, gradient, hessian, taylor_gradient, taylor)
    found = log_marginal(fit.plan.quadratic, fit.features(fit.theta), 0)
    if not np.isfinite(found):  # far out some rows curve upwards
        _take(fit, *sums(covariances, are_downwards=True), taylor_gradient, taylor)


def _take(fit: FieldFit, gradient: Vector, hessian: Vector, taylor_gradient: Vector, taylor: Vector) -> None:
    sums = fit.plan.sums
    squares, n_normal = 0.0, 0.0
    if sums.precision >= 0:
        slopes = fit.plan.rows.slopes
        squares = sum(float((slopes[part] ** 2).sum()) for part in parts(len(slopes)))
        squares += float(2.0 * gradient @ fit.x + fit.x @ product(sums, hessian, fit.x))
        n_normal = float(len(slopes))
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
    _begin_turn(fit)


def _begin_turn(fit: FieldFit) -> None:
    """Hold what the turn does not move at the center."""
    plan, layout = fit.plan, fit.layout
    center = fit.everywhere[layout.held.elements]
    fit.plan = plan._replace(held=plan.held._replace(center=center))
    plan.room.right[:], plan.room.squares[0] = plan.sums.right, plan.sums.squares
    held = fit.plan.held
    held.d[:] = 0.0


def draws_of_held(fits: tuple[FieldFit, ...], fit: FieldFit, n: int) -> Matrix:
    """Draws of x of what a turn holds, less the center (n, n_held)."""
    features, held = fit.features(fit.theta), fit.layout.held.elements
    if not len(held):
        return np.zeros((0, 0))
    rng, draws = np.random.default_rng(_SEED), np.zeros((n, len(fit.everywhere)))
    for one in fits:
        if one is fit:
            continue
        room, own, plan = one.plan.room, one.layout.elements, one.plan.quadratic
        log_marginal(plan, features, 0)
        for draw in draws:
            room.eps[0] = rng.standard_normal(room.eps.shape[1])
            write_state(plan, features, 0)
            draw[own[own >= 0]] += room.d[0][own >= 0]
    return draws[:, held]


def _draw_held(fits: tuple[FieldFit, ...], fit: FieldFit) -> None:
    """Keep draws of what a turn holds for log p^."""
    if len(fits) == 1:
        return
    held = fit.plan.held
    draws, features = draws_of_held(fits, fit, _DRAWS), fit.features(fit.theta)
    z, rights, squares = _NO_DRAWS
    if held.is_bound:
        write_elements(held.map, features, held.elements[0])
        n = len(held.coordinates)
        matrix = sparse.csc_array(matrix_of(fit.layout.held.map, features, (n, n)))
        with np.errstate(all="ignore"):
            z = np.reshape(linalg.spsolve(matrix, (draws + held.center).T), (n, -1)).T
        if not np.isfinite(z).all():
            raise NoNormalApproximationError(
                "Effects of a field that are moved in turns have no own coordinates."
            )
    if len(held.first):
        rights, squares = np.empty((_DRAWS, len(fit.layout.elements))), np.empty(_DRAWS)
        for k, draw in enumerate(draws):
            held.d[:] = draw
            write_right(held, fit.plan.sums, fit.plan.room)
            rights[k], squares[k] = fit.plan.room.right, fit.plan.room.squares[0]
        held.d[:] = 0.0
        write_right(held, fit.plan.sums, fit.plan.room)
    fit.draws = HeldDraws(z, rights, squares)


class _Move(NamedTuple):
    """A move of the center."""

    size: float  # How far the mean is, in posterior standard deviations of the whole
    length: float  # The share of that which was gone


def _center(fit: FieldFit, *, is_guarded: bool = False) -> _Move:
    """Move x to its mean given theta; with a guard less far where the likelihood is not nearly V."""
    plan, room = fit.plan.quadratic, fit.plan.room
    features = fit.features(fit.theta)
    if not np.isfinite(log_marginal(plan, features, 0)):
        raise search.without_maximum(fit.layout.maps.coordinates)
    room.eps[0] = 0.0
    write_state(plan, features, 0)
    d, own = room.d[0], fit.layout.elements
    size = float(np.sqrt(max(d @ product(plan.sums, plan.sums.hessian, d), 0.0)))
    length = _length(fit, d) if is_guarded else 1.0
    fit.everywhere[own[own >= 0]] = (plan.sums.center + length * d)[own >= 0]
    return _Move(size, length)


def _length(fit: FieldFit, d: Vector) -> float:
    """The share of a move after which the likelihood has gained half of what V promises, or nearly that."""
    rows, layout = fit.plan.rows, fit.layout
    of_held = fit.everywhere[layout.held.elements]

    def moved(part: slice) -> tuple[Matrix, Matrix]:
        """Predictors of a part of the rows, and their changes."""
        eta = rows.predictors[part]
        return eta, predictors_at(layout, part, fit.x + d, of_held) - eta

    slope = quadratic = before = 0.0
    for part in parts(layout.n_rows):
        eta, changes = moved(part)
        slope += float((rows.slopes[part] * changes).sum())
        quadratic += float(quadratic_of(rows, part, changes).sum())
        before += float(derivatives_of(rows, part, eta, 0).sum())
    curvature, length = 2.0 * (slope - quadratic), 1.0
    while length > 1e-9:
        work.spend(_OF_ROW * layout.n_rows, "The fit of a field")
        promised, gained = float(length * slope - 0.5 * length**2 * curvature), -before
        for part in parts(layout.n_rows):
            eta, changes = moved(part)
            with np.errstate(over="ignore", invalid="ignore"):
                gained += float(derivatives_of(rows, part, eta + length * changes, 0).sum())
        if gained >= promised - max(0.5 * abs(promised), 1.0):
            break
        length /= 2.0
    return length


def _covariances(fits: tuple[FieldFit, ...]) -> Matrix:
    """A_i C P^-1 C' A_i' of all rows at theta, as they were read; what all turns move counts once.

    Of each the lower triangle (N, p (p + 1) / 2).
    """
    columns, p = fits[0].layout.columns, fits[0].layout.columns.n_predictors
    total = columns.tables.zeros(max(fit.layout.n_read for fit in fits), p * (p + 1) // 2)
    has_dense = False
    for fit in fits:
        plan, layout = fit.plan, fit.layout
        log_marginal(plan.quadratic, fit.features(fit.theta), 0)
        inverse = np.zeros(layout.tree.fronts[-1])
        selected_inverse(layout.tree, plan.room.fronts[0], inverse)
        _expect_of_priors(fit, inverse)
        covariance = np.empty(len(plan.sums.first))
        write_covariances(plan.prior, plan.sums, plan.room.elements[0], inverse, covariance)
        for part in parts(layout.n_rows):
            design = part_of(layout.design, part)
            if has_dense:
                design = design._replace(dense=np.zeros_like(design.dense))
            total[layout.read(part)] += variances_of(layout, part, design, covariance)
        has_dense = has_dense or layout.design.n_dense > 0
    return total


def _expect_of_priors(fit: FieldFit, inverse: Vector) -> None:
    """Average over effects that are not normal, given their means and variances."""
    tails, matched, room = fit.plan.prior.tails, fit.plan.prior.matched, fit.plan.room
    features, tree = fit.features(fit.theta), fit.layout.tree
    room.eps[0] = 0.0
    write_state(fit.plan.quadratic, features, 0)

    def moments(own: Index) -> tuple[Vector, Vector]:
        """Means and variances of some coordinates."""
        places = np.empty(len(own), np.int64)
        write_positions(tree, own, own, places)
        return room.z[0, own], inverse[places]

    if len(tails.coordinates):
        found = expected_precisions(tails, features, *moments(tails.coordinates))
        room.precisions[tails.coordinates], fit.log_precisions = found
    if len(matched.coordinates):
        fit.places, right, hessian = averaged(matched, features, *moments(matched.coordinates))
        sums = fit.plan.sums._replace(matched_right=right, matched_hessian=hessian)
        fit.plan = fit.plan._replace(sums=sums)


def _maximise(
    fit: FieldFit, near: float = search.EXACTLY, *, afresh: bool = False, most: int | None = None
) -> None:
    """Move theta to the maximum of log p^, as far as the turn moves it, or `near` so many deviations of it.

    `afresh` asks for second derivatives of the present expansion, `most` bounds Newton steps.
    """
    if len(fit.which):
        known = None if afresh or fit.is_stale else fit.covariance
        zeta, fit.covariance, is_good = search.maximum(fit.at_zeta, fit.zeta, known, near, most)
        fit.is_stale = most is not None and not is_good
        fit.theta = fit.theta_of(zeta)


def _require_told(fit: FieldFit) -> None:
    """Refuse effects without a proper prior of which rows tell nothing."""
    flat = search.without_prior(fit.layout.maps.coordinates)
    if not flat:
        return
    plan, tree, features = fit.plan, fit.layout.tree, fit.features(fit.theta)
    log_marginal(plan.quadratic, features, 0)
    front, elements = np.empty(tree.fronts[-1]), plan.room.elements[0]
    write_precision(plan.sums, plan.prior, features, elements, plan.room.precisions, front)
    own, places = np.arange(len(tree.node_of)), np.empty(len(tree.node_of), np.int64)
    write_positions(tree, own, own, places)
    factorise(tree, front, _UNTOLD * front[places] + 1e-300)
    untold = fit.layout.order[front[places] == 0.0]
    for one in flat:
        if np.any((untold >= one.first) & (untold < one.first + one.size)):
            raise NoNormalApproximationError(
                f"{one.innovation.variable!r} has no proper prior, and the rows do not tell it from other "
                "variables. Give it a prior."
            )


def _finished(fits: tuple[FieldFit, ...], names: tuple[str, ...]) -> tuple[FieldFit, ...]:
    for fit in fits:
        law, own = no_law(), [names[k] for k in fit.which]
        search.require_curvature(fit.at_zeta, fit.zeta, own)
        if fit.covariance is not None:
            law = law_of(fit.at_zeta, fit.zeta, fit.covariance, fit.which, fit.units, own)
        fit.plan = fit.plan._replace(law=law)
        _begin_turn(fit)
    return fits
