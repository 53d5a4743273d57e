"""Certified bounds on the log ratios of all local terms: made in one pass, evaluated without any."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba.extending import register_jitable

from pymc_austerity.bounds.enclosure import CloudBuilder, Matrix, product
from pymc_austerity.bounds.families import (
    binary,
    cloglog,
    gamma,
    huber,
    logistic,
    negative_binomial,
    normal,
    poisson,
    probit,
)
from pymc_austerity.bounds.families import bounded_slope as bounded
from pymc_austerity.bounds.families import double_exponential as laplace
from pymc_austerity.bounds.families import student_t as student
from pymc_austerity.bounds.families.base import FINE_GRID, GRID, TOLERANCE, Family, RangeCertificate
from pymc_austerity.exceptions import UnboundedError
from pymc_austerity.target import Index, LinearPredictor, Predictor, Vector

FAMILIES: tuple[Family, ...] = (
    logistic.BINARY,
    logistic.FAMILY,
    normal.FAMILY,
    laplace.FAMILY,
    huber.FAMILY,
    student.FAMILY,
    poisson.FAMILY,
    probit.FAMILY,
    cloglog.FAMILY,
    negative_binomial.FAMILY,
    gamma.FAMILY,
)


def _equal_slopes(eta: Vector, slopes: Matrix) -> Matrix:
    """The slope of each row, as the least and as the largest: terms that are linear in eta have one."""
    return slopes[:2].T


def _no_curvature(constants: Matrix, low: Vector, high: Vector, order: int) -> Vector:
    return np.zeros(len(constants))


_AFFINE = Family("affine", bounded.CODE, _equal_slopes, bounded.points, False, 0, curvature=_no_curvature)

# Rows that the family and the metric of the clouds are found on.
SAMPLE = 20_000
# Rows at a time in the pass over all.
_LARGEST_CHUNK, _SMALLEST_CHUNK, _CHUNK_BUDGET = 4096, 256, 4_000_000
_SEED = 2014
# Distances to which variables of other steps are moved to see whether rows change in proportion.
_NEAR, _FAR, _FAR_TOLERANCE = 0.3, (3.0, -3.0, 10.0, -10.0), 1e-4


@dataclass(frozen=True)
class RangeCertificates:
    """Bounds on the log ratios of some terms, kept up to date with the variables of other steps.

    Attributes
    ----------
    certificates : tuple of RangeCertificate
        One for each term, as they were at the point given to `certify`: what `certified_range` takes.
    predictors : tuple of LinearPredictor
    families : tuple of Family
    references : tuple of ndarray of int
        For each term, rows that stand for the common factor of each constant; empty if nothing changes.
    """

    certificates: tuple[RangeCertificate, ...]
    predictors: tuple[LinearPredictor, ...]
    families: tuple[Family, ...]
    references: tuple[Index, ...]

    @property
    def others(self) -> tuple[str, ...]:
        """Names of the variables of other steps that the bounds depend on."""
        return tuple(dict.fromkeys(name for p in self.predictors for name in p.others))

    def at(self, point: Mapping[str, Any]) -> tuple[RangeCertificate, ...]:
        """The certificates at `point`, at the cost of a few rows.

        Where the form of a term is not recognised any more, at extreme values of other variables, its
        parameters are not numbers, and its range is infinite.
        """
        terms = zip(self.certificates, self.predictors, self.families, self.references, strict=True)
        found = []
        for certificate, predictor, family, references in terms:
            if len(references):
                factors = _factors(predictor, family, references, point)
                parameters = np.array([*factors, *certificate.parameters[len(factors) :]])
                certificate = certificate._replace(parameters=parameters)
            found.append(certificate)
        return tuple(found)


def certify(predictors: Sequence[LinearPredictor], point: Mapping[str, Any]) -> RangeCertificates:
    """Make certificates for some terms, in one pass over their rows.

    Parameters
    ----------
    predictors : sequence of LinearPredictor
    point : dict of str to array
        Values of the variables of other steps.

    Raises
    ------
    UnboundedError
        If a term is of no known form; the message names it.
    """
    made = [_certified(predictor, point) for predictor in predictors]
    return RangeCertificates(
        certificates=tuple(certificate for certificate, _, _ in made),
        predictors=tuple(predictors),
        families=tuple(family for _, family, _ in made),
        references=tuple(references for _, _, references in made),
    )


def _certified(
    predictor: LinearPredictor, point: Mapping[str, Any]
) -> tuple[RangeCertificate, Family, Index]:
    sample = np.unique(np.linspace(0, predictor.n_rows - 1, min(predictor.n_rows, SAMPLE)).astype(np.int64))
    family, constants = recognise(predictor, sample, point)
    references, points = np.empty(0, dtype=np.int64), [dict(point)]
    if predictor.others:
        references = sample[np.abs(constants[:, : family.n_factors]).argmax(axis=0)]
        points += [_elsewhere(predictor, point, distance) for distance in (_NEAR, *_FAR)]
    factors = [_factors(predictor, family, references, p) for p in points]
    constants = _divided(constants, factors[0])
    portions = chunks(predictor, np.arange(len(sample)))
    parts = [family.points(predictor.rows(sample[some]), constants[some]) for some in portions]
    first, second = (CloudBuilder(np.concatenate(some)) for some in zip(*parts, strict=True))
    least, largest = np.inf, -np.inf
    for positions in chunks(predictor, np.arange(predictor.n_rows)):
        constants = _constants(predictor, family, positions, points, factors)
        a, b = family.points(predictor.rows(positions), constants)
        first.add(a)
        second.add(b)
        least, largest = min(least, constants[:, 0].min()), max(largest, constants[:, 0].max())
    parameters = np.array([*factors[0], *np.ones(2 - len(factors[0])), least, largest])
    return RangeCertificate(family.code, parameters, first.cloud(), second.cloud()), family, references


def recognise(predictor: LinearPredictor, sample: Index, point: Mapping[str, Any]) -> tuple[Family, Matrix]:
    """Find the family of a term from the slopes of some rows, and the constants of these."""
    slopes = predictor.slopes(FINE_GRID, sample, point)
    moved = slopes
    if predictor.others:
        moved = predictor.slopes(FINE_GRID, sample, _elsewhere(predictor, point, _NEAR))
    moving = []
    for family in [_AFFINE] if predictor.is_affine else FAMILIES:
        constants = family.identify(FINE_GRID, slopes)
        if constants is None:
            continue
        if family.n_factors == 0 and not _equal(constants, family.identify(FINE_GRID, moved)):
            continue
        if not family.needs_offset or predictor.offset_fixed:
            return family, constants
        moving.append(family.name)
    if moving:
        raise UnboundedError(
            f"The linear predictor of the term {predictor.name!r} contains variables of other steps; the "
            f"bound for {moving[-1]} terms needs all of it. Let one step move all of these variables."
        )
    known = ", ".join(family.name for family in FAMILIES)
    raise UnboundedError(
        f"The term {predictor.name!r} depends on the step's variables by a linear predictor, but its slope "
        f"is of no form that is known to have a bound ({known})."
    )


def _equal(constants: Matrix, others: Matrix | None, tolerance: float = TOLERANCE) -> bool:
    """Are the constants of each row equal, relative to the largest of the row?"""
    if others is None:
        return False
    scale = np.maximum(np.abs(constants), np.abs(others)).max(axis=1, keepdims=True)
    return bool(np.all(np.abs(constants - others) <= tolerance * scale))


def _elsewhere(predictor: LinearPredictor, point: Mapping[str, Any], distance: float) -> dict[str, Any]:
    """Other values of the other variables, all larger or all smaller."""
    rng = np.random.default_rng(_SEED)
    moved = dict(point)
    for name in predictor.others:
        value = np.asarray(point[name])
        if value.dtype.kind != "f":
            raise UnboundedError(
                f"The term {predictor.name!r} depends on {name!r}, a discrete variable of another step, so "
                "that no bound is known to hold for all of its values."
            )
        moved[name] = value + distance * np.abs(rng.standard_normal(value.shape))
    return moved


def _constants(
    predictor: LinearPredictor,
    family: Family,
    positions: Index,
    points: Sequence[Mapping[str, Any]],
    factors: Sequence[Vector],
) -> Matrix:
    """Constants of some rows without the common factors: the same at all `points`.

    Far away the form may not be recognised, for rounding: `at` then gives an infinite range.
    """
    found = []
    for k, (point, factor) in enumerate(zip(points, factors, strict=True)):
        constants = family.identify(GRID, predictor.slopes(GRID, positions, point))
        if constants is not None and np.all(np.isfinite(factor)):
            found.append((_divided(constants, factor), TOLERANCE if k < 2 else _FAR_TOLERANCE))
        elif k < 2:
            raise UnboundedError(
                f"Some rows of the term {predictor.name!r} are not {family.name} terms as others are."
            )
    if not all(_equal(found[0][0], constants, tolerance) for constants, tolerance in found):
        names = ", ".join(map(repr, predictor.others))
        raise UnboundedError(
            f"The rows of the term {predictor.name!r} do not change in proportion with the variables of "
            f"other steps ({names}), so that their bounds would have to be computed anew for every row."
        )
    return found[0][0]


def _factors(
    predictor: LinearPredictor, family: Family, references: Index, point: Mapping[str, Any]
) -> Vector:
    """Constants of the reference rows; ones if there are none."""
    if not len(references):
        return np.ones(family.n_factors)
    constants = family.identify(GRID, predictor.slopes(GRID, references, point))
    if constants is None:
        return np.full(family.n_factors, np.nan)
    factors = np.diagonal(constants).copy()
    factors[factors == 0.0] = 1.0  # constants that are zero in all rows
    return factors


def _divided(constants: Matrix, factors: Vector) -> Matrix:
    result = constants.copy()
    result[:, : len(factors)] /= factors
    return result


def chunks(predictor: Predictor, positions: Index) -> list[Index]:
    """Cut row numbers into pieces that fit in the cache."""
    length = int(np.clip(_CHUNK_BUDGET // predictor.n_dim**2, _SMALLEST_CHUNK, _LARGEST_CHUNK))
    return [positions[a : a + length] for a in range(0, len(positions), length)]


@register_jitable
def certified_interval(
    certificates: tuple[RangeCertificate, ...], q_new: Vector, q: Vector
) -> tuple[float, float]:
    """An interval that contains l_i(q_new) - l_i(q) for all rows of all terms, in O(D^2)."""
    low, high = math.inf, -math.inf
    for certificate in certificates:
        code = certificate.code
        if code == bounded.CODE:
            a, b = bounded.interval(certificate, q_new, q)
        elif code == normal.CODE:
            a, b = normal.interval(certificate, q_new, q)
        elif code == poisson.CODE:
            a, b = poisson.interval(certificate, q_new, q)
        else:
            a, b = _binary_interval(certificate, q_new, q)
        if not (a <= b):  # not a number
            return -math.inf, math.inf
        low, high = min(low, a), max(high, b)
    # The constants were found, and verified, up to this.
    pad = TOLERANCE * max(abs(low), abs(high))
    return low - pad, high + pad


@register_jitable
def certified_range(certificates: tuple[RangeCertificate, ...], q_new: Vector, q: Vector) -> float:
    """A number that max_i - min_i of the log ratios of all rows of all terms does not exceed."""
    low, high = certified_interval(certificates, q_new, q)
    width = high - low
    return width if width >= 0.0 else math.inf


@register_jitable
def _binary_interval(certificate: RangeCertificate, q_new: Vector, q: Vector) -> tuple[float, float]:
    """The interval of a term of binary responses; one function for all links, as it is slow to compile."""
    low, high = math.inf, -math.inf
    for response in range(2):
        cloud = certificate.first if response == 1 else certificate.second
        if cloud.n_points > 0:
            eta_low, eta_high, s_low, s_high = binary.reach(cloud, q_new, q)
            if certificate.code == logistic.CODE:
                a, b = logistic.slopes_between(response, eta_low, eta_high)
            elif certificate.code == probit.CODE:
                a, b = probit.slopes_between(response, eta_low, eta_high)
            else:
                a, b = cloglog.slopes_between(response, eta_low, eta_high)
            a, b = product(a, b, s_low, s_high)
            low, high = min(low, a), max(high, b)
    return low, high
