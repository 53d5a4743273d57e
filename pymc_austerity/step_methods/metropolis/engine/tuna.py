"""The compiled transitions of `TunaMH`, and the bounds they draw rows by."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from pymc.initial_point import PointType

from pymc_austerity.bounds.row_constants import Curvature
from pymc_austerity.bounds.row_sampler import Thinning, thinning_of, tier_and_expected
from pymc_austerity.exceptions import UnboundedError
from pymc_austerity.kernels.metropolis import Outcome
from pymc_austerity.kernels.tuna import tuna_transitions
from pymc_austerity.mode.mode_fit import Found
from pymc_austerity.model.compile.target import CompiledTarget
from pymc_austerity.model.factorisation import Factorisation, point_of
from pymc_austerity.model.structure.local_terms import LocalTerms
from pymc_austerity.proposals.base import BoundProposal
from pymc_austerity.step_methods.metropolis.engine.base import CompiledKernel

# Where rounding is measured: standard deviations from the centre (nearer than the chain, so that what is seen
# of a wrong bound is much less than what the chain will see), and rows.
_DISTANCES, _ROWS, _SEED = (1e-4, 1e-2, 0.1), 10_000, 2019
# More than this, relative to a term, is not rounding; what may be met is some times what was seen.
_ROUNDING, _MARGIN = 1e-6, 16.0


class ThinnedEngine(CompiledKernel):
    """Transitions of `kernels.tuna`.

    Parameters
    ----------
    factorisation : Factorisation
        Whose local terms are remainders.
    thinning : Thinning
    chi : float
    debug : bool
        Whether terms larger than their bounds are only counted.
    proposal : BoundProposal
    q, point : ndarray, dict
        A state, and the values of all variables, to compile with.
    """

    def __init__(
        self,
        factorisation: Factorisation,
        thinning: Thinning,
        chi: float,
        debug: bool,
        proposal: BoundProposal,
        q: np.ndarray,
        point: PointType,
    ) -> None:
        self.n_local = self.n_others = factorisation.n_local
        self.thinning = thinning
        self._chi, self._debug = chi, debug
        self._target = CompiledTarget(factorisation)
        features = factorisation.features is not None
        self._compile(tuna_transitions, {}, proposal, q, point, features=features)

    def restart(self) -> None:
        """Begin to count violations."""
        self._violations = np.zeros(1, dtype=np.int64)

    def take_violations(self) -> float:
        """Terms larger than their bounds since the last call."""
        count = float(self._violations[0])
        self._violations[0] = 0
        return count

    def run(
        self,
        n: int,
        tune: bool,
        rng: np.random.Generator,
        q: np.ndarray,
        point: PointType,
        proposal_state: Any,
    ) -> Outcome:
        """Make n transitions from q; `point` has the values of the other variables."""
        outcome: Outcome = self._call(
            proposal_state,
            n,
            tune,
            rng,
            q,
            self._target.args(point),
            self.thinning,
            self._chi,
            self._violations,
            self._debug,
            proposal_state,
        )
        return outcome


class NoBoundError(UnboundedError):
    """There is a term whose remainders have no known bound; `reason` says which, and why."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"TunaMH needs a bound on the Taylor remainder of every local term: {self.reason.rstrip('.')}. "
            "Give curvature for a term with a linear predictor, or use "
            "AusterityMH(control_variate=Taylor()), which needs no bound."
        )


def make_thinning(
    fact: Factorisation,
    found: Found,
    point: PointType,
    curvature: Mapping[str, Curvature],
    most: float,
) -> Thinning:
    """Bounds on the remainders of all local terms.

    Raises
    ------
    NoBoundError
        If none is known for a term.
    ValueError
        If `curvature` is given for something else.
    """
    names = [name for name, _ in fact.local_terms]
    unknown = [name for name in curvature if name not in names]
    if unknown:
        raise ValueError(
            f"curvature is given for {', '.join(map(repr, unknown))}, but the local terms of the model are "
            f"{', '.join(map(repr, names))}."
        )
    centre = found.centre
    assert centre.expansion is not None
    whitening, directions = centre.bound_factors()
    try:
        thinning = thinning_of(
            found.predictors,
            point,
            centre.expansion.centre,
            directions,
            whitening,
            centre.expansion.order,
            centre.rounding,
            most,
            curvature,
        )
    except UnboundedError as error:
        raise NoBoundError(str(error)) from None
    return thinning._replace(rounding=_allowance(thinning, found, point))


def _allowance(thinning: Thinning, found: Found, point: PointType) -> float:
    """What rounding adds to remainders: the most that is seen beyond their bounds, with a margin.

    It is measured at several distances from the centre, on the rows with the largest bounds and some others.
    """
    n_local = thinning.constants.shape[1]
    rng = np.random.default_rng(_SEED)
    some = np.arange(n_local)
    if n_local > 2 * _ROWS:
        largest = np.argpartition(thinning.constants[0], n_local - _ROWS)[-_ROWS:]
        some = np.union1d(largest, rng.choice(n_local, _ROWS, replace=False))
    terms, features, centre = LocalTerms(found.expanded), found.features, found.centre.at
    _, directions = found.centre.padded_factors()
    here = terms(point_of(found.expanded, centre, point), some)
    allowance = thinning.rounding
    for distance in _DISTANCES:
        q = centre + distance * directions @ rng.standard_normal(directions.shape[1])
        change = np.abs(terms(point_of(found.expanded, q, point), some) - here)
        tier, expected = tier_and_expected(thinning, features(q), thinning.centre)
        if not 0.0 < expected < math.inf:
            continue
        excess = change - thinning.constants[tier, some] / thinning.totals[tier] * expected
        excess = excess[excess < _ROUNDING * (1.0 + np.abs(here))]  # larger ones are for the chain to report
        allowance = max(allowance, _MARGIN * float(excess.max(initial=0.0)))
    return allowance
