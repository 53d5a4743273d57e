"""Exact Metropolis-Hastings from a handful of rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Unpack

import numpy as np
from pymc.initial_point import PointType
from pytensor.graph.basic import Variable

from pymc_austerity.acceptance import Exact
from pymc_austerity.acceptance.base import AcceptanceRule
from pymc_austerity.bounds.row_constants import Curvature
from pymc_austerity.bounds.row_sampler import Thinning
from pymc_austerity.control_variates.taylor import Taylor
from pymc_austerity.exceptions import warn
from pymc_austerity.kernels.metropolis import Outcome
from pymc_austerity.mode.mode_fit import Found
from pymc_austerity.model.factorisation import Factorisation
from pymc_austerity.proposals.base import BoundProposal
from pymc_austerity.step_methods.configuration import plain
from pymc_austerity.step_methods.metropolis.base import SubsampledStep
from pymc_austerity.step_methods.metropolis.engine.base import CompiledKernel
from pymc_austerity.step_methods.metropolis.engine.tuna import ThinnedEngine, make_thinning
from pymc_austerity.step_methods.metropolis.options import ThinnedOptions
from pymc_austerity.step_methods.metropolis.prediction import Prediction, few_digits, predict
from pymc_austerity.step_methods.metropolis.statistics import DTYPES_SHAPES
from pymc_austerity.validation import is_real

_TAYLOR = Taylor(exact_rows=0)
_EXACT = Exact()


class TunaMH(SubsampledStep):
    """Metropolis-Hastings with exact decisions from a handful of rows, drawn in proportion to bounds.

    Parameters
    ----------
    vars : random or value variables, optional
        Continuous variables to update together. Default: all of the model.
    control_variate : Taylor, default Taylor(order=2, center='mode', exact_rows=0)
        What is subtracted from the local terms; the smaller the remainders, the fewer rows. There are no
        exact rows: rows with a large bound are drawn the more often.
    chi : float >= 0, default 0.0
        Draws chi (C M)^2 more rows for a move with C M expected ones, which makes acceptance rates larger.
    switch_above : float > 0, default 0.25
        Where more than this share of the N rows is expected for a transition, the exact test on all data
        is used instead, and a warning says so; `chi`, `curvature` and `debug` then have no effect. With
        ``inf`` never; otherwise a single move for which more than N rows are expected is decided on all N,
        too.
    curvature : dict of str to callable, optional
        Bounds for local terms of no known family, by the name of the model term: ``(low, high, positions) ->
        ndarray``. For some rows of the term, given by their positions, an upper bound of the third
        derivative (the second, with ``Taylor(order=1)``) of log p, divided by `temperature` if there is one,
        by the linear predictor between `low` and `high`. The last intervals it is asked for are the whole
        line; the bound may be infinite there.
    debug : bool, default False
        Count terms that are larger than their bounds in the sample statistic `bound_violations` and go on,
        instead of raising an error at the first.
    **options
        Those of every subsampled step but `subsample`: see `MetropolisHastings`. The default proposal is
        ``Laplace()``, independent draws of the fitted law mixed with a random walk, or ``Surrogate()`` if the
        block has variables that are in no local term (hierarchical scales), or coefficients are functions of
        it. Without `initvals` chains start from draws of the fitted law; those that are given are kept.

    Attributes
    ----------
    prediction : Prediction
        Expected number of rows for a transition, and what it is made of.

    Raises
    ------
    ValueError
        If a parameter is out of range, the model has nothing to subsample, or no bound is known for a
        term. While sampling, if a term is larger than its bound.
    FactorisationError
        If rows of a term cannot be computed one by one.

    Notes
    -----
    Algorithm 2 of Zhang, Cooper & De Sa (2020) on Taylor remainders R_i, which are bounded by
    ``|R_i(q') - R_i(q)|`` <= c_i M(q, q'), with c_i from the third derivatives of the terms
    (`bounds.remainder`). A move draws B ~ Poisson(C M) rows, C the sum of the c_i, with probabilities
    c_i / C; keeps each with probability (1 - x) / 2, x = [R_i(q') - R_i(q)] / (c_i M); and is accepted with
    probability

        min(1, exp(base) product over the rows kept of (1 + x) / (1 - x)),

    where `base` has the priors, the Taylor polynomial and the proposal (`control_variates.Taylor`). At
    equilibrium C M is of the order of D^3 / sqrt(N): the larger the data, the fewer rows.

    *Guarantee*: the posterior is the stationary law, for any N, proposal and centre, up to rounding, provided
    that the bounds hold: that terms are of the family that they were verified to be of on a grid of
    predictors. `docs/explanation/exact_subsampling.md` has the proof. Every row that is drawn is compared
    with its bound, with an allowance for rounding.

    *When it fails*: the bounds need local terms that are functions of one linear predictor, of a known
    family: logistic and binomial, probit, cloglog, Poisson, negative binomial with a fixed dispersion,
    gamma and exponential with a log link, normal and Student's t with a fixed scale; or of two: normal
    with a free scale, or with a linear model for the logarithm of the scale. The coefficients may be short
    functions phi(q) of the variables, such as simplex weights or those of a hierarchy that is written
    non-centred: terms are then expanded, and bounded, in phi (`model.features`). Bounds grow with the third
    power of the dimension: above some 50 dimensions they are loose, and the step says what it expects to
    draw and which alternative is cheaper; where it expects more than `switch_above` of the rows, as with a
    few thousand rows, it uses all of them. For a posterior that is far from normal acceptance rates are low.

    References
    ----------
    .. [1] Zhang, R., Cooper, A. F. & De Sa, C. (2020). Asymptotically optimal exact minibatch
       Metropolis-Hastings. NeurIPS 33.
    .. [2] Prado, E., Nemeth, C. & Sherlock, C. (2024). Metropolis-Hastings with scalable subsampling.
    .. [3] Cornish, R., Vanetti, P., Bouchard-Cote, A., Deligiannidis, G. & Doucet, A. (2019). Scalable
       Metropolis-Hastings for exact Bayesian inference with large datasets. ICML.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> from pymc_austerity import TunaMH
    >>> rng = np.random.default_rng(1)
    >>> x = rng.normal(size=2000)
    >>> y = rng.poisson(np.exp(1 + 0.3 * x))
    >>> with pm.Model() as model:
    ...     level, slope = pm.Normal("level"), pm.Normal("slope")
    ...     visits = pm.Poisson("visits", pm.math.exp(level + slope * x), observed=y)
    >>> with model:
    ...     idata = pm.sample(100, tune=100, chains=1, step=TunaMH(), progressbar=False)
    >>> idata.sample_stats["n_used"].mean().item() < 20  # of 2000 rows
    True
    """

    name = "tuna_mh"
    stats_dtypes_shapes: ClassVar[dict[str, tuple[type, list[int]]]] = {
        **DTYPES_SHAPES,
        "bound_violations": (np.float64, []),
    }
    # Whether all data are used instead.
    _switched: bool = False
    # Each remainder has a bound of its own; see `thinned`.
    _bounds_together = False

    def __init__(
        self,
        vars: Variable | Sequence[Variable] | None = None,
        *,
        control_variate: Taylor = _TAYLOR,
        chi: float = 0.0,
        switch_above: float = 0.25,
        curvature: Mapping[str, Curvature] | None = None,
        debug: bool = False,
        **options: Unpack[ThinnedOptions],
    ) -> None:
        if not is_real(chi) or not 0.0 <= chi < np.inf:
            raise ValueError(f"chi must be a number >= 0, got {chi!r}. Larger values draw more rows.")
        if not is_real(switch_above) or not switch_above > 0.0:
            raise ValueError(
                f"switch_above must be a positive share of the rows, or inf, got {switch_above!r}."
            )
        if "subsample" in options:
            raise TypeError(
                "TunaMH draws single rows in proportion to their bounds: it has no option subsample."
            )
        if control_variate is None:
            raise ValueError(
                "control_variate must be a Taylor(), got None: TunaMH has bounds on Taylor remainders only."
            )
        if isinstance(control_variate, Taylor):
            if control_variate.exact_rows:
                raise ValueError(
                    f"exact_rows={control_variate.exact_rows} is not for TunaMH, which draws rows with large "
                    "bounds the more often: leave it out."
                )
            control_variate = Taylor(control_variate.order, control_variate.center, exact_rows=0)
        if curvature is not None and not (
            isinstance(curvature, Mapping) and all(callable(f) for f in curvature.values())
        ):
            raise TypeError(f"curvature must be a dict from names of terms to functions, got {curvature!r}.")
        if not isinstance(debug, bool | np.bool_):
            raise ValueError(f"debug must be True or False, got {debug!r}.")
        self._chi, self._switch_above, self._debug = float(chi), float(switch_above), bool(debug)
        self._curvature = dict(curvature or {})
        super().__init__(vars, control_variate=control_variate, **options)

    def _rule_for(self, n_local: int) -> AcceptanceRule:
        return _EXACT

    def _engine_for(
        self,
        fact: Factorisation,
        found: Found | None,
        rule: AcceptanceRule,
        bound: BoundProposal,
        q: np.ndarray,
        point: PointType,
        fresh: bool,
    ) -> CompiledKernel:
        assert found is not None
        if not fresh and self._switched:
            return self._all_terms(fact, found, rule, bound, q, point)
        most = fact.n_local if np.isfinite(self._switch_above) else np.inf
        thinning = make_thinning(fact, found, point, self._curvature, most)
        if fresh:
            self.prediction = predict(thinning, bound, found, self._chi)
            self._switched = self._too_many(self.prediction, thinning)
        if self._switched:
            return self._all_terms(fact, found, rule, bound, q, point)
        return ThinnedEngine(found.expanded, thinning, self._chi, self._debug, bound, q, point)

    def _all_terms(
        self,
        fact: Factorisation,
        found: Found,
        rule: AcceptanceRule,
        bound: BoundProposal,
        q: np.ndarray,
        point: PointType,
    ) -> CompiledKernel:
        """The exact test; a surrogate moves on the polynomial, so its test is one of all remainders."""
        found = found if bound.is_surrogate else found._replace(expanded=fact)
        return super()._engine_for(fact, found, rule, bound, q, point, fresh=False)

    def _too_many(self, prediction: Prediction, thinning: Thinning) -> bool:
        """Is the exact test on all data cheaper? Then say so, and why."""
        n_local = thinning.constants.shape[1]
        too_many = prediction.terms > self._switch_above * n_local
        assert self._centre is not None
        report = self._centre.report
        if too_many or prediction.is_loose(report):
            instead = "the exact test on all data is used instead. " if too_many else ""
            warn(
                f"TunaMH {'would draw' if too_many else 'draws'} about {few_digits(prediction.terms)} of "
                f"{n_local:,} rows for a transition: {instead}{prediction.advice(report, n_local)}"
            )
        return too_many

    def _settings(self) -> dict[str, Any]:
        settings = super()._settings()
        if self._switched:  # the rule that was switched to is named
            return settings
        del settings["rule"], settings["range_bound"], settings["subsample"], settings["n_exact"]
        own = {
            "chi": self._chi,
            "switch_above": plain(self._switch_above),
            "curvature": plain(self._curvature),
        }
        return {**own, **settings}

    def _statistics(self, outcome: Outcome, n: int) -> dict[str, Any]:
        violations = np.nan if self._switched else self._engine.take_violations()
        return {**super()._statistics(outcome, n), "bound_violations": violations}
