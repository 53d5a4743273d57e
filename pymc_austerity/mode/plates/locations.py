"""Locations of effects' priors, as affine functions of theta."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Variable

from pymc_austerity.model.graph.rewrite import INTERPRETED
from pymc_austerity.model.plates.inner_effects import FEWEST_OUTER
from pymc_austerity.model.plates.plate_model import PlateModel, in_theta
from pymc_austerity.target import Index, Matrix, Vector


class Located(NamedTuple):
    """The location of the effects, affine in theta: base + matrix (theta, of some coordinates)."""

    base: Vector
    coordinates: Index
    matrix: Matrix


def located(plate: PlateModel, point: dict[str, np.ndarray], start: Vector) -> Located:
    """The location of the effects, by the coordinates of theta that it depends on."""
    q = plate.n_effects
    locations = affine_functions(plate, point, [one.location for one in plate.priors], [plate.n_groups] * q)

    def location(theta: Vector) -> Vector:
        return np.column_stack(locations(theta)).ravel()

    n, base = len(start), location(np.zeros(len(start)))
    columns = {k: location(row) - base for k, row in enumerate(np.eye(n))} if plate.is_centered else {}
    moved = [k for k, column in columns.items() if np.any(column != 0.0)]
    matrix = np.zeros((plate.n_groups * q, len(moved)))
    for place, k in enumerate(moved):
        matrix[:, place] = columns[k]
    return Located(base, np.array(moved, dtype=np.int64), matrix)


def affine_functions(
    plate: PlateModel, point: dict[str, np.ndarray], graphs: list[Variable], sizes: list[int]
) -> Callable[[Vector], list[Vector]]:
    """Locations of effects as functions of theta: vectors of these sizes."""
    fact = plate.shared
    theta = pt.vector("theta", shape=(plate.n_shared,))
    function = fact.compile(in_theta(fact, graphs, theta), [theta], mode=INTERPRETED)
    values = fact.point_values(point)

    def at(value: Vector) -> list[Vector]:
        found = function(*values, value, *fact.leaf_values)
        return [np.broadcast_to(np.ravel(one), n).astype(float) for one, n in zip(found, sizes, strict=True)]

    return at


def without_parents(found: Located, plate: PlateModel) -> tuple[Located, Index]:
    """Take out effects of outer groups, of which each location contains one or none.

    Returns
    -------
    located : Located
        What is left.
    parents : ndarray of int (G,)
        The coordinate of theta that was taken out for each group; -1 for none.
    """
    parents = np.full(len(found.base), -1)
    for one in sorted(plate.inner, key=lambda one: -len(one.coordinates)):
        own = np.flatnonzero(np.isin(found.coordinates, one.coordinates))
        block = found.matrix[:, own]
        is_one = bool(np.isin(block, (0.0, 1.0)).all() and (block.sum(axis=1) <= 1.0).all())
        if plate.n_effects > 1 or len(one.coordinates) < FEWEST_OUTER or not is_one or not len(own):
            continue
        some = np.flatnonzero(block.any(axis=1))
        parents[some] = found.coordinates[own[block[some].argmax(axis=1)]]
        rest = np.setdiff1d(np.arange(len(found.coordinates)), own)
        left = np.ascontiguousarray(found.matrix[:, rest])
        return Located(found.base, found.coordinates[rest], left), parents
    return found, parents
