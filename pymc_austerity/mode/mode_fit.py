"""What is known of the mode of a block: the expansion there, and the normal distribution for proposals.

It is found once, when a step is built (`fit_mode`), and travels with the step but for what has size N.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Container
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pymc_austerity.bounds.remainder import RemainderCertificate
from pymc_austerity.bounds.row_function import RowFunction
from pymc_austerity.exceptions import warn
from pymc_austerity.kernels.subsample import NO_ROWS
from pymc_austerity.model.factorisation import Factorisation
from pymc_austerity.model.starting_point import FAR_BELOW, likely_draw
from pymc_austerity.model.structure.feature_map import FeatureMap
from pymc_austerity.model.structure.log_likelihood import LogLikelihood
from pymc_austerity.model.structure.predictor_values import opaque_function
from pymc_austerity.model.structure.term_structure import TermStructure
from pymc_austerity.proposals.laplace import squared, times_upper
from pymc_austerity.target import Expansion, Index, Matrix, QuadraticProxy, Vector

logger = logging.getLogger(__name__)

# Squared distance from the mode, in standard deviations of that of a draw, at which a chain starts elsewhere.
_FAR = 10.0

# Predicted acceptance rate of independent draws, from a few of them, that is called poor, and a spread of
# remainders that is.
_POOR_ACCEPTANCE, _LARGE_SPREAD = 0.2, 3.0

ADVICE = (
    "Steps stay as exact as their decision rule, but cost more or mix more slowly than they should. "
    "Surrogate() follows any prior; for a likelihood far from normal (few data for a parameter, several "
    "modes) write hierarchies centred, leave control_variate out, or use pm.NUTS."
)


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
