"""Bounds on the remainders of the rows of a plate, made ready for drawing rows by them."""

import math

import numpy as np
import numpy.typing as npt

from pymc_austerity import work
from pymc_austerity.bounds.jets.compiled import entry
from pymc_austerity.bounds.jets.efforts import row_bounds
from pymc_austerity.kernels.plates.cubic import Cubic
from pymc_austerity.kernels.plates.records import GroupBounds, GroupSums, RowBounds
from pymc_austerity.kernels.plates.thinning import to_power
from pymc_austerity.mode.plates.center import PlateSurvey
from pymc_austerity.mode.plates.expansion import Expanded, with_phi
from pymc_austerity.mode.plates.fit import SharedFit
from pymc_austerity.mode.plates.group_means import location_slopes
from pymc_austerity.mode.plates.slope_levels import curvature_matrices, given_theta
from pymc_austerity.mode.plates.sorted_rows import SortedRows
from pymc_austerity.mode.plates.theta_density import SharedAt
from pymc_austerity.target import Index, Matrix, Singles, Vector

# Units in which levels of groups with random slopes are bounded, and lengths of Z_i in these.

# Lengths are rounded to single precision, and up.
_UP = 1.0 + 1e-6


def scales_and_norms(
    sums: GroupSums, factor: Matrix, precision: float, covariance: Matrix
) -> tuple[Vector, Matrix]:
    """s_g, standard deviations of the intercepts, and A_g = s_g F^-1, one below the other.

    F F' is the covariance of e_g: given theta, and what m_g moves by with theta. The latter is the larger
    where a scale is near zero.

    Parameters
    ----------
    sums : GroupSums
    factor : ndarray (q, q)
        Cholesky factor of the covariance of effects.
    precision : float
        By which all sums are multiplied.
    covariance : ndarray (P, P)
        Of d.
    """
    _, found = given_theta(sums, np.zeros(len(sums.slopes)), factor, precision)
    given, q = found @ found.transpose(0, 2, 1), sums.n_effects
    slopes = location_slopes(sums).reshape(len(given), q, -1)
    slopes -= given @ (precision * curvature_matrices(sums) @ slopes)
    root = np.linalg.cholesky(given + slopes @ covariance @ slopes.transpose(0, 2, 1))
    scales = root[:, 0, 0].copy()
    norms = scales[:, None, None] * np.linalg.inv(root)
    return scales, np.ascontiguousarray(norms.reshape(-1, sums.n_effects))


def lengths_of_covariates(rows: SortedRows, norms: Matrix) -> Singles:
    """rho_i = |A_g'^-1 Z_i|, rounded up; ones where there are no slopes."""
    result = np.ones(len(rows.offsets), np.float32)
    if len(norms):
        q = norms.shape[1]
        _slope_lengths(rows.covariates, rows.starts, np.linalg.inv(norms.reshape(-1, q, q)), result)
    return result


@entry
def _slope_lengths(
    covariates: Matrix, starts: Index, inverses: npt.NDArray[np.float64], result: Singles
) -> None:
    q = inverses.shape[1]
    for g in range(starts.shape[0] - 1):
        for i in range(starts[g], starts[g + 1]):
            total = 0.0
            for k in range(q):
                w = inverses[g, 0, k]
                for j in range(1, q):
                    w += covariates[i, j - 1] * inverses[g, j, k]
                total += w * w
            result[i] = np.float32(np.sqrt(total) * _UP)


# Tiers, as shares of the farthest reach.
_TIERS = np.array([0.5, 1.0])
# |w| reaches sqrt(V) + 6; levels so far that one row in 200 n_g standard normal draws would be beyond.
_RADIUS, _BEYOND = 6.0, 200.0
# Levels of other factors: standard deviations beyond the largest of as many normal ones.
_MARGIN = 2.0
# Standard deviations of log tau^2 above its mean, at which scales of levels are taken: 90 % are below.
_UPPER = 1.28
# Proposals are wider for groups whose levels are skewed.
_WIDEST, _SKEW = 0.3, 0.3
# phi are bounded as far as this, where the predictor is.
_FAR_PHI = 0.3
# Rounding of remainders, relative to the log density of a row; and of bounds.
_ROUNDING, _INFLATION = 1e-13, 1.0 + 1e-6
_CHUNK = 16_384
# Operations for a row, and for a product of two of its columns.
_OF_ROW, _OF_PRODUCT = 500.0, 0.5


