"""A field of a model that can be moved: its layout and its values."""

from dataclasses import dataclass, replace

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.transforms import CholeskyCovPacked
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.basic import NormalRV

from pymc_austerity.bounds.jets.tape import tape_of
from pymc_austerity.kernels.fields.records import Bounds, FieldArrays, Held, Schedule
from pymc_austerity.kernels.fields.tree import Tree
from pymc_austerity.mode.fields.bounds import DRAWS, field_bounds
from pymc_austerity.mode.fields.draws import centered
from pymc_austerity.mode.fields.fit import (
    FieldFit,
    FittedField,
    Parameters,
    draws_of_held,
    fit_again,
    fit_field,
    room_for,
    with_scale,
)
from pymc_austerity.mode.fields.layout import Layout, layouts_of
from pymc_austerity.mode.fields.values import FieldValues, values_of
from pymc_austerity.model.equal_rows import with_equal_rows_joined
from pymc_austerity.model.factorisation import Factorisation, vector_of
from pymc_austerity.model.field.find import Field, find_field, joined
from pymc_austerity.model.field.priors import NoField, Step
from pymc_austerity.model.graph.functions import function_of
from pymc_austerity.model.graph.log_density import LogDensityGraph
from pymc_austerity.model.graph.random_variables import in_values
from pymc_austerity.model.self_check import jittered
from pymc_austerity.target import Index, Mask, Vector

# Points at which the sign of a number is looked at: draws for each distance from zero.
_DISTANCES, _DRAWN, _SEED = (1.0, 10.0, 100.0), 20, 2022
# Standard deviations of proposals for eps of small nodes, which are skewed; others are drawn as they are.
_WIDE, _SMALL = 1.05, 4
# Rows that are drawn, beside what bounds need, for nodes between the root and the last ones, and for groups
# with these.
_INNER, _LAST = 2.0, 1.0
# Share of walks, before it is known that a chain needs few.
MANY_WALKS = 0.2


@dataclass(frozen=True, eq=False)
class FieldModel:
    """A field with its rows in order. It has size N."""

    factorisation: Factorisation  # Its block are numbers, then effects from the shortest vector on
    layouts: tuple[Layout, ...]  # Of each turn
    values: FieldValues
    parameters: Parameters

    @property
    def effects(self) -> tuple[str, ...]:
        """Names of the variables that are effects."""
        return tuple(one.innovation.variable for one in self.values.maps.coordinates)

    @property
    def n_effects(self) -> int:
        """Effects in all."""
        return self.values.maps.n_coordinates

    @property
    def n_nodes(self) -> int:
        """Nodes of all trees."""
        return sum(len(one.tree.first) for one in self.layouts)

    @property
    def is_normal(self) -> bool:
        """Whether sums are sufficient, so that no row is read."""
        return self.parameters.precision >= 0

    def fit(self) -> tuple[FieldFit, ...]:
        """Fit the field, for every turn."""
        shared = self.values.shared
        start = vector_of(shared, shared.graph.point) if shared.var_names else np.zeros(0)
        return fit_field(self.layouts, self.parameters, start)

    def center(self) -> Vector:
        """The vector of the block at the fitted theta, and at the mean of the effects given it."""
        fits = self.fit()
        arrays = self.arrays(fits, reads_all=True, debug=False)
        return self.values(fits[0].theta, centered(arrays, self.values.features(fits[0].theta)))

    def fit_again(self, fitted: tuple[FittedField, ...]) -> tuple[FieldFit, ...]:
        """What `fit` returns, from what another process has fitted."""
        return fit_again(self.layouts, self.parameters, fitted)

    def arrays(self, fits: tuple[FieldFit, ...], *, reads_all: bool, debug: bool) -> tuple[FieldArrays, ...]:
        """All that the kernel needs, by turns."""
        every = [fit.plan.bounds for fit in fits]
        if not (self.is_normal or reads_all):
            every = [field_bounds(fit, draws_of_held(fits, fit, DRAWS)) for fit in fits]
        return tuple(
            self._arrays(fit, bounds, reads_all=reads_all, debug=debug)
            for fit, bounds in zip(fits, every, strict=True)
        )

    def _arrays(self, fit: FieldFit, bounds: Bounds, *, reads_all: bool, debug: bool) -> FieldArrays:
        plan, tree = fit.plan, fit.layout.tree
        columns = fit.layout.columns
        program = tape_of(columns.expression, columns.n_predictors, 0)
        room = room_for(fit.layout, program, int(bounds.blocks[-1]), len(bounds.sizes))
        return plan._replace(
            bounds=bounds,
            rows=plan.rows._replace(program=program),
            room=room._replace(
                theta=np.zeros(len(fit.theta)),
                precisions=plan.room.precisions.copy(),
                right=plan.sums.right.copy(),
                squares=np.full(1, plan.sums.squares),
            ),
            widths=np.where(plan.has_remainders & (tree.size <= _SMALL), _WIDE, 1.0),
            schedule=schedule_of(tree, 1),
            reads_all=reads_all,
            debug=debug,
        )


