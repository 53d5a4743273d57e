"""Draws of the distribution that is fitted to a field."""

from collections.abc import Callable

import numpy as np

from pymc_austerity.kernels.fields.records import FieldArrays, Law
from pymc_austerity.kernels.fields.state import log_prior_change, pull_on_intercept
from pymc_austerity.mode.fields import compiled
from pymc_austerity.mode.fields.not_normal import excess_at
from pymc_austerity.mode.fields.passes import (
    add_lookups,
    add_moved,
    derivatives_of,
    part_of,
    product,
    quadratic_of,
)
from pymc_austerity.mode.row_tables import parts
from pymc_austerity.target import Vector


def theta_of_scores(law: Law, scores: Vector) -> tuple[Vector, float]:
    """What a turn moves of theta, and the log of the determinant of its derivatives by the scores."""
    pairs = [compiled.from_score(law, j, float(s)) for j, s in enumerate(scores)]
    found = np.array(pairs, dtype=np.float64).reshape(-1, 2)
    theta = found[:, 0].copy()
    return theta, float(np.log(found[:, 1]).sum()) + compiled.to_theta(law, theta)


def scores_of_theta(law: Law, theta: Vector) -> Vector:
    """The scores of what a turn moves of theta."""
    zeta = theta[law.which]
    compiled.to_zeta(law, zeta)
    return np.array([compiled.score(law, j, float(x))[0] for j, x in enumerate(zeta)])


def height_of(arrays: FieldArrays, features: Vector, eps: Vector) -> float:
    """The log density in the coordinates of a turn, but for the prior of theta and -|eps|^2 / 2.

    The state is written to the first side of the room. What is held is as `hold_at` has left it.
    """
    room, rows, sums = arrays.room, arrays.rows, arrays.sums
    total = compiled.log_marginal(arrays, features, 0)
    room.eps[0] = eps
    compiled.write_state(arrays, features, 0)
    total += log_prior_change(arrays, 0, pull_on_intercept(arrays, 0))
    if arrays.held.is_bound:
        total += compiled.held_log_density(arrays.held, features)
    matched, z = arrays.prior.matched, room.z[0, arrays.prior.matched.coordinates]
    if len(z):
        total += float(np.sum(excess_at(matched, features, z[:, None])))
        total -= float(z @ (sums.matched_right - 0.5 * sums.matched_hessian * z))
    if not arrays.has_remainders:
        return total
    d = room.d[0]
    total += sums.gradient_change @ d - 0.5 * d @ product(sums, sums.hessian_change, d)
    held = arrays.held
    for part in parts(len(rows.predictors)):
        eta = rows.predictors[part]
        changes = np.zeros_like(eta)
        add_moved(changes, part_of(rows.design, part), d)
        add_lookups(changes, held.columns[part], held.values[part], held.of_columns, held.d)
        new, old = (derivatives_of(rows, part, at, 0)[0] for at in (eta + changes, eta))
        total += np.sum(new - old - quadratic_of(rows, part, changes))
    return float(total)


def centered(turns: tuple[FieldArrays, ...], features: Vector) -> Vector:
    """The center of all coordinates given theta, in the order of the maps."""
    z = np.zeros(1 + max(int(one.coordinates.max(initial=-1)) for one in turns))
    for one in turns:
        one.held.d[:] = 0.0
        compiled.write_right(one.held, one.sums, one.room)
        height_of(one, features, np.zeros(len(one.coordinates)))
        z[one.coordinates] = one.room.z[0]
    return z


def middle(turns: tuple[FieldArrays, ...], features: Callable[[Vector], Vector]) -> tuple[Vector, Vector]:
    """Theta where its scores are zero, and the center of all coordinates given that."""
    theta = np.zeros(len(turns[0].room.theta))
    for one in turns:
        theta[one.law.which] = theta_of_scores(one.law, np.zeros(len(one.law.which)))[0]
    return theta, centered(turns, features(theta))


def hold_at(arrays: FieldArrays, features: Vector, z: Vector) -> None:
    """Hold what a turn does not move at a state."""
    if len(arrays.held.coordinates):
        compiled.hold(arrays, features, z)
