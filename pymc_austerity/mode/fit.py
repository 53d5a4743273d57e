"""Find the mode of a block, expand the local terms there, and measure what is left of them.

One search for the mode serves the control variate and the proposal. A user may give the point to expand at,
and then there is no search.
"""

import logging
import math
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import pymc as pm
from pymc.initial_point import PointType
from pytensor.graph.traversal import ancestors

from pymc_austerity import work
from pymc_austerity.bounds.row_function import evenly_spaced
from pymc_austerity.control_variates.taylor import Taylor
from pymc_austerity.exceptions import NoNormalApproximationError, SelfCheckError, UnsuitableError, warn
from pymc_austerity.mode.expansion import expand
from pymc_austerity.mode.mode_fit import ADVICE, FittedTerms, ModeFit, ModeReport
from pymc_austerity.mode.newton import Maximum, are_finite, flat_direction, maximum_at
from pymc_austerity.mode.remainders import certified, measured
from pymc_austerity.mode.search import BlockPosterior, ModeSearch
from pymc_austerity.model.factorisation import Factorisation, point_of, row_operations
from pymc_austerity.model.starting_point import require_finite
from pymc_austerity.model.structure.differentiable import Differentiable
from pymc_austerity.model.structure.feature_map import FeatureMap
from pymc_austerity.model.structure.local_terms import LocalTerms
from pymc_austerity.model.structure.log_likelihood import Elsewhere
from pymc_austerity.model.structure.term_structure import TermStructure
from pymc_austerity.progress import stage
from pymc_austerity.target import Expansion, Matrix, QuadraticProxy, Vector

logger = logging.getLogger(__name__)

# Rows on which it is tried whether the density is finite where the search starts.
_ENOUGH_ROWS = 100_000
# Standard deviations from the mode at which a given point is called far.
_OFF = 3.0
# Draws of the fitted distribution that tell how far features go.
_MOMENT_DRAWS, _MOMENT_SEED = 2000, 2021
# By how much their second moment along a direction may exceed that to first order. It does, by less, where
# the normal distribution of q is wider than the posterior, as along the ridge of mu + tau z.
_CURVED = 10.0
# Smallest second moment, relative to the largest.
_FLOOR = 1e-12
# Rows that are compared, and by how much their sums may differ, relative to the terms.
_CHECKED_ROWS, _TOLERANCE = 300, 1e-9
_CHECK_SEED = 2031


def fit_mode(
    model: pm.Model,
    structure: TermStructure,
    point: PointType,
    taylor: Taylor | None,
    *,
    whole_block: bool,
    certify: bool = True,
    elsewhere: Elsewhere | None = None,
) -> FittedTerms:
    """Find the posterior mode of a block, and expand the local terms there, if `taylor` is given.

    Variables outside the block stay at `point`, and without `whole_block` also those of the block that no
    local term contains. With `certify` a bound on all remainders together is looked for. `elsewhere` computes
    sums over all rows in other processes.

    `UnsuitableError` is raised if there is no mode, if the local terms depend on variables outside the block,
    if the block has too many dimensions, or if the log density is not finite at `point`.
    """
    started = time.perf_counter()
    fact = structure.factorisation
    if taylor is not None:
        _refuse_others(fact)
    n_dim = sum(np.size(point[name]) for name in fact.var_names)
    n_exact = 0 if taylor is None else taylor.check_size(n_dim, fact.n_local)
    work.sized(fact.n_rows, n_dim, row_operations(fact))
    require_finite(fact, point, _ENOUGH_ROWS)  # the rest when a chain starts
    if taylor is not None and taylor.center != "mode":
        _require_values(fact, taylor.center)
        given = {**point, **{name: np.asarray(taylor.center[name]) for name in fact.var_names}}
        posterior = BlockPosterior(structure, given, whole_block=whole_block, elsewhere=elsewhere)
        located = _at_start(posterior), 0, 0
    else:
        posterior = BlockPosterior(structure, point, whole_block=whole_block, elsewhere=elsewhere)
        try:
            located = ModeSearch(model, posterior, point).run()
        except NoNormalApproximationError:
            require_finite(fact, point)  # if a row is impossible, that says more
            raise
    found = FittedTerms(_normal_fit(posterior, *located, started), fact, structure, posterior.likelihood)
    if taylor is not None:
        stage("expansion", f" of {fact.n_rows:,} rows")
        found = _with_expansion(found, int(taylor.order))
        if fact.rows_on_disk:
            _require_polynomials(found, point)
        if certify:
            found = certified(found, n_exact)
        found = measured(found, point, n_exact if certify else 0)
        report = found.mode_fit.report
        report = report._replace(passes=posterior.likelihood.passes, seconds=time.perf_counter() - started)
        found = found._replace(mode_fit=found.mode_fit._replace(report=report))
        if report.is_poor:
            warn(
                "The posterior is far from the normal distribution fitted at its mode: independent draws of "
                f"that would be accepted at a rate of about {report.acceptance:.2f}, and its log density is "
                f"off by {report.remainder_sd:.2g}. {ADVICE}"
            )
    logger.info("%s", found.mode_fit.report)
    return found


