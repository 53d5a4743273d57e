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
from pymc_austerity.bounds.jets.points import BLOCK, points_for
from pymc_austerity.bounds.jets.tape import Tape, tape_of
from pymc_austerity.exceptions import NoNormalApproximationError
from pymc_austerity.kernels.fields.records import (
    Bounds,
    Cubic,
    FieldArrays,
    FieldRows,
    Law,
    Loose,
    Room,
    Schedule,
    Sums,
)
from pymc_austerity.mode.fields import compiled
from pymc_austerity.mode.fields import law as laws
from pymc_austerity.mode.fields.layout import Layout
from pymc_austerity.mode.fields.maps import Entries, matrix_of
from pymc_austerity.mode.fields.not_normal import averaged, expected_precisions, mean_excess, mean_log_prior
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
    with_elements,
)
from pymc_austerity.mode.fields.prior import places_of, write_covariances
from pymc_austerity.mode.fields.rows import with_fixed
from pymc_austerity.mode.row_tables import parts
from pymc_austerity.model.field.priors import NoField
from pymc_austerity.model.structure.affine_expressions import by_powers
from pymc_austerity.target import Index, Matrix, Vector

# Passes at most, and when they end, in posterior standard deviations; below which move theta follows, and for
# how many whole moves, or with short steps.
_MOST, _NEAR = 60, 0.02
_AVERAGED, _NEAR_MODE, _SETTLED = 12, 0.5, 1.0
_LAST_ROUGH, _LAST_SHORT = 8, 30
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
    sums: Sums


class Parameters(NamedTuple):
    """Theta of a field."""

    names: tuple[str, ...]  # The variable of each element
    features: Callable[[Vector], Vector]
    log_prior: Callable[[Vector], float]
    precision: int  # Which feature the logarithm of the precision of normal rows is; -1 for other rows
    unit: float  # The precision of normal rows that the layout has; 1 for others


class HeldDraws(NamedTuple):
    """What a turn holds, in some draws: with its mean alone the rows would seem to be explained better."""

    z: Matrix  # (k, m): coordinates, where theta has a part in their prior; else (0, 0)
    rights: Matrix  # (k, n_x): g + H x* less what held effects take
    squares: Vector  # (k,): residual sums of normal rows


_NO_DRAWS = HeldDraws(np.zeros((0, 0)), np.zeros((0, 0)), np.zeros(0))


