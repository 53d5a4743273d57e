"""Which of the shared variables are effects of outer groups, that the groups of a plate belong to."""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from pytensor.graph.traversal import ancestors

from pymc_austerity.bounds.jets.compiled import entry
from pymc_austerity.kernels.plates.nested import outer_terms, write_outer
from pymc_austerity.kernels.plates.outer import Outer, no_outer
from pymc_austerity.kernels.plates.records import GroupSums
from pymc_austerity.mode.plates.locations import Located
from pymc_austerity.mode.plates.sorted_rows import SortedRows
from pymc_austerity.model.factorisation import Factorisation
from pymc_austerity.model.plates.inner_effects import FEWEST_OUTER, first_inner
from pymc_austerity.model.plates.plate_model import PlateModel
from pymc_austerity.model.structure.predictors import block_and_others
from pymc_austerity.target import Index, Matrix, Vector

_TOLERANCE, _SEED = 1e-9, 2027


class Surroundings(NamedTuple):
    """Numbers of a plate among which effects of outer groups may be found."""

    rows: SortedRows
    linear: Index  # (P,): coordinates of theta that enter the predictor, or the location of the effects
    located: Located  # The location of the plate's effects, without parents
    parents: Index  # (G,): coordinates that this contains besides; -1 for none
    # callable: those of the priors of all inner effects, as functions of theta
    locations: Callable[[Vector], list[Vector]]


def outer_effects(plate: PlateModel, found: Surroundings) -> Outer:
    """The largest of them; none if there are none, or if groups have slopes."""
    if plate.n_effects > 1:
        return no_outer()
    for k in sorted(range(len(plate.inner)), key=lambda k: -len(plate.inner[k].coordinates)):
        own = plate.inner[k].coordinates
        if len(own) < FEWEST_OUTER or not _enter_once(plate, own) or _moves_with_others(plate, k):
            continue
        parents, location = _parents(plate, found, own), _affine(plate, found, k)
        if parents is None or location is None:
            continue
        base, moved, matrix = location
        columns = np.searchsorted(found.linear, own)
        is_centered = plate.inner[k].is_centered
        return Outer(parents, columns, first_inner(1) + k, base, moved, matrix, is_centered)
    return no_outer()


def without_prior(shared: Factorisation, coordinate: int) -> Factorisation:
    """Terms of theta without the prior of one variable: kernels know the prior of outer effects."""
    value = shared.graph.values[shared.coordinate(coordinate)[0]]
    return replace(shared, globals=tuple(one for one in shared.globals if value not in ancestors([one[1]])))


@entry
def write_outer_effects(
    sums: GroupSums, outer: Outer, theta: Vector, features: Vector, delta: Vector
) -> float:
    """Write v_h of delta_h to theta; the sum of log S_h."""
    n, d = delta.shape[0], theta[sums.linear] - sums.center
    write_outer(sums, outer, theta, d, features, delta, np.empty(n))
    means, pulls, shares = np.empty(n), np.empty(n), np.empty(n)
    outer_terms(sums, outer, theta, d, features, means, pulls, shares)
    return float(np.sum(np.log(features[outer.scale_at] * np.sqrt(shares))))


def _enter_once(plate: PlateModel, own: Index) -> bool:
    """Are they in no term but their prior, and in no number that rows share?

    Given all else they are normal then, but for remainders.
    """
    shared = plate.shared
    name, _ = shared.coordinate(int(own[0]))
    value = shared.graph.values[name]
    terms = [graph for _, graph in shared.globals if value in set(ancestors([graph]))]
    assert shared.features is not None
    in_features = value in set(ancestors([shared.features]))
    return len(terms) == 1 and not in_features and not plate.dispersions.matrix[:, own].any()


def _moves_with_others(plate: PlateModel, k: int) -> bool:
    """Is the location of their prior a function of variables of other steps? It is read once."""
    _, others = block_and_others(plate.factorisation)
    return not set(others).isdisjoint(one.name for one in ancestors([plate.inner[k].location]))


def _parents(plate: PlateModel, found: Surroundings, own: Index) -> Index | None:
    """The outer group of each group, or -1; None if groups are not nested."""
    in_location, in_rows = np.isin(found.parents, own), bool(np.isin(own, plate.rows.places).any())
    if np.isin(found.located.coordinates, own).any() or in_rows == bool(in_location.any()):
        return None
    result = np.full(plate.n_groups, -1)
    if not in_rows:
        result[in_location] = found.parents[in_location] - own[0]
        return result
    factors = [f for f, one in enumerate(plate.rows.factors) if np.array_equal(one, own)]
    if len(factors) != 1:
        return None
    cells = found.rows.cells
    first, last = (cells.starts[factors[0] + k :: cells.n_factors][: plate.n_groups] for k in (0, 1))
    if (last - first).max(initial=0) > 1:
        return None
    some = np.flatnonzero(last > first)
    result[some] = found.linear[cells.columns[first[some]]] - own[0]
    return result


def _affine(plate: PlateModel, found: Surroundings, k: int) -> tuple[Vector, Index, Matrix] | None:
    """The location of their prior as base + matrix . theta[coordinates]; None if it is no such function."""
    n, own = plate.n_shared, set(plate.inner[k].coordinates)
    base = found.locations(np.zeros(n))[k]
    columns = {j: found.locations(row)[k] - base for j, row in enumerate(np.eye(n)) if j not in own}
    moved = np.array([j for j, column in columns.items() if column.any()], dtype=np.int64)
    matrix = np.column_stack([base, *(columns[int(j)] for j in moved)])[:, 1:]
    at = np.random.default_rng(_SEED).standard_normal(n)
    if not np.allclose(base + matrix @ at[moved], found.locations(at)[k], rtol=_TOLERANCE, atol=_TOLERANCE):
        return None
    return base, moved, np.ascontiguousarray(matrix)