def group_bounds(
    survey: PlateSurvey,
    fit: SharedFit,
    at: Expanded,
    sums: GroupSums,
    cubic: Cubic,
) -> tuple[GroupBounds, RowBounds]:
    """Make them, in a pass over the rows."""
    power = 3 if len(cubic.levels) else 2
    plate = survey.plate
    factors = [np.searchsorted(sums.linear, own) for own in plate.rows.factors]
    whitening, unwhiten = _whitening(fit, sums, sums.dense[sums.varying])
    n_varying = len(sums.varying)
    scales, norms = upper_scales(survey, fit, sums)
    sizes = np.diff(survey.rows.starts)
    radius = np.sqrt(n_varying) + _RADIUS if n_varying else 0.0
    reach = scales * (np.sqrt(2.0 * np.log(_BEYOND * np.maximum(sizes, 1))) + np.sqrt(plate.n_effects) - 1.0)
    reach += _reach_of_levels(fit, sums, factors)
    typical = scales / np.sqrt(max(1, n_varying))
    n = len(survey.rows.offsets)
    work.spend(n * (_OF_ROW + _OF_PRODUCT * n_varying**2), "Bounds of a plate")
    lengths = np.empty(n, np.float32)
    _lengths(survey.rows, sums.means, sums.varying, unwhiten, lengths)
    radii = lengths_of_covariates(survey.rows, norms)
    of_phi = _lengths_of_phi(sums, unwhiten)
    far = np.repeat(reach, sizes)
    far *= radii
    far += lengths * radius
    box = _box(far, of_phi, radius)
    del far  # of size N
    lengths = _lengths_with_phi(lengths, box, of_phi)
    constants = _constants(survey, at, sums.phi, box, power)
    tiers = len(_TIERS)
    levels, shared = np.empty((tiers, n), np.float32), np.empty((tiers, n), np.float32)
    skew = np.zeros(len(sizes))
    for tier in range(tiers):
        of_rows = constants[tier], lengths, radii
        _accumulate(of_rows, typical, survey.rows.starts, power, (levels[tier], shared[tier], skew))
    skew = np.abs(cubic.levels) if power == 3 else 2.0 * skew
    # Groups that are not expanded, though they have rows, are read as a whole.
    not_expanded = (sums.curvatures[:: plate.n_effects**2] == 0.0) & (sizes > 0)
    reaches = np.where(not_expanded, -1.0, _TIERS[:, None] * reach)
    last = np.maximum(survey.rows.starts[1:] - 1, 0)
    totals = [np.where(sizes > 0, each[:, last], 0.0).astype(np.float64) for each in (levels, shared)]
    bounds = GroupBounds(
        whitening=whitening,
        radii=_TIERS * radius if n_varying else np.full(tiers, np.inf),
        reaches=reaches,
        levels=totals[0],
        shared=totals[1],
        typical=typical,
        sizes=sizes.astype(np.int64),
        widths=1.0 + np.minimum(_WIDEST, _SKEW * np.where(np.isfinite(skew), skew, np.inf) * scales**3),
        rounding=_ROUNDING * (1.0 + at.largest),
        power=power,
        norms=norms,
    )
    return bounds, RowBounds(lengths, constants, levels, shared)


def _reach_of_levels(fit: SharedFit, sums: GroupSums, factors: list[Index]) -> float:
    """How far levels of other factors move a row, and the mean of a group."""
    covariance, total = _covariance(fit), 0.0
    for own in factors:
        centering = np.eye(len(own)) - 1.0 / len(own)
        places = sums.linear[own]
        variances = np.diag(centering @ covariance[np.ix_(places, places)] @ centering)
        total += 2.0 * (np.sqrt(2.0 * np.log(len(own))) + _MARGIN) * float(np.sqrt(variances.max()))
    return total


def _covariance(fit: SharedFit) -> Matrix:
    """Covariance matrix of theta."""
    factor = fit.slopes @ fit.factor
    return factor @ factor.T


