"""Certified bounds on the log ratios of all local terms: made in one pass, evaluated without any.

The certificate of a family says what is enclosed of the rows of a term (`points`), and what the enclosures
tell of all log ratios (`interval`); see `families.range_certificate`.

The scale of normal errors, say, may be a variable of another step. Constants of rows then change by a factor
that all rows have in common, and what is certified of the ratios between rows stays true. The factor is read
off a *reference* row, one for each constant. That all rows change in proportion is verified at other values
of these variables, near and far.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import literal_unroll

from pymc_austerity.bounds.enclosure import EnclosureBuilder
from pymc_austerity.bounds.families.base import GRID, TOLERANCE, Family
from pymc_austerity.bounds.families.range_certificate import RangeCertificate
from pymc_austerity.bounds.families.recognise import NEAR, constants_are_equal, recognise, with_others_moved
from pymc_austerity.bounds.row_function import chunks
from pymc_austerity.compilation import jitable
from pymc_austerity.exceptions import UnboundedError
from pymc_austerity.target import Index, LinearPredictor, Matrix, Vector

# Distances to which variables of other steps are moved to see whether rows change in proportion.
_FAR, _FAR_TOLERANCE = (3.0, -3.0, 10.0, -10.0), 1e-4


@dataclass(frozen=True)
class RangeCertificates:
    """Bounds on the log ratios of some terms, kept up to date with the variables of other steps."""

    # One for each term, as they were at the point given to `certify`: what `certified_range` takes
    certificates: tuple[RangeCertificate, ...]
    predictors: tuple[LinearPredictor, ...]
    families: tuple[Family, ...]
    # For each term, rows that stand for the common factor of each constant; empty if nothing changes
    references: tuple[Index, ...]

    def at(self, point: Mapping[str, Any]) -> tuple[RangeCertificate, ...]:
        """The certificates at `point`, at the cost of a few rows.

        Where the form of a term is not recognised any more, at extreme values of other variables, its
        factors are not numbers, and its range is infinite.
        """
        terms = zip(self.certificates, self.predictors, self.families, self.references, strict=True)
        return tuple(
            certificate._replace(factors=_padded(factors_at(predictor, family, references, point)))
            if len(references)
            else certificate
            for certificate, predictor, family, references in terms
        )


def certify(predictors: Sequence[LinearPredictor], point: Mapping[str, Any]) -> RangeCertificates:
    """Make certificates for some terms, in one pass over their rows.

    Variables of other steps have their values at `point`. Raises UnboundedError if a term is of no known
    form; the message names it.
    """
    made = [_certificate_of(predictor, point) for predictor in predictors]
    return RangeCertificates(
        certificates=tuple(certificate for certificate, _, _ in made),
        predictors=tuple(predictors),
        families=tuple(family for _, family, _ in made),
        references=tuple(references for _, _, references in made),
    )


def _certificate_of(
    predictor: LinearPredictor, point: Mapping[str, Any]
) -> tuple[RangeCertificate, Family, Index]:
    """The certificate of a term, its family, and the rows that its common factors are read off."""
    family, sample, constants = recognise(predictor, point)
    points_of = family.certificate.points
    references: Index = np.empty(0, dtype=np.int64)  # none if nothing changes
    if predictor.others:
        references = sample[np.abs(constants[:, : family.certificate.n_factors]).argmax(axis=0)]
    # If there are other variables, their values near by and then far away verify the factors.
    distances = (NEAR, *_FAR) if predictor.others else ()
    others_at = [point, *(with_others_moved(predictor, point, distance) for distance in distances)]
    factors = [factors_at(predictor, family, references, other) for other in others_at]

    constants = without_factors(constants, factors[0])
    portions = chunks(predictor, len(sample))
    parts = [points_of(predictor.rows(sample[some]), constants[some]) for some in portions]
    first, second = (EnclosureBuilder(np.concatenate(some)) for some in zip(*parts, strict=True))

    least, largest = np.inf, -np.inf
    for positions in chunks(predictor, predictor.n_rows):
        constants = proportional_constants(predictor, family, positions, others_at, factors)
        a, b = points_of(predictor.rows(positions), constants)
        first.add(a)
        second.add(b)
        least, largest = min(least, constants[:, 0].min()), max(largest, constants[:, 0].max())
    certificate = family.certificate(
        _padded(factors[0]), float(least), float(largest), first.enclosure(), second.enclosure()
    )
    return certificate, family, references


def _padded(factors: Vector) -> Vector:
    """Two factors: constants that have none keep their values."""
    return np.array([*factors, *np.ones(2 - len(factors))])


# Common factors of the constants of all rows ---------------------------------------------------------


def factors_at(
    predictor: LinearPredictor, family: Family, references: Index, point: Mapping[str, Any]
) -> Vector:
    """Constants of the reference rows; ones if there are none, and not numbers if the form is not found."""
    n_factors = family.certificate.n_factors
    if not len(references):
        return np.ones(n_factors)
    constants = family.identify(GRID, predictor.slopes(GRID, references, point))
    if constants is None:
        return np.full(n_factors, np.nan)
    factors = np.diagonal(constants).copy()
    factors[factors == 0.0] = 1.0  # constants that are zero in all rows
    return factors


def without_factors(constants: Matrix, factors: Vector) -> Matrix:
    """Constants of rows, the first divided by their common factors."""
    result = constants.copy()
    result[:, : len(factors)] /= factors
    return result


def proportional_constants(
    predictor: LinearPredictor,
    family: Family,
    positions: Index,
    points: Sequence[Mapping[str, Any]],
    factors: Sequence[Vector],
) -> Matrix:
    """Constants of some rows over the common factors, if these are the same at all `points`.

    Far away the form may not be recognised, for rounding: `factors_at` then gives no numbers, and the range
    is infinite. Raises UnboundedError if a row is not of the family, or does not change in proportion with
    others.
    """
    found = []
    for k, (point, factor) in enumerate(zip(points, factors, strict=True)):
        is_near = k < 2
        constants = family.identify(GRID, predictor.slopes(GRID, positions, point))
        if constants is not None and np.all(np.isfinite(factor)):
            tolerance = TOLERANCE if is_near else _FAR_TOLERANCE
            found.append((without_factors(constants, factor), tolerance))
        elif is_near:
            raise UnboundedError(
                f"Some rows of the term {predictor.name!r} are not {family.name} terms as others are."
            )
    here = found[0][0]
    if not all(constants_are_equal(here, constants, tolerance) for constants, tolerance in found):
        names = ", ".join(map(repr, predictor.others))
        raise UnboundedError(
            f"The rows of the term {predictor.name!r} do not change in proportion with the variables of "
            f"other steps ({names}), so that their bounds would have to be computed anew for every row."
        )
    return here


# Evaluated ------------------------------------------------------------------------------------------


@jitable
def certified_interval(
    certificates: tuple[RangeCertificate, ...], q_new: Vector, q: Vector
) -> tuple[float, float]:
    """An interval that contains l_i(q_new) - l_i(q) for all rows of all terms, in O(D^2)."""
    low, high, are_numbers = math.inf, -math.inf, True
    for certificate in literal_unroll(certificates):  # each may be of another class
        a, b = certificate.interval(q_new, q)
        are_numbers = are_numbers and a <= b
        low, high = min(low, a), max(high, b)
    if not are_numbers:
        return -math.inf, math.inf
    # The constants were found, and verified, up to this.
    pad = TOLERANCE * max(abs(low), abs(high))
    return low - pad, high + pad


@jitable
def certified_range(certificates: tuple[RangeCertificate, ...], q_new: Vector, q: Vector) -> float:
    """A number that max_i - min_i of the log ratios of all rows of all terms does not exceed."""
    low, high = certified_interval(certificates, q_new, q)
    width = high - low
    return width if width >= 0.0 else math.inf