@dataclass(eq=False)
class FieldFit:
    """What passes over the rows have found for a turn; `theta` is the maximum of log p^.

    All turns share `theta` and `everywhere`, to which each writes what it moves.
    """

    layout: Layout
    parameters: Parameters
    theta: Vector
    everywhere: Vector  # The center of all elements of rows
    plan: FieldArrays
    covariance: Matrix | None = None  # Of zeta
    is_stale: bool = False  # Whether that is of another place
    left: Vector | None = None  # Zeta as the turn left it
    log_precisions: Vector | None = None  # Expected logarithms of the precisions of heavy-tailed effects
    places: Matrix | None = None  # Of effects that are normal only nearly: where their excess is averaged
    draws: HeldDraws = _NO_DRAWS

    @property
    def x(self) -> Vector:
        """The center of what the turn moves."""
        own = self.layout.elements
        return np.where(own >= 0, self.everywhere[own], 0.0)

    @property
    def features(self) -> Vector:
        """Features at theta."""
        return self.parameters.features(self.theta)

    @property
    def fitted(self) -> FittedField:
        """What `fit_again` needs."""
        plan = self.plan
        return FittedField(self.theta, plan.law, self.everywhere, plan.room.precisions, plan.sums)

    def at_zeta(self, zeta: Vector) -> float:
        """Log p^ of zeta, with the determinant of theta by zeta."""
        theta, units = self.theta_of(zeta), self.layout.units
        return self.log_density(theta) + float(theta[self.layout.which][units[units >= 0]].sum())

    def theta_of(self, zeta: Vector) -> Vector:
        """All of theta, with zeta of what the turn moves."""
        theta = self.theta.copy()
        theta[self.layout.which] = zeta * np.exp(self._in_units(zeta))
        return theta

    @property
    def zeta(self) -> Vector:
        """Zeta of the present theta, of what the turn moves."""
        own = self.theta[self.layout.which]
        return own * np.exp(-self._in_units(own))

    def _in_units(self, values: Vector) -> Vector:
        """Logarithms of the units of what the turn moves, which are among the values."""
        units = self.layout.units
        return np.where(units >= 0, values[np.maximum(units, 0)], 0.0)

    def log_density(self, theta: Vector) -> float:
        """Log p^(theta); minus infinity where it is no number."""
        value = self.parameters.log_prior(theta)
        if not np.isfinite(value):
            return -np.inf
        work.spend(_OF_FILL * self.layout.tree.fronts[-1], "The fit of a field")
        features, plan, draws = self.parameters.features(theta), self.plan, self.draws
        held = self.plan.held
        if len(draws.rights):
            value += compiled.mean_log_marginal(plan, features, draws.rights, draws.squares)
        else:
            value += compiled.log_marginal(plan, features, 0)
        for z in draws.z:
            held.z[0] = z
            value += compiled.held_log_density(held, features) / len(draws.z)
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
    x, prior = np.zeros(len(layouts[0].columns.elements)), layouts[0].prior
    x[layouts[0].elements[prior.given]] = prior.constants * parameters.features(theta)[prior.numbers]
    fits = _begun(layouts, parameters, theta, x)
    is_at_once = not (len(prior.tails.coordinates) or len(prior.matched.coordinates) or len(fits) > 1)
    if parameters.precision >= 0 and is_at_once:
        _expand(fits[0], None)
        _require_told(fits[0])
        _maximise(fits[0])
        return _finished(fits)
    is_normal, n_whole = parameters.precision >= 0, 0
    # Where rows have numbers of the model as predictors, V tells little of theta far away: steps are short.
    has_numbers = len(prior.given) > 0
    last = _LAST_SHORT if has_numbers else _LAST_ROUGH
    for k in range(_MOST):
        moves, is_near = [], True
        for fit in fits:
            _expand(fit, None)
            if k == 0:  # further out rows may be flat where they tell enough
                _require_told(fit)
            moves.append(_center(fit, is_guarded=not is_normal))
            is_due = n_whole >= 3 if has_numbers else moves[-1].size < _SETTLED or n_whole in (3, 5, 7)
            if is_due and n_whole < last and moves[-1].length == 1.0:
                _draw_held(fits, fit)
                before = fit.theta.copy()
                _maximise(fit, laws.ROUGHLY, most=1 if has_numbers else None)
                moves.append(_center(fit, is_guarded=not is_normal))
                fit.theta[:] = before + moves[-1].length * (fit.theta - before)
                is_near &= _moved(fit, _NEAR_MODE) <= 1.0
            else:
                is_near &= n_whole >= last
        n_whole += int(all(one.length == 1.0 for one in moves))
        if max(one.size for one in moves) < _NEAR_MODE and is_near:
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
            _draw_held(fits, fit)
            _maximise(fit, most=1 if has_numbers else None)
            step = max(step, _center(fit).size)
            moved = max(moved, _moved(fit, _NEAR))
        if step < _NEAR and moved < 1.0:
            break
    covariances = _covariances(fits)
    for fit in fits:
        _expand(fit, None if is_normal else covariances)
        fit.plan = fit.plan._replace(held=with_elements(fit.layout, fit.plan))
    for fit in fits:
        _draw_held(fits, fit)
        _maximise(fit, afresh=True)
    return _finished(fits)


def _moved(fit: FieldFit, near: float) -> float:
    """How far zeta is from where the turn left it before, in units of `near` posterior deviations."""
    before, fit.left = fit.left, fit.zeta
    if fit.covariance is None:
        return 0.0
    if before is None:
        return math.inf
    return float((np.abs(fit.left - before) / (near * np.sqrt(np.diag(fit.covariance)) + 1e-4)).max())


def _begun(
    layouts: tuple[Layout, ...], parameters: Parameters, theta: Vector, x: Vector
) -> tuple[FieldFit, ...]:
    """Fits that share theta and a center, where they begin."""
    columns, theta, x = layouts[0].columns, np.array(theta, dtype=np.float64), x.copy()
    program = tape_of(columns.expression, columns.n_predictors, 2)
    return tuple(
        FieldFit(one, parameters, theta, x, _empty(one, program, parameters.precision)) for one in layouts
    )


def fit_again(
    layouts: tuple[Layout, ...], parameters: Parameters, fitted: tuple[FittedField, ...]
) -> tuple[FieldFit, ...]:
    """What another process has fitted, in one pass over the rows."""
    fits = _begun(layouts, parameters, fitted[0].theta, fitted[0].center)
    for fit, found in zip(fits, fitted, strict=True):
        _write_taylor(fit)
        fit.plan = fit.plan._replace(sums=found.sums, law=found.law)
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
    assert own.columns.scale is not None
    element, factor, offset = own.columns.scale
    given = own.maps.given
    (at,) = np.flatnonzero(given.elements == element)
    number, factor = int(given.numbers[at]), float(given.constants[at]) * factor
    powers = by_powers(own.columns.expression)
    assert powers is not None
    for place in (theta + _SHIFT, theta):
        found = features(place)
        unit, scale = math.exp(found[precision]), factor * found[number] + offset
        if not np.isclose(-2.0 * float(evaluate(powers[2], {1: scale}, {})), unit, rtol=1e-8, atol=0.0):
            raise NoField("the free scale of normal rows is not their standard deviation")
    expression = with_fixed(own.columns.expression, {1: (-1, 0.0, scale)}, [0])
    return tuple(replace(one, columns=one.columns._replace(expression=expression)) for one in layouts), unit