def _whitening(fit: SharedFit, sums: GroupSums, varying: Index) -> tuple[Matrix, Matrix]:
    """The matrix of w = whitening . d, and the matrix that makes zeta of z: |unwhiten z|."""
    n_columns, covariance = len(sums.linear), _covariance(fit)
    own = covariance[np.ix_(sums.linear[varying], sums.linear[varying])]
    lower = np.linalg.cholesky(np.linalg.inv(own)) if len(varying) else np.empty((0, 0))
    whitening = np.zeros((len(varying), n_columns))
    whitening[:, varying] = lower.T
    return whitening, np.ascontiguousarray(np.linalg.inv(lower)) if len(varying) else lower


def upper_scales(survey: PlateSurvey, fit: SharedFit, sums: GroupSums) -> tuple[Vector, Matrix]:
    """Scales s_g for a large tau, so that each group is within its reach where tau is near 0; and A_g.

    With slopes s_g is that of the intercept, and |A_g e_g| is in its units.
    """
    at = survey.shared(fit.theta)
    if sums.n_effects > 1:
        of_d = _covariance(fit)[np.ix_(sums.linear, sums.linear)]
        return scales_and_norms(sums, *_upper_factor(fit, at), of_d)
    log_square = at.log_square
    upper = log_square.value + _UPPER * float(
        np.linalg.norm(fit.factor.T @ fit.slopes.T @ log_square.gradient)
    )
    t2, precision = np.exp(upper), np.exp(at.log_precision.value)
    scales: Vector = np.sqrt(t2 / (1.0 + precision * sums.curvatures * t2))
    return scales, np.zeros((0, 1))


def _upper_factor(fit: SharedFit, at: SharedAt) -> tuple[Matrix, float]:
    """The Cholesky factor of effects, each row made longer by what its scale may be larger; and lambda."""
    q = int(np.sqrt(2 * len(at.factor)))
    factor, slopes = np.zeros((q, q)), np.zeros((q, q, len(fit.mean)))
    factor[np.tril_indices(q)] = [one.value for one in at.factor]
    slopes[np.tril_indices(q)] = [one.gradient @ fit.slopes @ fit.factor for one in at.factor]
    squares = (factor**2).sum(axis=1)
    of_logs = np.einsum("jk,jkp->jp", factor, slopes) / squares[:, None]
    upper = np.exp(_UPPER * np.linalg.norm(of_logs, axis=1))
    return upper[:, None] * factor, float(np.exp(at.log_precision.value))


def _lengths_of_phi(sums: GroupSums, unwhiten: Matrix) -> Vector:
    """The most that each of the numbers phi changes per unit of |w|."""
    slopes = sums.phi_slopes[:, sums.dense[sums.varying]]
    found: Vector = np.linalg.norm(slopes @ unwhiten.T, axis=1)
    return found


def _box(far: Vector, of_phi: Vector, radius: float) -> Matrix:
    """How far predictors of a row are bounded: (p, N), that of the row and phi.

    Both within the radius, they are within the ball of which these are the half-axes. phi, which is known
    better, is bounded further than that: bounds are the same along all axes, in units of these.
    """
    root = np.sqrt(1.0 + len(of_phi))
    box = np.empty((1 + len(of_phi), len(far)))
    box[0] = root * far
    for row, length in zip(box[1:], of_phi, strict=True):
        np.maximum(root * radius * length, np.minimum(box[0], _FAR_PHI), out=row)
    return box


def _lengths_with_phi(lengths: Singles, box: Matrix, of_phi: Vector) -> Singles:
    """zeta_i, with phi in the units of the predictor."""
    if not len(of_phi):
        return lengths
    square = lengths.astype(np.float64) ** 2
    for row, length in zip(box[1:], of_phi, strict=True):
        square += (box[0] / row * length) ** 2
    return (np.sqrt(square) * (1.0 + 1e-6)).astype(np.float32)


