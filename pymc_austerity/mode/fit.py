"""Find the mode of a block, expand the local terms there, and measure what is left of them.

One search for the mode serves the control variate and the proposal.
"""

from __future__ import annotations

import logging
import time

import numpy as np
import pymc as pm
from pymc.initial_point import PointType
from pytensor.graph.traversal import ancestors

from pymc_austerity.bounds.remainder import certify_remainders
from pymc_austerity.control_variates.taylor import Taylor
from pymc_austerity.exceptions import UnboundedError, UnsuitableError
from pymc_austerity.kernels.stratum import NO_STRATUM
from pymc_austerity.mode.expansion import expand
from pymc_austerity.mode.mode_fit import Centre, CentreReport, Found, warn_if_poor
from pymc_austerity.mode.newton import Maximum
from pymc_austerity.mode.search import ModeSearch
from pymc_austerity.mode.whitening import feature_factors
from pymc_austerity.model.factorisation import Factorisation, point_of
from pymc_austerity.model.graph.rewrite import INTERPRETED_STABLE
from pymc_austerity.model.starting_point import require_finite
from pymc_austerity.model.structure.differentiable import Differentiable
from pymc_austerity.model.structure.local_terms import LocalTerms
from pymc_austerity.model.structure.term_structure import TermStructure
from pymc_austerity.target import Expansion, QuadraticProxy, Vector

logger = logging.getLogger(__name__)

# Draws of the fitted law on which remainders are measured.
_DRAWS = 8
# Rows that tell their sums.
_ENOUGH_ROWS = 100_000
_SEED = 2017
# Remainders this near to the centre, in standard deviations, are all rounding; the largest that may be met is
# taken to be some times as large.
_TINY, _SAFETY = 1e-8, 16.0


def find_centre(
    model: pm.Model,
    structure: TermStructure,
    point: PointType,
    taylor: Taylor | None,
    *,
    whole_block: bool,
    certify: bool = True,
) -> Found:
    """Find the posterior mode of a block, and expand the local terms there.

    Parameters
    ----------
    model : pymc.Model
    structure : TermStructure
        Of the local terms.
    point : dict
        Values of all variables. Those outside the block stay there, and without `whole_block` also those of
        the block that no local term contains.
    taylor : Taylor, optional
        Expand the local terms.
    whole_block : bool
    certify : bool
        Look for a bound on all remainders together.

    Returns
    -------
    Found

    Raises
    ------
    UnsuitableError
        If there is no mode, if the local terms depend on variables outside the block, if the block has too
        many dimensions, or if the log density is not finite at `point`.
    """
    started = time.perf_counter()
    fact = structure.factorisation
    if taylor is not None:
        _refuse_others(fact)
    n_dim = sum(np.size(point[name]) for name in fact.var_names)
    n_exact = 0 if taylor is None else taylor.check_size(n_dim, fact.n_local)
    require_finite(fact, point)
    search = ModeSearch(model, structure, point, whole_block=whole_block)
    if taylor is not None and taylor.center != "mode":
        found, n_modes = search.at(taylor.center), 0
    else:
        found, n_modes = search.run()
    mode = search.whole(found.q + search.newton_step)
    proxy = QuadraticProxy(mode, search.precision(found))
    scale = np.sqrt(np.diag(found.precision))
    report = CentreReport(
        passes=search.passes,
        gradient_norm=found.gradient_norm,
        condition=float(np.linalg.cond(found.precision / np.outer(scale, scale))),
        seconds=time.perf_counter() - started,
        n_starts=search.n_starts,
        n_modes=n_modes,
        acceptance=np.nan,
        remainder_sd=np.nan,
    )
    factors = QuadraticProxy(found.q, found.precision).factors()
    at = search.whole(found.q)
    centre = Centre(
        proxy, None, NO_STRATUM.rows, None, "no bound was looked for", 0.0, search.free, *factors, report, at
    )
    expanded = fact
    if taylor is not None:
        phi = search.likelihood.features(at)
        there = search.likelihood.at(phi)
        expansion = Expansion(int(taylor.order), phi, there.total.gradient, there.total.hessian)
        centre = centre._replace(expansion=expansion)
        if structure.features is not None:
            _, colour = centre.padded_factors()
            of_features = feature_factors(search.likelihood.features, at, mode, colour)
            centre = centre._replace(of_features=of_features)
        expanded = expand(structure, expansion, there.slopes)
        if certify:
            found_there = Found(centre, expanded, structure, search.likelihood)
            centre = _certified(found_there, point, n_exact)
        centre = _measured(centre, expanded, search, found, point, n_exact if certify else 0)
        report = centre.report._replace(passes=search.passes + 1, seconds=time.perf_counter() - started)
        centre = centre._replace(report=report)
        warn_if_poor(report)
    logger.info("%s", centre.report)
    return Found(centre, expanded, structure, search.likelihood)


