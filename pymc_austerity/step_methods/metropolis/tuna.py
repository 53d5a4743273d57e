"""Exact Metropolis-Hastings from a handful of rows."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Unpack

from pymc.initial_point import PointType
from pytensor.graph.basic import Variable

from pymc_austerity.bounds.row_constants import Curvature
from pymc_austerity.control_variates.taylor import Taylor
from pymc_austerity.model.factorise import model_of, value_variables
from pymc_austerity.model.graph.many import many_graphs
from pymc_austerity.model.starting_point import initial_point as default_point
from pymc_austerity.progress import stage, watched
from pymc_austerity.proposals.langevin import Langevin
from pymc_austerity.proposals.stiefel_walk import StiefelWalk
from pymc_austerity.step_methods.messages import plain
from pymc_austerity.step_methods.metropolis.base import WITHOUT_RULE, SubsampledStep
from pymc_austerity.step_methods.metropolis.mixing_pilot import warn_of_poor_mixing
from pymc_austerity.step_methods.metropolis.options import TunaKeywords
from pymc_austerity.step_methods.metropolis.plan import Plan, Recipe
from pymc_austerity.step_methods.metropolis.tuna_plan import (
    EXACT,
    TAYLOR,
    Prediction,
    TunaRecipe,
    checked_control_variate,
    checked_tuna_options,
    plan_exact,
    plan_with_more_rows,
)
from pymc_austerity.work import budgeted

if TYPE_CHECKING:
    from pymc_austerity.step_methods.metropolis.field_pilot import FieldPrediction
    from pymc_austerity.step_methods.metropolis.field_plan import FieldRecipe

logger = logging.getLogger("pymc.austerity")


class TunaMH(SubsampledStep):
    """Metropolis-Hastings with exact decisions from a handful of rows, drawn in proportion to bounds.

    Parameters
    ----------
    vars : variables or their names, optional
        Continuous variables to update together. Default: all of the model.
    control_variate : Taylor, default Taylor(order=2, center='mode', exact_rows=0)
        What is subtracted from the local terms; the smaller the remainders, the fewer rows. There are no
        exact rows: rows with a large bound are drawn the more often.
    chi : float >= 0, default 0.0
        Draws chi m^2 more rows for a move for which m are expected, which makes acceptance rates larger.
    switch_above : float > 0, default 0.25
        Where more than this share of the N rows is expected for a transition, the exact test on all data
        is used instead, and a warning says so; `chi`, `curvature` and `debug` then have no effect. Of a sweep
        over a field it is a share of what its moves would read if each read all its rows. With
        ``inf`` never. A single move for which more than N rows are expected is decided on all N, too; with
        ``inf`` one for which more than N and a million are.
    curvature : dict of str to callable, optional
        Bounds of your own for local terms with one linear predictor, by the name of the model term, in place
        of those that are derived: ``(low, high, positions) -> ndarray``. For some rows of the term, given by
        their positions, an upper bound of the third derivative (the second, with ``Taylor(order=1)``) of
        log p, divided by `temperature` if there is one, by the linear predictor between `low` and `high`.
        It is also asked for bounds on the whole line (`low` -inf, `high` inf); these may be infinite.
    compress : bool, default True
        Join equal rows: see `MetropolisHastings`. With `curvature` or `client` none are joined.
    debug : bool, default False
        Count terms that are larger than their bounds in the sample statistic `bound_violations` and go on,
        instead of raising an error at the first.
    client : distributed.Client or concurrent.futures.Executor, optional
        Of a Dask cluster, or of processes (not threads). Sums over all rows, which the search for the mode
        needs, are computed there. The mode is the same to the bit on processors of one type with the same
        libraries. Bounds of rows are computed here. A field of effects is set up here, and a warning says
        so. An executor is for rows on disk: it gets the model with each call.
    **options
        Those of every subsampled step but `subsample`: see `MetropolisHastings`; the `set_up_budget` is one
        of them. The default proposal is
        ``Laplace()``, independent draws of the fitted distribution mixed with a random walk, or
        ``Surrogate()`` if the block has variables that are in no local term (hierarchical scales), or
        coefficients are functions of it. Without `initvals` chains start from draws of the fitted
        distribution; those that are given are kept.

    Attributes
    ----------
    prediction : Prediction
        Expected number of rows for a transition, and what it is made of.
    certificate : str
        Where the bounds come from, and how much looser they are than at the mode alone.

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

    *Guarantee*: the posterior is the stationary distribution, for any N, proposal and center, up to rounding.
    The bounds are derived from the graph of the terms by interval arithmetic, up to the accuracy of libm and
    SciPy; they need no assumption on the likelihood. A `curvature` of yours is taken as it is.
    The proof: :doc:`/explanation/exact_subsampling`. Every row that is drawn is compared with its bound,
    with an allowance for rounding.

    *When it fails*: the bounds need local terms that are smooth functions of at most nine linear predictors:
    generalised linear models with free or fixed dispersion, scale or degrees of freedom, zero inflation,
    censoring, ordered and categorical responses of few classes, mixtures of few components, and your own
    `pm.Potential` or `pm.CustomDist`. Refused, by name, are terms of more predictors, operations without
    known derivatives (incomplete beta and gamma functions of general shapes, Bessel functions, `scan`,
    Cholesky factors), and terms that depend on variables of other steps. At a kink, as of Huber's loss,
    third derivatives have no bound: where a kink is in reach of rows near the mode, all rows are used, and a
    warning says so. Terms made of straight pieces, as of Laplace errors, are refused. The coefficients may
    be short functions phi(q) of the variables, such as simplex weights or those of a hierarchy that is
    written non-centred: terms are then expanded, and bounded, in phi (`model.features`). Bounds grow with
    the third power of the dimension. For rows with many zeros, such as those of factors, they are split over
    the whitened coordinates that a row touches, which takes many times fewer rows. Above 50 dimensions,
    where more than a hundred rows would be drawn, these are tried against bounds of their own, from one
    byte for each coordinate of each row (N D bytes of memory), and few are evaluated: drawing is cheaper
    by some factor, not by orders of magnitude. Decisions by tighter bounds are noisier, which costs some
    acceptance (`chi` buys it back for more rows). Both need terms of one predictor, and `certificate`
    says which is in use. The step says what it expects to read and which alternative is cheaper; where it
    expects more than `switch_above` of the rows, it uses all of them. For a
    posterior that is far from normal acceptance rates are low.

    *Hierarchies*: effects of 30 groups or more whose prior has sampled numbers, as ``u[group]`` with a free
    scale, are found on the graph of the model, however they are written: slopes, several factors, nested or
    crossed ones, random walks, areas, effects that are not normal. They are moved as a field, in coordinates
    in which they and all other variables of the block are independent but for the remainders. A draw moves
    scales, and coefficients of all rows, together with all effects, then the effects of each depth, every
    group by a decision on its own rows. Large factors that are crossed are moved in turn, each given the
    others. The sample statistics `shared_n_used`, `effects_n_used` and `effects_acceptance` tell the moves
    apart. Normal residuals may have a free scale, and then no row is read. `chi`, `curvature`, another
    `proposal` and another `control_variate` are for blocks without a field.
    The proof: :doc:`/explanation/fields_proof`.

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
    ...     idata = pm.sample(100, tune=100, chains=1, step=TunaMH(), random_seed=1, progressbar=False)
    >>> idata.sample_stats["n_used"].mean().item() < 20  # of 2000 rows
    True
    """

    name = "tuna_mh"
    _shown = (*SubsampledStep._shown, "certificate", "prediction")
    stats_dtypes_shapes = WITHOUT_RULE
    _recipe: TunaRecipe | FieldRecipe
    # Of a cluster, while the step is set up.
    _client: Any = None

    def __init__(
        self,
        vars: Variable | str | Sequence[Variable | str] | None = None,
        *,
        control_variate: Taylor = TAYLOR,
        chi: float = 0.0,
        switch_above: float = 0.25,
        curvature: Mapping[str, Curvature] | None = None,
        compress: bool = True,
        debug: bool = False,
        client: Any = None,
        **options: Unpack[TunaKeywords],
    ) -> None:
        if client is not None:
            # The cluster is imported where there is one.
            from pymc_austerity.cluster.workers import require_client

            require_client(client, or_executor=True)
        self._client = client
        tuna = checked_tuna_options(chi, switch_above, curvature, debug)
        taylor = checked_control_variate(control_variate)
        if isinstance(options.get("proposal"), Langevin | StiefelWalk):
            raise ValueError(
                f"TunaMH has no decision rule for the moves of {type(options['proposal']).__name__}. Use it "
                "with AusterityMH, MHSubLhd, MinibatchBarker or MetropolisHastings."
            )
        try:
            super().__init__(vars, EXACT, control_variate=taylor, compress=compress, **tuna, **options)
        finally:
            del self._client

    def _build(self, point: PointType) -> None:
        super()._build(point)
        self._told(point)

    def _told(self, point: PointType) -> None:
        """Try the step out, and warn if it will mix badly."""
        mixing = self.try_out(point)
        if mixing is not None and mixing.is_poor and not self._recipe.is_field:  # of a field it has been told
            warn_of_poor_mixing(mixing, self.name_of(mixing.dimension), is_field=False)

    def _planned(self, point: PointType, recipe: Recipe | None = None) -> Plan:
        return plan_exact(self._options, point, recipe, self._client)

    def with_more_rows(self, model: Any = None, *, progressbar: bool = True) -> TunaMH:
        """A step for the same model with more rows, which is set up from what is known of this one.

        Parameters
        ----------
        model : pymc.Model, optional
            A model that differs in its data alone: those of this step, and others that follow upon them.
            Default: the model of this step, whose data were replaced by `pm.set_data`.
        progressbar : bool, default True
            Whether the set-up is shown while it lasts.

        Returns
        -------
        TunaMH
            Its options are those of this step, but for `client`, `initial_point` and `rng`. This one stays as
            it is, until a chain begins for which `pm.set_data` has replaced its data.

        Raises
        ------
        ValueError
            As of a new step.

        Notes
        -----
        Sums of derivatives add: only the new rows are differentiated, where the terms were expanded before,
        and a Newton step leads to the new mode. Earlier bounds hold there, but for models of which rows are
        drawn by bounds of their own, or of groups of coordinates (`certificate`): these are computed again.

        *Guarantee*: that of a new step. Rows that were there are compared with what they were, those on disk
        by checksums.

        *When it fails*: it does what a new step does, a search for the mode on all rows, where that has moved
        by more than two posterior standard deviations, where bounds in the earlier coordinates have become
        wide, where earlier rows are not what they were (as of columns that are standardised in the model),
        for a field of effects, where equal rows are joined, and where this step was unpickled and has not
        run.

        Examples
        --------
        >>> import numpy as np
        >>> import pymc as pm
        >>> from pymc_austerity import TunaMH
        >>> rng = np.random.default_rng(1)
        >>> x = rng.normal(size=11_000)
        >>> y = rng.poisson(np.exp(1 + 0.3 * x))
        >>> with pm.Model() as model:
        ...     data, visits = pm.Data("x", x[:10_000]), pm.Data("y", y[:10_000])
        ...     level, slope = pm.Normal("level"), pm.Normal("slope")
        ...     pm.Poisson("visits", pm.math.exp(level + slope * data), observed=visits)
        ...     step = TunaMH(progressbar=False)
        ...     pm.set_data({"x": x, "y": y})
        visits
        >>> step.with_more_rows(progressbar=False).configuration["n_local"]
        11000
        """
        model = self._model if model is None else model_of(model)
        names = [str(self._model.values_to_rvs[v].name) for v in self._vars]
        options = replace(self._options, model=model, vars=tuple(value_variables(model, names)))
        point = default_point(model)
        with watched(type(self).__name__, progressbar), budgeted(options.set_up_budget), many_graphs():
            stage("reading the model")
            plan = None
            if self._factorisation is not None and self._engine is not None:
                plan = plan_with_more_rows(options, point, self._factorisation, self._recipe, self._engine)
            if plan is None:
                logger.info("TunaMH: the step before does not serve for these data, and all is set up anew.")
                plan = plan_exact(options, point)
            step = self.from_plan(plan, point)
            plan.recipe.tell(plan)
            step._told(point)
        return step

    @property
    def prediction(self) -> Prediction | FieldPrediction:
        """Rows that are expected for a transition."""
        return self._recipe.prediction

    @property
    def certificate(self) -> str:
        """Where the bounds come from: for each term the row function, and how loose its bounds are."""
        return self._recipe.certificate

    @property
    def reads_all(self) -> bool:
        """Whether the exact test on all rows is used, because bounds are too loose."""
        return self._recipe.reads_all

    def _settings(self) -> dict[str, Any]:
        settings = super()._settings()
        if self.reads_all:  # the rule that was switched to is named
            return settings
        del settings["rule"], settings["range_bound"], settings["subsample"], settings["n_exact"]
        own = {
            "chi": self._options.chi,
            "switch_above": plain(self._options.switch_above),
            "curvature": plain(self._options.curvature),
        }
        return {**own, **settings}