def _empty(layout: Layout, program: Tape, precision: int) -> FieldArrays:
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
        layout.order, tree, rows, sums, layout.prior, layout.held.with_room(), bounds,
        laws.no_law(), np.ones(n_v), unknown, True, precision < 0, False, np.zeros(1, np.int64), room,
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
    rows, n, unit = fit.plan.rows, fit.layout.n_rows, fit.parameters.unit
    work.spend(_OF_ROW * n, "The fit of a field")
    of_held = fit.everywhere[fit.layout.held_elements]
    for part in parts(n):
        rows.predictors[part] = predictors_at(fit.layout, part, fit.x, of_held)
        slopes, weights = _slopes_and_weights(fit, part)
        rows.slopes[part], rows.weights[part] = slopes / unit, weights / unit
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
    _write_taylor(fit)
    taylor = _sums(fit)
    found = taylor if covariances is None else _sums(fit, covariances)
    _take(fit, found, taylor)
    height = compiled.log_marginal(fit.plan, fit.features, 0)
    if not np.isfinite(height):  # far out some rows curve upwards
        _take(fit, _sums(fit, covariances, are_downwards=True), taylor)


def _sums(
    fit: FieldFit, covariances: Matrix | None = None, *, are_downwards: bool = False
) -> tuple[Vector, Vector]:
    """Sums of A_i' f_i' and of A_i' W_i A_i over all rows: Taylor's, or averages with `covariances`."""
    layout, rows, some = fit.layout, fit.plan.rows, None
    gradient, hessian = np.zeros(len(fit.x)), np.zeros(len(layout.first))
    if covariances is not None:
        some = varying(covariances)
        n_nodes = len(nodes_of(max(len(some), 1))[1])
        work.spend(_OF_ROW * layout.n_rows * n_nodes, "The fit of a field")
    for part in parts(layout.n_rows):
        slopes, weights = rows.slopes[part], rows.weights[part]
        if covariances is not None:
            slopes, weights = _slopes_and_weights(fit, part, covariances, some)
        if are_downwards:
            weights = not_upwards(weights)
        add_products(layout, part, part_of(layout.design, part), slopes, weights, gradient, hessian)
    return gradient, hessian


def _take(fit: FieldFit, found: tuple[Vector, Vector], taylor: tuple[Vector, Vector]) -> None:
    """Take over an expansion, and what Taylor's differs by."""
    sums, (gradient, hessian) = fit.plan.sums, found
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
            hessian_change=taylor[1] - hessian,
            gradient_change=taylor[0] - gradient,
            n_normal=n_normal,
            squares=squares,
        )
    )
    _begin_turn(fit)


def _begin_turn(fit: FieldFit) -> None:
    """Hold what the turn does not move at the center."""
    plan = fit.plan
    fit.plan = plan._replace(held=plan.held._replace(center=fit.everywhere[fit.layout.held_elements]))
    plan.room.right[:], plan.room.squares[0], plan.held.d[:] = plan.sums.right, plan.sums.squares, 0.0


def draws_of_held(fits: tuple[FieldFit, ...], fit: FieldFit, n: int) -> Matrix:
    """Draws of x of what a turn holds, less the center (n, n_held)."""
    features, held = fit.features, fit.layout.held_elements
    if not len(held):
        return np.zeros((0, 0))
    rng, draws = np.random.default_rng(_SEED), np.zeros((n, len(fit.everywhere)))
    for one in fits:
        if one is fit:
            continue
        room, own, plan = one.plan.room, one.layout.elements, one.plan
        compiled.log_marginal(plan, features, 0)
        for draw in draws:
            room.eps[0] = rng.standard_normal(room.eps.shape[1])
            compiled.write_state(plan, features, 0)
            draw[own[own >= 0]] += room.d[0][own >= 0]
    return draws[:, held]


def _draw_held(fits: tuple[FieldFit, ...], fit: FieldFit) -> None:
    """Keep draws of what a turn holds for log p^."""
    if len(fits) == 1:
        return
    held = fit.plan.held
    draws, features = draws_of_held(fits, fit, _DRAWS), fit.features
    z, rights, squares = _NO_DRAWS
    if held.is_bound:
        compiled.write_elements(held.map, features, held.elements[0])
        n = len(held.coordinates)
        matrix = sparse.csc_array(matrix_of(Entries(*held.map), features, (n, n)))
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
            compiled.write_right(held, fit.plan.sums, fit.plan.room)
            rights[k], squares[k] = fit.plan.room.right, fit.plan.room.squares[0]
        held.d[:] = 0.0
        compiled.write_right(held, fit.plan.sums, fit.plan.room)
    fit.draws = HeldDraws(z, rights, squares)