def expanded_again(structure: TermStructure, point: PointType, centre: Centre) -> Found:
    """What `find_centre` returned to another process, which sent no more than the centre."""
    likelihood = Differentiable(structure, point).likelihood()
    expanded = structure.factorisation
    if centre.expansion is not None:
        slopes = likelihood.slopes(centre.expansion.centre)
        expanded = expand(structure, centre.expansion, slopes)
    return Found(centre, expanded, structure, likelihood)


def _measured(
    centre: Centre,
    expanded: Factorisation,
    search: ModeSearch,
    found: Maximum,
    point: PointType,
    n_exact: int,
) -> Centre:
    """Remainders on draws of the fitted law; without a certificate they choose the exact rows."""
    n_local = expanded.n_local
    terms = LocalTerms(expanded)
    prior = expanded.compile(expanded.global_graph, [], mode=INTERPRETED_STABLE)
    rng = np.random.default_rng(_SEED)
    z = rng.standard_normal((_DRAWS, len(found.q)))
    mode = found.q + search.newton_step
    states = [point_of(expanded, search.whole(mode + centre.colour @ each), point) for each in z]
    at_centre = terms(point_of(expanded, search.whole(found.q), point))
    some = np.arange(n_local)
    exact = centre.exact
    if n_exact > 0 and centre.certificate is None:
        own = np.array([terms(there) - at_centre for there in states], dtype=np.float32)
        largest = np.nan_to_num(np.abs(own), nan=np.inf).max(axis=0)
        exact = np.sort(np.argsort(-largest, kind="stable")[:n_exact])
    elif n_local > _ENOUGH_ROWS:
        some = np.sort(rng.choice(n_local, _ENOUGH_ROWS, replace=False))
    # Sums over the others are known well enough from some of the rows.
    some = np.setdiff1d(some, exact, assume_unique=True)
    weight = (n_local - len(exact)) / len(some)
    sums, log_weights = np.empty(_DRAWS), np.empty(_DRAWS)
    for k, there in enumerate(states):
        sums[k] = weight * (terms(there, some) - at_centre[some]).sum()
        log_density = float(prior(*expanded.point_values(there), *expanded.leaf_values)) + sums[k]
        log_weights[k] = log_density + (terms(there, exact) - at_centre[exact]).sum() + 0.5 * z[k] @ z[k]
    near = point_of(expanded, search.whole(found.q + _TINY * centre.colour @ z[-1]), point)
    rounding = _SAFETY * float(np.abs(terms(near) - at_centre).max())
    certificate = centre.certificate
    if certificate is not None:
        certificate = certificate._replace(rounding=rounding)
    report = centre.report._replace(acceptance=_acceptance(log_weights), remainder_sd=float(sums.std(ddof=1)))
    return centre._replace(exact=exact, certificate=certificate, rounding=rounding, report=report)


def _refuse_others(fact: Factorisation) -> None:
    """Refuse local terms with variables that move apart from the block: the polynomial is expanded once."""
    for term in fact.locals:
        used = set(ancestors([term.rows]))
        others = [n for n, v in fact.graph.values.items() if n not in fact.var_names and v in used]
        discrete = [n for n in others if fact.graph.values[n].type.dtype != "float64"]
        fixed = (
            f"A Taylor polynomial expands the term {term.name!r} at fixed values of all its variables, but "
        )
        if discrete:
            raise UnsuitableError(
                f"{fixed}{', '.join(discrete)}, which it contains, is discrete. Use a step without "
                "control_variate."
            )
        if others:
            raise UnsuitableError(
                f"{fixed}{', '.join(others)} would be moved by another step. Put "
                f"{'it' if len(others) == 1 else 'them'} into the same step, or use one without "
                "control_variate."
            )


def _certified(found: Found, point: PointType, n_exact: int) -> Centre:
    """The centre with a certificate of the remainders, and the rows with the largest constants.

    Or with the reason why there is no certificate.
    """
    centre = found.centre
    assert centre.expansion is not None
    whiten, colour = centre.bound_factors()
    try:
        certificate, exact = certify_remainders(
            found.predictors,
            point,
            centre.expansion.centre,
            colour,
            whiten,
            centre.expansion.order,
            n_exact,
        )
    except UnboundedError as error:
        return centre._replace(no_certificate=str(error))
    return centre._replace(certificate=certificate, exact=exact)


def _acceptance(log_weights: Vector) -> float:
    """Acceptance rate of an independence sampler at equilibrium, from draws of its proposal.

    A chain is at draw i with probability w_i / sum(w), and moves to j with min(1, w_j / w_i).
    """
    n = len(log_weights)
    largest = np.nanmax(log_weights) if np.any(np.isfinite(log_weights)) else 0.0
    with np.errstate(all="ignore"):
        weights = np.nan_to_num(np.exp(log_weights - largest))
    smaller = np.minimum(weights[:, None], weights[None, :]).sum() - weights.sum()
    return float(smaller / ((n - 1) * weights.sum())) if weights.sum() > 0.0 else 0.0
