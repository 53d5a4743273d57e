"""The mode of a block: where it is, the expansion there, the normal distribution, and what is left of them.

One search for the mode serves the control variate and the proposal (`fit_mode`). A user may give the point to
expand at, and then there is no search. It is found once, when a step is built, and a `ModeFit` of it travels
with the step, without what has size N.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Container, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pymc as pm
from pymc.initial_point import PointType
from pytensor.graph.traversal import ancestors

from pymc_austerity import work
from pymc_austerity.bounds.remainder import RemainderCertificate, certify_remainders
from pymc_austerity.bounds.row_constants import ExpansionCoordinates
from pymc_austerity.bounds.row_function import RowFunction, evenly_spaced
from pymc_austerity.control_variates.taylor import Taylor
from pymc_austerity.exceptions import (
    NoNormalApproximationError,
    SelfCheckError,
    UnboundedError,
    UnsuitableError,
    warn,
)
from pymc_austerity.kernels.subsample import NO_ROWS
from pymc_austerity.mode.expansion import expand
from pymc_austerity.mode.newton import Maximum, are_finite, flat_direction, maximum_at
from pymc_austerity.mode.search import BlockPosterior, ModeSearch
from pymc_austerity.model.factorisation import Factorisation, point_of, row_operations
from pymc_austerity.model.graph.rewrite import INTERPRETED_STABLE
from pymc_austerity.model.starting_point import FAR_BELOW, likely_draw, require_finite
from pymc_austerity.model.structure.differentiable import Differentiable
from pymc_austerity.model.structure.feature_map import FeatureMap
from pymc_austerity.model.structure.local_terms import LocalTerms
from pymc_austerity.model.structure.log_likelihood import Elsewhere, LogLikelihood
from pymc_austerity.model.structure.predictor_values import opaque_function
from pymc_austerity.model.structure.term_structure import TermStructure
from pymc_austerity.progress import stage
from pymc_austerity.proposals.laplace import squared, times_upper
from pymc_austerity.target import Expansion, Index, Matrix, QuadraticProxy, Vector

logger = logging.getLogger(__name__)

# Squared distance from the mode, in standard deviations of that of a draw, at which a chain starts elsewhere.
_FAR = 10.0
# Predicted acceptance rate of independent draws, from a few of them, that is called poor, and a spread of
# remainders that is.
_POOR_ACCEPTANCE, _LARGE_SPREAD = 0.2, 3.0
# Where rows were added, a mode so far from the center, in standard deviations, is searched for.
_MOVED = 2.0
# Rows on which it is tried whether the density is finite where the search starts.
_TRIED_ROWS = 100_000
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
# Draws of the fitted normal distribution on which remainders are measured, and rows that tell their sums.
_DRAWS, _ENOUGH_ROWS, _SEED = 8, 10_000, 2017
# Remainders this near to the center, in standard deviations, are all rounding; the largest that may be met is
# taken to be some times as large.
_TINY, _SAFETY = 1e-8, 16.0
# Draws with a variable at its mode, and rows that tell sums.
_FIXED_DRAWS, _ROWS = 8, 30_000
# Operations for all of it, and how often the rows are evaluated at most; rows that are long are fewer.
_OPERATIONS, _PASSES, _FEWEST_ROWS = 2e10, 300, 1_000
# Standard deviations at which coordinates are compared, and dimensions up to which they are.
_ALONG, _MOST_DIMENSIONS = 2.0, 100
_DEPARTURE_SEED = 2022

ADVICE = (
    "Steps stay as exact as their decision rule, but cost more or mix more slowly than they should. "
    "Surrogate() follows any prior; for a likelihood far from normal (few data for a parameter, several "
    "modes) write hierarchies centred, leave control_variate out, or use pm.NUTS."
)


# What is found ----------------------------------------------------------------------------------------------


class ModeReport(NamedTuple):
    """Report of the search for the mode."""

    passes: int  # Evaluations of value, gradient and Hessian of the log density on all rows
    gradient_norm: float  # Of the gradient at the center, in posterior standard deviations
    condition: float  # Condition number of the precision, scaled to a unit diagonal
    seconds: float
    # n_starts, n_modes: points the first search started from, and distinct modes that it found; 0 if nothing
    # was searched for. There is one start if the log density is known to be concave.
    n_starts: int
    n_modes: int
    # Acceptance rate of independent proposals from the fitted distribution, by `draws` draws of it
    acceptance: float = np.nan
    remainder_sd: float = np.nan  # Standard deviation over these draws of the sum of the sampled remainders

    @property
    def is_poor(self) -> bool:
        """Are draws of the fitted distribution unlike the posterior?"""
        return self.acceptance < _POOR_ACCEPTANCE or not self.remainder_sd < _LARGE_SPREAD

    def __str__(self) -> str:
        starts = f"{self.n_starts} start{'s' if self.n_starts != 1 else ''}"
        text = (
            f"center found in {self.passes} passes over the data and {self.seconds:.1f} s from "
            f"{starts} ({self.n_modes} mode{'s' if self.n_modes != 1 else ''}); gradient "
            f"{self.gradient_norm:.1e} sd, condition number {self.condition:.1e}"
        )
        if np.isnan(self.acceptance):
            return text
        return text + (
            f"; predicted acceptance of independent draws {self.acceptance:.2f}, standard deviation of the "
            f"sum of remainders {self.remainder_sd:.2g}"
        )


class FittedTerms(NamedTuple):
    """Results of the search, with what has the size of the data."""

    mode_fit: ModeFit
    expanded: Factorisation  # With remainders for local terms, if a Taylor polynomial was wanted
    structure: TermStructure  # Of the local terms that were expanded
    likelihood: LogLikelihood  # Their sum over all rows

    @property
    def features(self) -> FeatureMap:
        """phi(q), in which the terms were expanded."""
        return self.likelihood.features

    def rows_to_bound(self, with_curvature: Container[str]) -> tuple[RowFunction, ...]:
        """Row functions of all terms, those whose bounds the user gives as opaque functions of one predictor.

        `UnboundedError` names a term that is no function of few predictors, and what is in the way.
        """
        structure = self.structure
        return tuple(
            opaque_function(form)
            if form.term.name in with_curvature and form.has_one
            else structure.row_function(number)
            for number, form in enumerate(structure.forms)
        )


class ModeFit(NamedTuple):
    """Results of the search; a few arrays of the size of the block."""

    proxy: QuadraticProxy  # What proposals are fitted to
    free: npt.NDArray[np.bool_]  # (D,): the d coordinates that were fitted
    # whiten, unwhiten (d, d): of these coordinates, see `QuadraticProxy.factors`. Computed once: another
    # process may use another number of threads, and get other last digits.
    whiten: Matrix
    unwhiten: Matrix
    report: ModeReport
    at: Vector  # (D,): q at which the local terms are expanded, if they are
    expansion: Expansion | None = None  # For a control variate
    exact: Index = NO_ROWS  # Rows to evaluate at every step
    certificate: RemainderCertificate | None = None  # A bound on the remainders of the other rows
    no_certificate: str = "no bound was looked for"  # The reason why no bound is known, if there is none
    rounding: float = 0.0  # What rounding may add to a remainder
    # (p, p): whitening and unwhitening of features of the block, if the local terms are expanded in these
    of_features: tuple[Matrix, Matrix] | None = None

    def padded_factors(self) -> tuple[Matrix, Matrix]:
        """`whiten` (d, D) and `unwhiten` (D, d) with zeros for coordinates that were not fitted."""
        whiten = np.zeros((len(self.whiten), len(self.free)))
        whiten[:, self.free] = self.whiten
        unwhiten = np.zeros((len(self.free), len(self.whiten)))
        unwhiten[self.free] = self.unwhiten
        return whiten, unwhiten

    def bound_factors(self) -> tuple[Matrix, Matrix]:
        """Whitening factors of what the local terms are expanded in: features, or the block."""
        return self.padded_factors() if self.of_features is None else self.of_features

    def start(
        self, q: Vector, rng: np.random.Generator, log_density: Callable[[Vector], float], names: str
    ) -> Vector:
        """A draw as a first state: if they are poor, again where it is far less likely than the mode."""
        if not self.report.is_poor:
            return self.drawn(q, rng)

        def draw() -> tuple[Vector, float]:
            found = self.drawn(q, rng)
            return found, log_density(found)

        lowest = log_density(np.where(self.free, self.proxy.mode, q)) - FAR_BELOW - len(self.unwhiten)
        return likely_draw(draw, lowest, names)

    def drawn(self, q: Vector, rng: np.random.Generator) -> Vector:
        """A draw of the normal distribution; coordinates that were not fitted are those of `q`."""
        result = q.copy()
        noise = rng.standard_normal(len(self.unwhiten))
        result[self.free] = self.proxy.mode[self.free] + times_upper(self.unwhiten, noise)
        return result


# How it is found --------------------------------------------------------------------------------------------


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
    require_finite(fact, point, _TRIED_ROWS)  # the rest when a chain starts
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
            found = _certified(found, n_exact)
        found = _measured(found, point, n_exact if certify else 0)
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


def fit_with_more_rows(
    structure: TermStructure, point: PointType, fit: ModeFit, positions: Index
) -> FittedTerms | None:
    """The fit of other rows with those at `positions` added, which alone are differentiated.

    The terms stay expanded where they were: sums of derivatives add. The normal distribution follows by a
    Newton step. None if that is long, or the distribution is far from the posterior: then another search
    pays.
    """
    started = time.perf_counter()
    of_more = Differentiable(structure, point).likelihood(positions)
    old, free, square = fit.expansion, fit.free, np.ix_(fit.free, fit.free)
    assert old is not None
    if not np.array_equal(of_more.features(fit.at), old.center):  # features are others
        return None
    more = of_more.at(old.center).total
    in_block = of_more.features.in_block(fit.at, more)
    before, away = fit.proxy.precision[square], (fit.proxy.mode - fit.at)[free]
    precision = before - in_block.hessian[square]
    gradient = before @ away + in_block.gradient[free]
    if not are_finite(gradient, precision) or flat_direction(precision) is not None:
        return None
    found = maximum_at(fit.at[free], 0.0, gradient, -precision, 1)
    mode, whole = fit.proxy.mode.copy(), fit.proxy.precision.copy()
    mode[free], whole[square] = found.mode, precision
    whiten, unwhiten = QuadraticProxy(found.mode, precision).factors()
    if np.abs(whiten @ (found.mode - fit.at[free])).max() > _MOVED:
        return None
    expansion = Expansion(old.order, old.center, old.gradient + more.gradient, old.hessian + more.hessian)
    fit = fit._replace(
        proxy=QuadraticProxy(mode, whole),
        whiten=whiten,
        unwhiten=unwhiten,
        report=fit.report._replace(passes=of_more.passes, gradient_norm=found.gradient_norm),
        expansion=expansion,
        of_features=fit.bound_factors(),  # bounds stay those that are known
    )
    grown = _measured(expanded_again(structure, point, fit), point, 0)
    if grown.mode_fit.report.is_poor:
        return None
    report = grown.mode_fit.report._replace(seconds=time.perf_counter() - started)
    return grown._replace(mode_fit=grown.mode_fit._replace(report=report))


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


# What is left of the local terms, and whether that is right -------------------------------------------------


def _certified(found: FittedTerms, n_exact: int) -> FittedTerms:
    """Fitted terms with a certificate of remainders and the rows of largest constants, or why without."""
    mode_fit = found.mode_fit
    assert mode_fit.expansion is not None
    whiten, unwhiten = mode_fit.bound_factors()
    try:
        certificate, exact = certify_remainders(
            found.structure.row_functions,
            ExpansionCoordinates(mode_fit.expansion.order, mode_fit.expansion.center, unwhiten, whiten),
            n_exact,
        )
    except UnboundedError as error:
        return found._replace(mode_fit=mode_fit._replace(no_certificate=str(error)))
    return found._replace(mode_fit=mode_fit._replace(certificate=certificate, exact=exact))


def _measured(found: FittedTerms, point: PointType, n_exact: int) -> FittedTerms:
    """Fitted terms with remainders at draws of the fitted normal, which may choose the exact rows, too."""
    mode_fit, n_local = found.mode_fit, found.expanded.n_local
    rng = np.random.default_rng(_SEED)
    z = rng.standard_normal((_DRAWS, len(mode_fit.unwhiten)))
    steps = [mode_fit.unwhiten @ each for each in z]
    exact, rows = mode_fit.exact, min(n_local, _ENOUGH_ROWS)
    if n_exact > 0 and mode_fit.certificate is None:
        every = Departures(found, point, np.arange(n_local))
        own = np.array([every.remainders(every.moved(step)) for step in steps], dtype=np.float32)
        largest = np.nan_to_num(np.abs(own), nan=np.inf).max(axis=0)
        exact, rows = np.sort(np.argsort(-largest, kind="stable")[:n_exact]), n_local
    some = np.sort(rng.choice(n_local, rows, replace=False, shuffle=False))
    # Sums over the others are known well enough from some of the rows.
    near = Departures(found, point, np.setdiff1d(some, exact, assume_unique=True), exact)
    sums, log_weights = np.array([near.at(step) for step in steps]).T
    q = mode_fit.at.copy()
    q[mode_fit.free] += _TINY * mode_fit.unwhiten @ z[-1]
    rounding = _SAFETY * float(np.abs(near.remainders(q)).max())
    certificate = mode_fit.certificate
    if certificate is not None:
        certificate = certificate._replace(rounding=rounding)
    report = mode_fit.report._replace(
        acceptance=acceptance_of(log_weights), remainder_sd=float(sums.std(ddof=1))
    )
    mode_fit = mode_fit._replace(exact=exact, certificate=certificate, rounding=rounding, report=report)
    return found._replace(mode_fit=mode_fit)


def acceptance_of(log_weights: Vector) -> float:
    """Acceptance rate of an independence sampler at equilibrium, from draws of its proposal.

    A chain is at draw i with probability w_i / sum(w), and moves to j with min(1, w_j / w_i).
    """
    n = len(log_weights)
    largest = np.nanmax(log_weights) if np.any(np.isfinite(log_weights)) else 0.0
    with np.errstate(all="ignore"):
        weights = np.nan_to_num(np.exp(log_weights - largest))
    smaller = np.minimum(weights[:, None], weights[None, :]).sum() - weights.sum()
    return float(smaller / ((n - 1) * weights.sum())) if weights.sum() > 0.0 else 0.0


class Departures:
    """The log posterior near the mode, against that of the normal distribution there.

    The fitted terms have an expansion; variables outside the block stay at `point`. Some `rows` stand for all
    that are not `exact`; by default they are as many as is worth it.
    """

    def __init__(
        self, found: FittedTerms, point: PointType, rows: Index | None = None, exact: Index = NO_ROWS
    ) -> None:
        self._fit, self._point, self._fact = found.mode_fit, point, found.expanded
        self._free = np.flatnonzero(self._fit.free)
        self._precision = self._fit.proxy.precision[np.ix_(self._fit.free, self._fit.free)]
        self._terms = LocalTerms(self._fact)
        self._prior = self._fact.compile(self._fact.global_graph, [], mode=INTERPRETED_STABLE)
        n = self._fact.n_local
        if rows is None:
            affordable = int(_OPERATIONS / _PASSES * n / max(row_operations(self._fact), 1.0))
            size = min(n, _ROWS, max(affordable, _FEWEST_ROWS))
            rows = np.sort(
                np.random.default_rng(_DEPARTURE_SEED).choice(n, size, replace=False, shuffle=False)
            )
        self._weight, self._rows, self._exact = (n - len(exact)) / len(rows), rows, exact
        center = point_of(self._fact, self._fit.at, point)
        self._of_rows, self._of_exact = self._terms(center, rows), self._terms(center, exact)

    def moved(self, step: Vector) -> Vector:
        """The state a step away from the mode."""
        q = self._fit.proxy.mode.copy()
        q[self._free] += step
        return q

    def remainders(self, q: Vector) -> Vector:
        """Remainders of the rows at a state, less those at the center."""
        return self._terms(point_of(self._fact, q, self._point), self._rows) - self._of_rows

    def at(self, step: Vector) -> tuple[float, float]:
        """The sum of remainders, and the log posterior, less that of the normal distribution."""
        q = self.moved(step)
        there, total = point_of(self._fact, q, self._point), self._weight * float(self.remainders(q).sum())
        prior = float(self._prior(*self._fact.point_values(there), *self._fact.leaf_values))
        of_exact = float((self._terms(there, self._exact) - self._of_exact).sum())
        return total, prior + total + of_exact + 0.5 * float(step @ self._precision @ step)

    def with_fixed(self, name: str) -> tuple[float, float]:
        """Acceptance rate and spread of remainders if a variable had its value at the mode as a number."""
        moved = np.array([self._fact.coordinate(int(d))[0] != name for d in self._free])
        if not moved.any():
            return 1.0, 0.0
        lower = np.linalg.cholesky(self._precision[np.ix_(moved, moved)])
        z = np.random.default_rng(_DEPARTURE_SEED).standard_normal((_FIXED_DRAWS, int(moved.sum())))
        steps = np.zeros((_FIXED_DRAWS, len(self._free)))
        steps[:, moved] = np.linalg.solve(lower.T, z.T).T
        sums, weights = np.array([self.at(step) for step in steps]).T
        return acceptance_of(weights), float(np.std(sums, ddof=1))

    def coordinates(self) -> dict[tuple[str, tuple[int, ...]], float]:
        """Departure of the log posterior along each coordinate, the largest first.

        The others follow, as in a regression on it.
        """
        if len(self._free) > _MOST_DIMENSIONS:
            return {}
        covariance = np.linalg.inv(self._precision)
        here = self.at(np.zeros(len(self._free)))[1]
        result = {}
        for k, d in enumerate(self._free):
            step = _ALONG * covariance[k] / np.sqrt(covariance[k, k])
            apart = [abs(self.at(sign * step)[1] - here) for sign in (-1.0, 1.0)]
            result[self._fact.coordinate(int(d))] = float(np.nan_to_num(np.max(apart), nan=np.inf))
        return dict(sorted(result.items(), key=lambda item: -item[1]))


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


# Where a chain starts ---------------------------------------------------------------------------------------


def start_near(
    mode_fit: ModeFit,
    q: Vector,
    default: Callable[[], Vector],
    names: str,
    rng: np.random.Generator,
    log_density: Callable[[Vector], float],
) -> Vector:
    """A first state for proposals that are fitted to the mode: `q`, or a draw of the fitted distribution.

    From a state in its far tails nothing that is fitted to the mode moves, however long it is tuned. So a
    chain that would begin there, because nobody has said where, begins at such a draw. A state that was
    chosen is kept, with a warning.

    `default` returns the model's initial point, where chains begin if nobody says where: `pm.sample` adds no
    jitter if it is given a step. It is asked only if q is far. `names` are those of the variables, for the
    warning. Coordinates that were not fitted stay those of `q`.
    """
    mode = mode_fit.proxy.mode[mode_fit.free]
    n_dim = len(mode)
    distance = squared(times_upper(mode_fit.whiten, q[mode_fit.free] - mode))
    if distance <= n_dim + _FAR * math.sqrt(2.0 * n_dim):
        return q
    if not np.allclose(q, default()):
        warn(
            f"The chain starts {math.sqrt(distance):.3g} standard deviations from the mode in {names}, at a "
            "point that is not the model's initial point and was therefore kept: it comes from initvals, or "
            "from an initval that is random. Proposals that are fitted at the mode may be rejected there for "
            "long. Without either the chain starts from a draw of the distribution fitted there; "
            "initvals=find_mode(model) starts at the mode, and proposal=AdaptiveRandomWalk() needs no fit."
        )
        return q
    logger.info("%s: the chain starts from a draw of the normal distribution fitted at the mode.", names)
    return mode_fit.start(q, rng, log_density, names)
