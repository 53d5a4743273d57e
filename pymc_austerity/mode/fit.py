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

from pymc_austerity import work
from pymc_austerity.control_variates.taylor import Taylor
from pymc_austerity.exceptions import NoNormalApproximationError, UnsuitableError
from pymc_austerity.kernels.subsample import NO_ROWS
from pymc_austerity.mode.block_posterior import BlockPosterior
from pymc_austerity.mode.expansion import expand
from pymc_austerity.mode.given_center import located_at_start, require_values
from pymc_austerity.mode.mode_fit import FittedTerms, ModeFit, ModeReport, warn_if_poor
from pymc_austerity.mode.polynomial_check import require_polynomials
from pymc_austerity.mode.remainders import certified, measured
from pymc_austerity.mode.search import Located, ModeSearch
from pymc_austerity.mode.whitening import feature_factors
from pymc_austerity.model.factorisation import Factorisation, row_operations
from pymc_austerity.model.starting_point import require_finite
from pymc_austerity.model.structure.differentiable import Differentiable
from pymc_austerity.model.structure.log_likelihood import Elsewhere
from pymc_austerity.model.structure.term_structure import TermStructure
from pymc_austerity.progress import stage
from pymc_austerity.target import Expansion, QuadraticProxy

logger = logging.getLogger(__name__)

# Rows on which it is tried whether the density is finite where the search starts.
_ENOUGH_ROWS = 100_000


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
    elsewhere : callable, optional
        Computes sums over all rows in other processes.

    Returns
    -------
    FittedTerms

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
    work.sized(fact.n_rows, n_dim, row_operations(fact))
    require_finite(fact, point, _ENOUGH_ROWS)  # the rest when a chain starts
    if taylor is not None and taylor.center != "mode":
        require_values(fact, taylor.center)
        given = {**point, **{name: np.asarray(taylor.center[name]) for name in fact.var_names}}
        posterior = BlockPosterior(structure, given, whole_block=whole_block, elsewhere=elsewhere)
        located = located_at_start(posterior)
    else:
        posterior = BlockPosterior(structure, point, whole_block=whole_block, elsewhere=elsewhere)
        try:
            located = ModeSearch(model, posterior, point).run()
        except NoNormalApproximationError:
            require_finite(fact, point)  # if a row is impossible, that says more
            raise
    found = FittedTerms(_normal_fit(posterior, located, started), fact, structure, posterior.likelihood)
    if taylor is not None:
        stage("expansion", f" of {fact.n_rows:,} rows")
        found = _with_expansion(found, int(taylor.order))
        if fact.rows_on_disk:
            require_polynomials(found, point)
        if certify:
            found = certified(found, n_exact)
        found = measured(found, point, n_exact if certify else 0)
        report = found.mode_fit.report
        report = report._replace(passes=posterior.likelihood.passes, seconds=time.perf_counter() - started)
        found = found._replace(mode_fit=found.mode_fit._replace(report=report))
        warn_if_poor(report)
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


def _normal_fit(posterior: BlockPosterior, located: Located, started: float) -> ModeFit:
    """The normal distribution at the mode, from the curvature where it was located."""
    maximum = located.maximum
    mode = posterior.whole(maximum.mode)
    whiten, unwhiten = QuadraticProxy(maximum.q, maximum.precision).factors()
    scale = np.sqrt(np.diag(maximum.precision))
    return ModeFit(
        proxy=QuadraticProxy(mode, posterior.whole_precision(maximum.q, maximum.precision)),
        expansion=None,
        exact=NO_ROWS,
        certificate=None,
        no_certificate="no bound was looked for",
        rounding=0.0,
        free=posterior.free,
        whiten=whiten,
        unwhiten=unwhiten,
        report=ModeReport(
            passes=posterior.likelihood.passes,
            gradient_norm=maximum.gradient_norm,
            condition=float(np.linalg.cond(maximum.precision / np.outer(scale, scale))),
            seconds=time.perf_counter() - started,
            n_starts=located.n_starts,
            n_modes=located.n_modes,
            acceptance=np.nan,
            remainder_sd=np.nan,
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