class _Move(NamedTuple):
    """A move of the center."""

    size: float  # How far the mean is, in posterior standard deviations of the whole
    length: float  # The share of that which was gone


def _center(fit: FieldFit, *, is_guarded: bool = False) -> _Move:
    """Move x to its mean given theta; with a guard less far where the likelihood is not nearly V."""
    plan, room = fit.plan, fit.plan.room
    features = fit.features
    if not np.isfinite(compiled.log_marginal(plan, features, 0)):
        raise laws.without_maximum(fit.layout.maps.coordinates)
    room.eps[0] = 0.0
    compiled.write_state(plan, features, 0)
    d, own = room.d[0], fit.layout.elements
    size = float(np.sqrt(max(d @ product(plan.sums, plan.sums.hessian, d), 0.0)))
    length = _length(fit, d) if is_guarded else 1.0
    fit.everywhere[own[own >= 0]] = (plan.sums.center + length * d)[own >= 0]
    return _Move(size, length)


def _length(fit: FieldFit, d: Vector) -> float:
    """The share of a move after which the likelihood has gained half of what V promises, or nearly that."""
    rows, layout = fit.plan.rows, fit.layout
    of_held = fit.everywhere[layout.held_elements]

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
        compiled.log_marginal(plan, fit.features, 0)
        inverse = np.zeros(layout.tree.fronts[-1])
        compiled.selected_inverse(layout.tree, plan.room.fronts[0], inverse)
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
    features, tree = fit.features, fit.layout.tree
    room.eps[0] = 0.0
    compiled.write_state(fit.plan, features, 0)

    def moments(own: Index) -> tuple[Vector, Vector]:
        """Means and variances of some coordinates."""
        return room.z[0, own], inverse[places_of(tree, own, own)]

    if len(tails.coordinates):
        found = expected_precisions(tails, features, *moments(tails.coordinates))
        room.precisions[tails.coordinates], fit.log_precisions = found
    if len(matched.coordinates):
        fit.places, right, hessian = averaged(matched, features, *moments(matched.coordinates))
        sums = fit.plan.sums._replace(matched_right=right, matched_hessian=hessian)
        fit.plan = fit.plan._replace(sums=sums)


def _maximise(
    fit: FieldFit, near: float = laws.EXACTLY, *, afresh: bool = False, most: int | None = None
) -> None:
    """Move theta to the maximum of log p^, as far as the turn moves it, or `near` so many deviations of it.

    `afresh` asks for second derivatives of the present expansion, `most` bounds Newton steps.
    """
    if len(fit.layout.which):
        known = None if afresh or fit.is_stale else fit.covariance
        zeta, fit.covariance, is_good = laws.maximum(fit.at_zeta, fit.zeta, known, near, most)
        fit.is_stale = most is not None and not is_good
        fit.theta[:] = fit.theta_of(zeta)


def _require_told(fit: FieldFit) -> None:
    """Refuse effects without a proper prior of which rows tell nothing."""
    flat = laws.without_prior(fit.layout.maps.coordinates)
    if not flat:
        return
    plan, tree, features = fit.plan, fit.layout.tree, fit.features
    compiled.log_marginal(plan, features, 0)
    front, elements = np.empty(tree.fronts[-1]), plan.room.elements[0]
    compiled.write_precision(plan.sums, plan.prior, features, elements, plan.room.precisions, front)
    own = np.arange(len(tree.node_of))
    places = places_of(tree, own, own)
    compiled.factorise(tree, front, _UNTOLD * front[places] + 1e-300)
    untold = fit.layout.order[front[places] == 0.0]
    for one in flat:
        if np.any((untold >= one.first) & (untold < one.first + one.size)):
            raise NoNormalApproximationError(
                f"{one.innovation.variable!r} has no proper prior, and the rows do not tell it from other "
                "variables. Give it a prior."
            )


def _finished(fits: tuple[FieldFit, ...]) -> tuple[FieldFit, ...]:
    """The fits with the law of theta."""
    for fit in fits:
        which, units = fit.layout.which, fit.layout.units
        law, own = laws.no_law(), [fit.parameters.names[k] for k in which]
        laws.require_curvature(fit.at_zeta, fit.zeta, own)
        if fit.covariance is not None:
            law = laws.law_of(fit.at_zeta, fit.zeta, fit.covariance, which, units, own)
        fit.plan = fit.plan._replace(law=law)
        _begin_turn(fit)
    return fits
