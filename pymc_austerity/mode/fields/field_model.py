"""A field of a model that can be moved: its layout and its values."""

from dataclasses import dataclass, replace

import numpy as np
import pymc as pm
from pymc.distributions.transforms import CholeskyCovPacked

from pymc_austerity.bounds.jets.tape import tape_of
from pymc_austerity.kernels.fields.records import FieldArrays, Schedule
from pymc_austerity.kernels.fields.tree import Tree
from pymc_austerity.mode.fields.bounds import field_bounds
from pymc_austerity.mode.fields.draws import height_of
from pymc_austerity.mode.fields.fit import FieldFit, FittedField, fit_again, fit_field, room_for, with_scale
from pymc_austerity.mode.fields.layout import Layout, layout_of
from pymc_austerity.mode.fields.values import FieldValues, values_of
from pymc_austerity.model.factorisation import Factorisation, vector_of
from pymc_austerity.model.field.find import Field, find_field
from pymc_austerity.model.field.priors import NoField
from pymc_austerity.model.plates.effects_prior import is_positive
from pymc_austerity.model.plates.plate_model import normal_precision
from pymc_austerity.target import Index, Vector

# Standard deviations of proposals for eps of small nodes, which are skewed; others are drawn as they are.
_WIDE, _SMALL = 1.05, 4
# Rows that are drawn, beside what bounds need, for nodes between the root and the last ones, and for groups
# with these.
_INNER, _LAST = 2.0, 1.0


@dataclass(frozen=True, eq=False)
class FieldModel:
    """A field with its rows in order. It has size N."""

    factorisation: Factorisation  # Its block are numbers, then effects from the shortest vector on
    layout: Layout
    values: FieldValues
    precision: int  # Which feature the logarithm of the precision of normal rows is; else -1
    unit: float  # The precision of normal rows that the layout has; 1 for others
    units: Index  # (q,): of the proposal of theta, see `kernels.fields.records.Law`

    @property
    def effects(self) -> tuple[str, ...]:
        """Names of the value variables of the effects."""
        return tuple(one.innovation.name for one in self.layout.maps.coordinates)

    @property
    def n_effects(self) -> int:
        """Effects in all."""
        return self.layout.maps.n_coordinates

    @property
    def n_together(self) -> int:
        """What is moved with theta: its numbers, and the effects of the root."""
        return len(self.units) + int(self.layout.tree.size[-1])

    @property
    def is_normal(self) -> bool:
        """Whether sums are sufficient, so that no row is read."""
        return self.precision >= 0

    def fit(self) -> FieldFit:
        """Fit the field."""
        shared = self.values.shared
        start = vector_of(shared, shared.graph.point) if shared.var_names else np.zeros(0)
        values = self.values
        return fit_field(
            self.layout, values.features, values.log_prior, start, self.precision, self.unit, self.units
        )

    def center(self) -> Vector:
        """The vector of the block at the fitted theta, and at the mean of the effects given it."""
        fit, n = self.fit(), len(self.layout.tree.node_of)
        arrays = self.arrays(fit, reads_all=True, debug=False)
        height_of(arrays, self.values.features(fit.theta), np.zeros(n))
        return self.values(fit.theta, arrays.room.z[0])

    def fit_again(self, fitted: FittedField) -> FieldFit:
        """A `FieldFit` from what another process has fitted."""
        values = self.values
        return fit_again(self.layout, values.features, values.log_prior, fitted, self.precision, self.unit)

    def arrays(self, fit: FieldFit, *, reads_all: bool, debug: bool) -> FieldArrays:
        """All that the kernel needs."""
        plan, tree = fit.plan, self.layout.tree
        bounds = plan.bounds
        if not (self.is_normal or reads_all):
            bounds = field_bounds(fit)
        program = tape_of(fit.layout.columns.expression, 1, 0)
        room = room_for(self.layout, program, int(bounds.blocks[-1]), len(bounds.nodes))
        return plan._replace(
            bounds=bounds,
            rows=plan.rows._replace(program=program),
            room=room._replace(theta=np.zeros(len(fit.theta))),
            widths=np.where(tree.size <= _SMALL, _WIDE, 1.0),
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
    return Schedule(1, depths, kappas)


def field_model(model: pm.Model, fact: Factorisation, fewest: int, found: Field | None = None) -> FieldModel:
    """The field of a model, which is found unless it was.

    Raises
    ------
    NoField
        If there is none, or none that is moved: why.
    """
    found = find_field(model, fact) if found is None else found
    own = [table.innovation for table in found.tables if table.innovation is not None]
    sizes = {one.name: int(np.prod(one.value.type.shape)) for one in own}
    if max(sizes.values(), default=0) < fewest:
        raise NoField(f"no vector of effects has {fewest} elements or more")
    if fact.rows_on_disk:
        raise NoField("the rows are on disk")
    for one in own:
        for step in one.steps:
            if step.kind == "scale" and step.graph is not None and not is_positive(fact, step.graph):
                raise NoField(f"the scale of {one.name!r} may be negative")
    names = sorted(fact.var_names, key=lambda name: sizes.get(name, 0))
    fact = replace(fact, var_names=tuple(names))
    layout = layout_of(found, fact.graph)
    term = found.likelihoods[0].term.name
    precision = None
    if layout.scale is not None:
        precision = normal_precision(model, fact, term)
        if precision is None:
            raise NoField(f"rows of {term!r} share a number beside their predictor, as a dispersion")
    values, number = values_of(found, fact, layout, precision)
    shared, unit = values.shared, 1.0
    if number >= 0:
        layout, unit = with_scale(layout, values.features, vector_of(shared, shared.graph.point), number)
    return FieldModel(fact, layout, values, number, unit, _units(model, shared))


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
