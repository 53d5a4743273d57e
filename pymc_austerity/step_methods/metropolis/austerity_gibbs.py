"""Gibbs updates of discrete variables, each decided from a subsample of the terms that contain it."""

from collections.abc import Sequence
from typing import Any, Literal, Unpack

import numpy as np
from pymc.initial_point import PointType
from pytensor.graph.basic import Variable

from pymc_austerity.acceptance.base import ExactBarker
from pymc_austerity.acceptance.ttest import BarkerTTest, check_stages
from pymc_austerity.model.categories import number_of_values
from pymc_austerity.proposals.base import BoundProposal, no_adaptation
from pymc_austerity.proposals.elements import OtherCategory, other_category
from pymc_austerity.step_methods.base import floats
from pymc_austerity.step_methods.metropolis.base import DTYPES_SHAPES, SubsampledStep
from pymc_austerity.step_methods.metropolis.element_plan import element_terms, planned, require_elements
from pymc_austerity.step_methods.metropolis.engine.sequential import fewest_rows
from pymc_austerity.step_methods.metropolis.options import GibbsOptions
from pymc_austerity.step_methods.metropolis.plan import BlockPlan, Recipe
from pymc_austerity.validation import is_real, is_whole


class AusterityGibbs(SubsampledStep):
    """Gibbs updates of binary and categorical variables, each by a t-test on the terms that contain it.

    For fields, such as ``X = pm.Bernoulli("X", 0.5, shape=D)`` under potentials that look sites up,
    ``table[X[i], X[j]]``. A draw is one sweep over all sites, in order.

    Parameters
    ----------
    vars : variables or their names, optional
        Vectors of `pm.Bernoulli` or `pm.Categorical`. Default: all variables of the model.
    epsilon : float in [0, 0.5], default 0.01
        Stop reading terms once the estimated probability of a wrong decision is below this. 0 reads all terms
        and is exact.
    batch_size : int >= 2, default 500
        Terms in the first batch of a test.
    growth, boundary
        Of the stages of the test; see `AusterityMH`.
    min_terms : int, optional
        Sites with fewer terms read them all. Default: twice the batch.
    **options
        `steps_per_draw` counts sweeps. `subsample` is "gather" to read single terms at random, or "block" to
        read neighbours among a site's terms, whose order is drawn once: by default from 50,000 terms on.
        As of `MetropolisHastings` are `temperature`, `model`, `blocked`, `rng`, `initial_point`,
        `compile_kwargs` and `progressbar`.

    Raises
    ------
    ValueError
        If a parameter is out of range, or a variable is neither a Bernoulli nor a Categorical.
    FactorisationError
        If a term takes all of a variable and not some of its sites, as ``X @ J @ X`` does.

    Notes
    -----
    Appendix F of Korattikara, Chen & Welling (2014). A site gets another value, of K - 1 each as likely, if
    the mean over its N_d terms of ``log f(new) - log f(old)`` exceeds
    ``psi = [log(u / (1 - u)) - global log ratio] / N_d`` with u uniform. That is Barker's test between the
    two values, and the Gibbs update where there are but two. Terms are found on the graph of the model, as by
    `MetropolisHastings` with `elementwise`.

    Sample statistics are those of `AusterityMH`, where `fraction_used` is the share of the terms of the
    sites, and `changed`, the share of sites that got another value.

    *Guarantee*: with ``epsilon=0`` exact, for any number of sites and values. Otherwise none. Conditional
    probabilities are drawn towards 1/2, and so are marginals: the errors do not average out. The error of a
    sweep is up to the sum of those of its sites, and theorem 4 does not bound what becomes of it.

    *When it fails*: terms that are read at random come from memory more slowly than terms in order. A test
    that reads half of them may take longer than reading all: compare with ``epsilon=0``. Sites that hold each
    other in place change one at a time, and seldom.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> from pymc_austerity import AusterityGibbs
    >>> left, right = np.arange(9), np.arange(1, 10)
    >>> with pm.Model() as model:
    ...     X = pm.Bernoulli("X", 0.5, shape=10)
    ...     pm.Potential("alike", 0.8 * pm.math.eq(X[left], X[right]))
    ...     step = AusterityGibbs([X], epsilon=0, rng=1)
    ...     point, (stats,) = step.step(model.initial_point())
    alike
    >>> stats["fraction_used"]
    1.0
    """

    name = "austerity_gibbs"
    _discrete = True
    stats_dtypes_shapes = DTYPES_SHAPES | floats("changed")

    def __init__(
        self,
        vars: Variable | str | Sequence[Variable | str] | None = None,
        *,
        epsilon: float = 0.01,
        batch_size: int = 500,
        growth: Literal["constant"] | float = "constant",
        boundary: float = 0.5,
        min_terms: int | None = None,
        **options: Unpack[GibbsOptions],
    ) -> None:
        if not is_real(epsilon) or not 0.0 <= epsilon <= 0.5:
            raise ValueError(
                f"epsilon must be in [0, 0.5], got {epsilon!r}. Smaller values read more terms per decision."
            )
        check_stages(batch_size, growth, boundary)
        if min_terms is not None and not (is_whole(min_terms) and min_terms >= 0):
            raise ValueError(f"min_terms must be an integer of at least 0, got {min_terms!r}.")
        self._min_terms = min_terms
        rule = BarkerTTest(epsilon, batch_size, growth, boundary) if epsilon > 0.0 else ExactBarker()
        super().__init__(vars, rule, elementwise=True, **options)

    def _planned(self, point: PointType, recipe: Recipe | None = None) -> BlockPlan[Recipe]:
        options = self._options
        fewest = fewest_rows(options.acceptance, self._min_terms)
        if recipe is None:
            require_elements(options.vars, point)
        counts = [number_of_values(options.model, value, point) for value in options.vars]
        values = np.repeat(counts, [np.size(point[value.name]) for value in options.vars])  # of each site
        terms = element_terms(options, point, fewest, recipe)
        state = OtherCategory(np.array([np.nan]), values.astype(np.int64))
        bound = BoundProposal(state, other_category, no_adaptation, target_functions=())
        return planned(options, terms, bound, fewest, in_order=True)

    @property
    def steps_per_draw(self) -> int:
        """Transitions of a draw: those of whole sweeps."""
        return (self._options.steps_per_draw or 1) * self._recipe.sweep

    def _statistics(self, outcome: Any, n: int) -> dict[str, Any]:
        return {**super()._statistics(outcome, n), "changed": outcome.n_accepted / n}