def expanded_again(structure: TermStructure, point: PointType, mode_fit: ModeFit) -> FittedTerms:
    """Fitted terms in another process, from a mode fit that was sent there without them."""
    likelihood = Differentiable(structure, point).likelihood()
    expanded = structure.factorisation
    if mode_fit.expansion is not None:
        slopes = likelihood.slopes(mode_fit.expansion.center)
        expanded = expand(structure, mode_fit.expansion, slopes)
    return FittedTerms(mode_fit, expanded, structure, likelihood)


def _normal_fit(
    posterior: BlockPosterior, maximum: Maximum, n_starts: int, n_modes: int, started: float
) -> ModeFit:
    """The normal distribution at the mode, from the curvature where it was located."""
    mode = posterior.whole(maximum.mode)
    whiten, unwhiten = QuadraticProxy(maximum.q, maximum.precision).factors()
    scale = np.sqrt(np.diag(maximum.precision))
    return ModeFit(
        proxy=QuadraticProxy(mode, posterior.whole_precision(maximum.q, maximum.precision)),
        free=posterior.free,
        whiten=whiten,
        unwhiten=unwhiten,
        report=ModeReport(
            passes=posterior.likelihood.passes,
            gradient_norm=maximum.gradient_norm,
            condition=float(np.linalg.cond(maximum.precision / np.outer(scale, scale))),
            seconds=time.perf_counter() - started,
            n_starts=n_starts,
            n_modes=n_modes,
        ),
        at=posterior.whole(maximum.q),
    )


def _with_expansion(found: FittedTerms, order: int) -> FittedTerms:
    """The local terms expanded where they were located, by one pass over the data."""
    mode_fit, features = found.mode_fit, found.features
    phi = features(mode_fit.at)
    total = found.likelihood.at(phi).total
    expansion = Expansion(order, phi, total.gradient, total.hessian)
    of_features = None
    if found.structure.features is not None:
        _, unwhiten = mode_fit.padded_factors()
        of_features = feature_factors(features, mode_fit.at, mode_fit.proxy.mode, unwhiten)
    return found._replace(
        mode_fit=mode_fit._replace(expansion=expansion, of_features=of_features),
        expanded=expand(found.structure, expansion, found.likelihood.slopes(phi)),
    )