def schedule_of(tree: Tree, n: int) -> Schedule:
    """A sweep that moves n depths of a tree together, from the last ones up."""
    last = int(tree.depth.max(initial=0))
    depths = np.append(np.sort(np.arange(last + 1 - n, 1 - n, -n)), last + 1)
    depths = np.maximum(depths, 1)
    kappas = np.full(len(depths), _INNER)
    kappas[-1] = _LAST
    return Schedule(1, depths, kappas, MANY_WALKS)


def field_model(
    model: pm.Model,
    fact: Factorisation,
    found: Field | None = None,
    *,
    is_tempered: bool = False,
    joins: bool = False,
    moves: bool = True,
) -> FieldModel:
    """The field of a model, which is found unless it was.

    Normal rows whose density is divided by a temperature are rows like others: their precision is not one.
    With `joins` equal rows are joined, but for normal ones whose sums are sufficient: of these none is read.
    If it `moves` large crossed factors do so in turns; else all effects have one tree, for their density.

    Raises
    ------
    NoField
        If there is none, or none that is moved: why.
    """
    found = find_field(model, fact) if found is None else found
    own = [table.innovation for table in found.tables if table.innovation is not None]
    sizes = {one.name: int(np.prod(one.value.type.shape)) for one in own}
    for table in found.tables:
        one = table.innovation
        every = [] if one is None else [*one.steps, *(step for step in table.steps if _is_number(step))]
        for step in every:
            if step.kind == "scale" and step.graph is not None and not _is_positive(fact.graph, step.graph):
                raise NoField(
                    f"{table.variable} is multiplied by a number that may be negative, so that there are two "
                    "modes: give that a positive prior"
                )
    names = sorted(fact.var_names, key=lambda name: sizes.get(name, 0))
    fact = replace(fact, var_names=tuple(names))
    names_of_rows = [one.term.name for one in found.likelihoods]
    precision = None
    if len(names_of_rows) == 1 and not is_tempered:
        precision = _normal_precision(model, fact, names_of_rows[0])
    if joins and precision is None:
        plain, found = found, joined(found)
        fact = fact if found is plain else with_equal_rows_joined(fact)
    why: NoField | None = None
    for layouts in layouts_of(found, fact.graph, is_normal=precision is not None, moves=moves):
        try:
            return _of_layouts(model, fact, found, layouts, precision)
        except NoField as reason:  # another order may do
            why = why or reason
    assert why is not None
    raise why


def _is_number(step: Step) -> bool:
    """Is it a product with one number?"""
    return step.graph is not None and int(np.prod(step.graph.type.shape)) == 1


def _is_positive(graph: LogDensityGraph, number: Variable) -> bool:
    """Is a number positive near the initial point, and nowhere negative, as far as one can see?

    A scale that may change its sign has two modes, and a density only for one of them.
    """
    function = function_of([*graph.values.values(), *graph.data], number)
    data = graph.data_values()
    near = (list(graph.point.values()), jittered(graph))
    rng = np.random.default_rng(_SEED)
    far = [
        [
            distance * rng.standard_normal(value.shape) if value.dtype.kind == "f" else value
            for value in near[0]
        ]
        for distance in _DISTANCES
        for _ in range(_DRAWN)
    ]
    with np.errstate(all="ignore"):
        return all(np.all(function(*values, *data) > 0.0) for values in near) and not any(
            np.any(function(*values, *data) < 0.0) for values in far
        )


def _normal_precision(model: pm.Model, fact: Factorisation, name: str) -> Variable | None:
    """Logarithm of the one precision of normal rows, a function of numbers; None for other likelihoods."""
    node = model[name].owner
    if node is None or not isinstance(node.op, NormalRV):
        return None
    _, scale = in_values(model, fact.graph, node.op.dist_params(node))
    if scale.type.ndim and int(np.prod([k or 0 for k in scale.type.shape])) != 1:
        return None
    return -2.0 * pt.log(scale.flatten()[0] if scale.type.ndim else scale)


