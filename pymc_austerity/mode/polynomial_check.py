"""Are the Taylor polynomials that are computed from single rows those whose sum the log density has?

Where rows are on disk the derivatives of a row are graphs, and sums over all rows come from passes that
differentiate expressions. If the two differed by more than rounding, no decision would be right.
"""

from __future__ import annotations

import math

import numpy as np
from pymc.initial_point import PointType

from pymc_austerity.bounds.row_function import evenly_spaced
from pymc_austerity.exceptions import SelfCheckError
from pymc_austerity.mode.mode_fit import FittedTerms
from pymc_austerity.model.factorisation import point_of
from pymc_austerity.model.structure.differentiable import Differentiable
from pymc_austerity.model.structure.local_terms import LocalTerms

# Rows that are compared, and by how much their sums may differ, relative to the terms.
_ROWS, _TOLERANCE = 300, 1e-9
_SEED = 2031


def require_polynomials(found: FittedTerms, point: PointType) -> None:
    """Compare the sum of some polynomials with that of their gradients and Hessians.

    Parameters
    ----------
    found : FittedTerms
        With an expansion.
    point : dict
        Values of all variables.

    Raises
    ------
    SelfCheckError
    """
    fact, mode_fit, expansion = found.structure.factorisation, found.mode_fit, found.mode_fit.expansion
    assert expansion is not None
    some = evenly_spaced(fact.n_local, _ROWS)
    # As far as the posterior of so many rows reaches.
    far = math.sqrt(fact.n_local / len(some))
    q = mode_fit.drawn(mode_fit.at, np.random.default_rng(_SEED))
    q[mode_fit.free] = mode_fit.at[mode_fit.free] + far * (q - mode_fit.proxy.mode)[mode_fit.free]
    there = point_of(fact, q, point)
    terms, remainders = LocalTerms(fact)(there, some), LocalTerms(found.expanded)(there, some)
    total = Differentiable(found.structure, point).likelihood(some).at(expansion.center).total
    with np.errstate(all="ignore"):
        d = found.features(q) - expansion.center
        wanted = total.gradient @ d + (0.5 * d @ total.hessian @ d if expansion.order == 2 else 0.0)
        summed = float((terms - remainders).sum())
        scale = 1.0 + float(np.abs(terms).sum() + np.abs(remainders).sum()) + abs(wanted)
    if np.isfinite(wanted) and not abs(summed - wanted) <= _TOLERANCE * scale:
        raise SelfCheckError(
            f"Self-check failed: the Taylor polynomials of {len(some)} rows add up to {summed!r}, their "
            f"gradients and Hessians to {wanted!r}. This is a defect of pymc_austerity: please report the "
            "model."
        )