def feature_factors(
    features: FeatureMap, at: Vector, mode: Vector, unwhiten: Matrix
) -> tuple[Matrix, Matrix]:
    """Whitening W and its inverse V, both (p, p), of the features phi of a block, in which bounds are stated.

    Draws of q are mode + unwhiten z, with `unwhiten` (D, d). Terms are expanded `at` a q, and moments are
    taken about phi there.

    The bounds of `bounds.remainder` hold for any invertible W, and are tight for a W in which the posterior
    of phi(q) is round. To first order that has the covariance J S J', with J the Jacobian of phi and S the
    covariance of q. In some directions this may be nothing, or much less than what draws of q have: where
    there are more features than variables, or J happens to be small at the mode. There the draws tell how far
    phi goes. Where that is nothing, too (simplex weights add up to one), W is held back so that it stays
    invertible.
    """
    tangent = features.jacobian(at) @ unwhiten
    z = np.random.default_rng(_MOMENT_SEED).standard_normal((_MOMENT_DRAWS, unwhiten.shape[1]))
    away = np.array([features(mode + unwhiten @ each) for each in z]) - features(at)
    away = away[np.all(np.isfinite(away), axis=1)]
    scale = np.sqrt((tangent**2).sum(axis=1) + (away**2).mean(axis=0))
    scale[~(scale > 0.0)] = 1.0
    tangent, away = tangent / scale[:, None], away / scale
    first_order, vectors = np.linalg.eigh(tangent @ tangent.T)
    seen = ((away @ vectors) ** 2).mean(axis=0)
    moments = np.where(seen > _CURVED * np.maximum(first_order, 0.0), seen, first_order)
    sd = np.sqrt(np.maximum(moments, _FLOOR * moments.max()))
    return np.ascontiguousarray((vectors / sd).T / scale), np.ascontiguousarray(scale[:, None] * vectors * sd)


def _require_polynomials(found: FittedTerms, point: PointType) -> None:
    """Raise SelfCheckError if some polynomials do not add up to what their gradients and Hessians tell.

    Where rows are on disk the derivatives of a row are graphs, and sums over all rows come from passes that
    differentiate expressions. If the two differed by more than rounding, no decision would be right.
    """
    fact, mode_fit, expansion = found.structure.factorisation, found.mode_fit, found.mode_fit.expansion
    assert expansion is not None
    some = evenly_spaced(fact.n_local, _CHECKED_ROWS)
    # As far as the posterior of so many rows reaches.
    far = math.sqrt(fact.n_local / len(some))
    q = mode_fit.drawn(mode_fit.at, np.random.default_rng(_CHECK_SEED))
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


def _require_values(fact: Factorisation, center: Mapping[str, Any]) -> None:
    """Raise ValueError unless `center` has a value of the right shape for each variable of the block."""
    missing = [name for name in fact.var_names if name not in center]
    if missing:
        raise ValueError(
            f"center has no value for {', '.join(missing)}: it needs one for each value variable of the "
            "step, on the unconstrained scale, as in model.initial_point()."
        )
    values = fact.graph.values
    unknown = [name for name in center if name not in values]
    if unknown:
        raise ValueError(
            f"center has values for {', '.join(unknown)}, which are no value variables of the model: "
            f"these are {', '.join(values)}."
        )
    for name in fact.var_names:
        shape = values[name].type.shape
        if np.shape(center[name]) != shape:
            raise ValueError(f"center[{name!r}] must have shape {shape}, got {np.shape(center[name])}.")


def _at_start(posterior: BlockPosterior) -> Maximum:
    """Value and curvature at the posterior's own point, and the Newton step from there to the mode.

    Raises ValueError if there is no normal approximation.
    """
    q = posterior.start
    value, gradient, hessian = posterior.density()(q[posterior.free])
    if not are_finite(q, value, gradient, hessian):
        raise ValueError("The log density or a derivative of it is not finite at the given center.")
    flat = flat_direction(-hessian)
    if flat is not None:
        raise ValueError(
            "The log density is not concave at the given center along "
            f"{', '.join(posterior.leading(flat))}: there is no normal approximation there. "
            'Give a point nearer to the mode, or center="mode".'
        )
    found = maximum_at(q[posterior.free], value, gradient, hessian, 1)
    if found.gradient_norm > _OFF:
        warn(
            f"The given center is {found.gradient_norm:.3g} standard deviations from the mode, as far as its "
            'curvature tells. Steps will read more rows than with center="mode".'
        )
    return found