def _of_layouts(
    model: pm.Model,
    fact: Factorisation,
    found: Field,
    layouts: tuple[Layout, ...],
    precision: Variable | None,
) -> FieldModel:
    """The field in these turns; `precision` is that of rows that may be normal."""
    if layouts[0].columns.scale is None:
        precision = None
    values, number = values_of(found, fact, layouts[0], precision)
    shared, unit = values.shared, 1.0
    if number >= 0:
        layouts, unit = with_scale(layouts, values.features, vector_of(shared, shared.graph.point), number)
    of_theta = range(len(vector_of(shared, shared.graph.point)) if shared.var_names else 0)
    variables = tuple(shared.graph.variables[shared.coordinate(k)[0]] for k in of_theta)
    parameters = Parameters(variables, values.features, values.log_prior, number, unit)
    return FieldModel(fact, _with_theta(layouts, shared, _units(model, shared)), values, parameters)


def _with_theta(layouts: tuple[Layout, ...], shared: Factorisation, units: Index) -> tuple[Layout, ...]:
    """The turns with the elements of theta that each moves, and whether these have a part in what it holds.

    A variable is moved in the turn that moves most of the effects it has a part in; one that has a part in
    none is moved in every turn.
    """
    names = shared.var_names
    sizes = [int(np.prod(shared.graph.values[name].type.shape)) for name in names]
    if len(layouts) == 1:
        return (replace(layouts[0], which=np.arange(sum(sizes)), units=units),)
    maps = layouts[0].maps
    has_part = np.zeros((len(maps.features.elements) + 1, len(names)), bool)
    for k, (graph, _) in enumerate(maps.features.elements):
        above = set(ancestors([graph]))
        has_part[k + 1] = [shared.graph.values[name] in above for name in names]
    parts = np.zeros((maps.n_coordinates, len(names)), bool)
    for entries in (maps.innovations, maps.precision, maps.elements):
        for column in entries.factors.T:
            np.logical_or.at(parts, entries.columns, has_part[column])
    for one in maps.coordinates:
        if one.tails is not None:  # degrees of freedom are moved where their effects are
            parts[one.first : one.first + one.size] |= has_part[one.tails[1]]
    counts = np.array([parts[one.order].sum(axis=0) for one in layouts])
    counts_of_held = np.array([parts[one.held.coordinates].sum(axis=0) for one in layouts])
    own, found, place = np.argmax(counts, axis=0), [], np.full(len(units) + 1, -1)
    for k, layout in enumerate(layouts):
        mine = (own == k) | (counts.sum(axis=0) == 0)
        which = np.flatnonzero(np.repeat(mine, sizes))
        place[:], place[which] = -1, np.arange(len(which))
        is_bound = bool(np.any(counts_of_held[k] * mine))
        is_plain = _has_square_blocks(layout.held) and _is_white(layout, parts[:, mine].any(axis=1))
        if is_bound and not is_plain:
            raise NoField("factors that have to be moved in turns share scales in a way that has no rule")
        held = layout.held._replace(is_bound=is_bound)
        found.append(replace(layout, which=which, units=place[units[which]], held=held))
    return tuple(found)


def _has_square_blocks(held: Held) -> bool:
    """Does every block of what a turn holds have as many coordinates as elements?"""
    counts = np.diff(held.starts)
    block, of_coordinates = np.repeat(np.arange(len(counts)), counts), np.zeros_like(held.coordinates)
    of_coordinates[held.map.columns] = block[held.map.rows]
    return bool(np.array_equal(np.bincount(of_coordinates, minlength=len(counts)), counts))


def _is_white(layout: Layout, some: Mask) -> bool:
    """Are those coordinates that a turn holds independent, with a variance of one?"""
    is_white, own = np.zeros(len(some), bool), layout.maps.precision
    is_one = (own.rows == own.columns) & (own.coefficients == 1.0) & ~own.factors.any(axis=1)
    is_white[own.rows[is_one]] = True
    is_white[own.rows[~is_one]] = is_white[own.columns[~is_one]] = False
    for one in layout.maps.coordinates:
        if one.tails is not None:
            is_white[one.first : one.first + one.size] = False
    held = layout.held.coordinates
    return bool(is_white[held[some[held]]].all())


def _units(model: pm.Model, shared: Factorisation) -> Index:
    """Logarithms in whose units elements of Cholesky factors below the diagonal are proposed, by places."""
    found: list[int] = []
    transforms = {str(model.rvs_to_values[rv].name): one for rv, one in model.rvs_to_transforms.items()}
    for name in shared.var_names:
        first, size = len(found), int(np.prod(shared.graph.values[name].type.shape))
        found += [-1] * size
        if isinstance(transforms.get(name), CholeskyCovPacked):
            diagonal, row = 0, 0
            while diagonal < size:  # packed row by row, each ends on the diagonal
                for k in range(diagonal - row, diagonal):
                    found[first + k] = first + diagonal
                row += 1
                diagonal += row + 1
    return np.array(found, dtype=np.int64)
