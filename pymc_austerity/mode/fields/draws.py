"""Draws of the distribution that is fitted to a field."""

import numpy as np

from pymc_austerity.bounds.jets.compiled import entry
from pymc_austerity.bounds.jets.points import BLOCK, run_at_points
from pymc_austerity.kernels.fields import held
from pymc_austerity.kernels.fields import law as laws
from pymc_austerity.kernels.fields.decisions import moved, moved_by_held
from pymc_austerity.kernels.fields.held import held_log_density, hold
from pymc_austerity.kernels.fields.records import FieldArrays, Law
from pymc_austerity.kernels.fields.state import (
    log_marginal,
    log_prior_change,
    pull_on_intercept,
    write_state,
)
from pymc_austerity.target import Vector

from_score, score = entry(laws.from_score), entry(laws.score)
to_theta, to_zeta = entry(laws.to_theta), entry(laws.to_zeta)
write_right = entry(held.write_right)


def theta_of_scores(law: Law, scores: Vector) -> tuple[Vector, float]:
    """What a turn moves of theta, and the log of the determinant of its derivatives by the scores."""
    pairs = [from_score(law, j, float(s)) for j, s in enumerate(scores)]
    found = np.array(pairs, dtype=np.float64).reshape(-1, 2)
    theta = found[:, 0].copy()
    return theta, float(np.log(found[:, 1]).sum()) + to_theta(law, theta)


def scores_of_theta(law: Law, theta: Vector) -> Vector:
    """The scores of what a turn moves of theta."""
    zeta = theta[law.which]
    to_zeta(law, zeta)
    return np.array([score(law, j, float(x))[0] for j, x in enumerate(zeta)])


def height_of(arrays: FieldArrays, features: Vector, eps: Vector) -> float:
    """The log density in the coordinates of a turn, but for the prior of theta and -|eps|^2 / 2.

    The state is written to the first side of the room. What is held is as `hold_at` has left it.
    """
    return _height(arrays, features, eps)


def centered(turns: tuple[FieldArrays, ...], features: Vector) -> Vector:
    """The center of all coordinates given theta, in the order of the maps."""
    z = np.zeros(1 + max(int(one.coordinates.max(initial=-1)) for one in turns))
    for one in turns:
        one.held.d[:] = 0.0
        write_right(one)
        height_of(one, features, np.zeros(len(one.coordinates)))
        z[one.coordinates] = one.room.z[0]
    return z


def hold_at(arrays: FieldArrays, features: Vector, z: Vector) -> None:
    """Hold what a turn does not move at a state."""
    _hold(arrays, features, z)


@entry
def _hold(arrays: FieldArrays, features: Vector, z: Vector) -> None:
    hold(arrays, features, z)


@entry
def _height(arrays: FieldArrays, features: Vector, eps: Vector) -> float:
    room, rows, sums = arrays.room, arrays.rows, arrays.sums
    total = log_marginal(arrays, features, 0)
    room.eps[0] = eps
    write_state(arrays, features, 0)
    total += log_prior_change(arrays, 0, pull_on_intercept(arrays, 0)) + held_log_density(arrays, features)
    if not arrays.has_remainders:
        return total
    d = room.d[0]
    for p in range(d.shape[0]):
        total += sums.gradient_change[p] * d[p]
    for h in range(sums.first.shape[0]):
        i, j = sums.first[h], sums.second[h]
        total -= (0.5 if i == j else 1.0) * sums.hessian_change[h] * d[i] * d[j]
    n, design = rows.predictors.shape[0], (rows.columns, rows.values, rows.dense)
    for start in range(0, n, BLOCK):
        m = min(BLOCK, n - start)
        for side in range(2):
            for lane in range(m):
                i = start + lane
                t = moved(design, i, d) + moved_by_held(arrays, i) if side == 0 else 0.0
                room.predictors[0, lane] = rows.predictors[i] + t
                for k in range(rows.data.shape[0]):
                    room.data[k, lane] = rows.data[k, i]
                if side == 0:
                    total -= t * (rows.slopes[i] - 0.5 * rows.weights[i] * t)
            run_at_points(rows.program, room.predictors[:, :m], room.data[:, :m], 0, room.points)
            found = room.points.coefficients[rows.program.root, 0]
            for lane in range(m):
                total += found[lane] if side == 0 else -found[lane]
    return total