def _constants(survey: PlateSurvey, at: Expanded, phi: Vector, box: Matrix, power: int) -> Singles:
    """K_i of all tiers, rounded up: the largest derivative of order m + 1 within the box, over m!."""
    function, data = survey.plate.row_function, survey.rows.data

    def sample(positions: Index) -> tuple[Matrix, Matrix, Matrix]:
        return _some(positions)

    def _some(which: Index | slice) -> tuple[Matrix, Matrix, Matrix]:
        centers = np.ascontiguousarray(with_phi(at.predictors[which], phi).T)
        directions = box[:, which].T[:, :, None] * np.eye(len(box))
        return centers, directions, np.ascontiguousarray(data[:, which])

    bounds = row_bounds(function, power + 1, _TIERS, sample)
    n = box.shape[1]
    result = np.empty((len(_TIERS), n), np.float32)
    for start in range(0, n, _CHUNK):
        some = slice(start, start + _CHUNK)
        found = bounds(*_some(some)) / (math.factorial(power) * box[0, some] ** (power + 1)) * _INFLATION
        # A float32 above the number: adding half a step rounds to it or to the next.
        result[:, some] = np.nextafter(found.astype(np.float32), np.float32(np.inf))
    return result


@entry
def _lengths(rows: SortedRows, means: Matrix, varying: Index, unwhiten: Matrix, lengths: Singles) -> None:
    """Bounds of |zeta_i| for all rows, rounded up."""
    x, covariates, starts, n = rows.x, rows.covariates, rows.starts, varying.shape[0]
    z, q = np.empty(n), covariates.shape[1] + 1
    for g in range(starts.shape[0] - 1):
        for i in range(starts[g], starts[g + 1]):
            total = 0.0
            for a in range(n):
                z[a] = x[i, varying[a]] - means[g * q, varying[a]]
                for j in range(1, q):
                    z[a] -= means[g * q + j, varying[a]] * covariates[i, j - 1]
                w = 0.0
                for b in range(a + 1):
                    w += unwhiten[a, b] * z[b]
                total += w * w
            lengths[i] = np.float32(np.sqrt(total) * (1.0 + 1e-6))


@entry
def _accumulate(
    of_rows: tuple[Singles, Singles, Singles],
    typical: Vector,
    starts: Index,
    power: int,
    result: tuple[Singles, Singles, Vector],
) -> None:
    """Cumulative sums within groups, rounded up so that no row has less than its weight; and sums of K_i.

    `of_rows` are K_i, zeta_i and rho_i, with which the last sum is of K_i rho_i^3.
    """
    (constants, lengths, radii), (levels, shared, skew) = of_rows, result
    for g in range(typical.shape[0]):
        total, other, plain = 0.0, 0.0, 0.0
        for i in range(starts[g], starts[g + 1]):
            zeta, rho = np.float64(lengths[i]), np.float64(radii[i])
            stretch = rho + zeta / typical[g]
            weight = np.float64(constants[i]) * to_power(stretch, power)
            total = _rounded_up(total + rho * weight)
            other = _rounded_up(other + zeta * weight)
            levels[i], shared[i] = np.float32(total), np.float32(other)
            plain += np.float64(constants[i]) * rho * rho * rho
        skew[g] = plain if skew[g] == 0.0 else min(skew[g], plain)


@entry
def _rounded_up(x: float) -> float:
    """A number in single precision that is not smaller."""
    if x == 0.0:
        return 0.0
    return np.float64(np.float32(x * (1.0 + 2.0**-23)))


def no_bounds(survey: PlateSurvey, sums: GroupSums) -> tuple[GroupBounds, RowBounds]:
    """Empty bounds, for a plate of which all rows are read, or none."""
    n_groups, tiers = survey.plate.n_groups, len(_TIERS)
    nothing = np.zeros((tiers, n_groups))
    bounds = GroupBounds(
        whitening=np.zeros((0, len(sums.linear))),
        radii=np.full(tiers, np.inf),
        reaches=nothing - 1.0,
        levels=nothing,
        shared=nothing.copy(),
        typical=np.ones(n_groups),
        sizes=np.diff(survey.rows.starts).astype(np.int64),
        widths=np.ones(n_groups),
        rounding=0.0,
        power=2,
        norms=np.zeros((0, 1)),
    )
    singles = np.zeros((tiers, 0), np.float32)
    return bounds, RowBounds(np.zeros(0, np.float32), singles, singles.copy(), singles.copy())
