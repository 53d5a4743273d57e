"""Bounds on the log ratios of all rows, for a rule whose guarantee needs their range.

The remainder of order zero of a local term is the term itself, but for a constant. So what bounds remainders
(`bounds.remainder`) bounds log ratios: about the mode, in coordinates in which the posterior is round,

    |l_i(q') - l_i(q)| <= c_i |w' - w|,

with c_i the largest derivative of l_i along a unit vector within a distance of the mode. Where there is none,
as for rows without curvature, bounds are about the point where the chain is, in coordinates in which the rows
of the design are round.

Terms may contain variables that other steps move. Bounds are stated in all continuous variables of the terms
then, those of other steps included: a move leaves these where they are.
"""

from dataclasses import replace

import numpy as np
import pymc as pm
from pymc.initial_point import PointType
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors

from pymc_austerity.bounds.expressions.continuity import with_kinks_outside
from pymc_austerity.bounds.remainder import RemainderCertificate, certify_remainders
from pymc_austerity.bounds.row_constants import ExpansionCoordinates
from pymc_austerity.bounds.row_function import evenly_spaced
from pymc_austerity.exceptions import NoNormalApproximationError, UnboundedError
from pymc_austerity.mode.mode_fit import feature_factors, fit_mode
from pymc_austerity.model.factorisation import block_of, point_of
from pymc_austerity.model.graph.rewrite import one_vector
from pymc_austerity.model.structure.differentiable import Differentiable
from pymc_austerity.model.structure.local_terms import LocalTerms
from pymc_austerity.model.structure.predictors import block_and_others
from pymc_austerity.model.structure.term_structure import TermStructure

# Dimensions of the block with the variables of other steps, at most.
_MOST_DIMENSIONS = 500
# Rows that tell how large terms are, and rounding of one, relative to it.
_SOME_ROWS, _ROUNDING = 10_000, 2.0**-46
# Smallest squared length of predictors along a direction, of directions that are scaled to one.
_FLOOR = 1e-10


def with_others(structure: TermStructure) -> TermStructure:
    """The local terms as functions of all continuous variables that they contain."""
    fact = structure.factorisation
    _, others = block_and_others(fact)
    used = set(ancestors([term.rows for term in fact.locals]))
    moved = [name for name, var in others.items() if var in used and var.type.dtype == "float64"]
    return TermStructure(replace(fact, var_names=(*fact.var_names, *moved))) if moved else structure


def bounded_state(structure: TermStructure) -> Variable | None:
    """What bounds of log ratios are stated in, as a graph of value variables; None for the block itself."""
    wide = with_others(structure)
    if wide.features is not None:
        return wide.features.vector
    return None if wide is structure else one_vector(block_of(wide.factorisation))


def certify_log_ratios(model: pm.Model, structure: TermStructure, point: PointType) -> RemainderCertificate:
    """Bounds on the log ratios of all rows, in one pass over them, once the mode is found.

    Variables that are in no local term stay at `point`. Raises UnboundedError if a term is no function of few
    predictors, or nothing is known of its derivatives.
    """
    wide = with_others(structure)
    fact = wide.factorisation
    n_dim = sum(np.size(point[name]) for name in fact.var_names)
    if n_dim > _MOST_DIMENSIONS:
        raise UnboundedError(
            f"the local terms contain {n_dim} variables, with those of other steps, and bounds are known in "
            f"{_MOST_DIMENSIONS} dimensions at most"
        )
    functions = [one._replace(form=with_kinks_outside(one.expression)) for one in wide.row_functions]
    try:
        found = fit_mode(model, wide, point, None, whole_block=False)
    except NoNormalApproximationError:
        center, coordinates = point, _about_point(wide, point)
    else:
        fit = found.mode_fit
        whiten, unwhiten = fit.padded_factors()
        if wide.features is not None:
            whiten, unwhiten = feature_factors(found.features, fit.at, fit.proxy.mode, unwhiten)
        center = point_of(fact, fit.proxy.mode, point)
        coordinates = ExpansionCoordinates(0, found.features(fit.proxy.mode), unwhiten, whiten)
    certificate, _ = certify_remainders(functions, coordinates, 0)
    if not np.isfinite(certificate.constants[0]):
        own = (certify_remainders([one], coordinates, 0)[0].constants[0] for one in functions)
        name = next(one.name for one, largest in zip(functions, own, strict=True) if not np.isfinite(largest))
        raise UnboundedError(f"the slopes of some rows of the term {name!r} have no bound that is known")
    values = LocalTerms(fact)(center, evenly_spaced(fact.n_local, _SOME_ROWS))
    return certificate._replace(rounding=_ROUNDING * float(np.abs(values).max()))


def _about_point(structure: TermStructure, point: PointType) -> ExpansionCoordinates:
    """Coordinates about a point in which predictors are round, where rows have no curvature and no mode."""
    differentiable = Differentiable(structure, point)
    gram = np.zeros((differentiable.features.n_features,) * 2)
    for function in structure.row_functions:
        positions = evenly_spaced(function.n_rows, _SOME_ROWS)
        x = function.rows(positions)[..., :-1].reshape(-1, len(gram))
        gram += x.T @ x * (function.n_rows / len(positions))
    scale = np.sqrt(np.maximum(np.diag(gram), np.finfo(float).tiny))
    values, vectors = np.linalg.eigh(gram / np.outer(scale, scale))
    root = np.sqrt(np.maximum(values, _FLOOR))
    whiten, unwhiten = (vectors * root).T * scale, (vectors / root) / scale[:, None]
    return ExpansionCoordinates(0, differentiable.features(differentiable.start), unwhiten, whiten)
