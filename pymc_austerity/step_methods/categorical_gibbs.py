"""`MinibatchCategoricalGibbs`: Gibbs updates of latent allocations, a minibatch of rows at a time."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pymc as pm
from pymc.initial_point import PointType
from pymc.step_methods.compound import StepMethodState
from pytensor.graph.basic import Variable

from pymc_austerity.kernels.categorical_gibbs import (
    BatchDraws,
    GibbsOutcome,
    ImpossibleRowError,
    draw_category,
    gibbs_updates,
)
from pymc_austerity.model.compile.protocol import exact_arithmetic
from pymc_austerity.model.conjugacy.allocations import Allocations
from pymc_austerity.model.graph.log_density import LogDensityGraph, fingerprint
from pymc_austerity.progress import stage
from pymc_austerity.step_methods.base import (
    RebuiltStep,
    batch_rows,
    checked_batch_size,
    checked_steps_per_draw,
    floats,
)
from pymc_austerity.step_methods.messages import warn_of_given
from pymc_austerity.target import Index


class MinibatchCategoricalGibbs(RebuiltStep):
    """Draw the latent allocations of a minibatch of rows, each from its exact conditional distribution.

    For vectors of `pm.Categorical` in mixture models, topic models and the like, beside other steps for
    the weights and the parameters of the components.

    Parameters
    ----------
    vars : variable or its name
        The allocations z, one vector of shape (N,) with values 0, ..., K - 1. Its prior may be one vector of
        K probabilities or a row of a table for each z_i.
    batch_size : int or float, optional
        Rows that one update draws, chosen uniformly without replacement and independently of the state: a
        number from 1 to N, or a share of N between 0 and 1. Default: all N, which is a full sweep.
    steps_per_draw : int, default 1
        Updates for each draw, of a new batch each. With small batches an allocation waits N / (batch_size
        steps_per_draw) draws on average until it is drawn again; the other variables mix no faster.
    model : pymc.Model, optional
        Default: the model of the context.
    blocked : bool, default True
        With False, several variables get a step each.
    rng : numpy.random.Generator or int, optional
    initial_point : dict, optional
        A point as ``model.initial_point()`` gives it, for models where that is slow.
    compile_kwargs : dict, optional
        Not used: steps of this package compile with numba.
    progressbar : bool, default True
        Whether a set-up that takes more than a second is shown while it lasts.

    Raises
    ------
    FactorisationError
        If the z_i are coupled given all other variables, as in a hidden Markov model or through their sum.
        The message names the term.
    ValueError
        If the variable is not a vector of `pm.Categorical`, or a parameter is not in its range. While
        sampling, if no category of a row has positive density.

    Notes
    -----
    z_i is drawn with P(z_i = k | rest) in proportion to exp(sum of the terms that contain z_i, with z_i = k).
    The terms are found on the graph of the model, so likelihood and prior may be anything that PyMC can
    write, as long as row i of a term contains z_i and no other allocation. An update costs O(n K) terms for n
    rows. In addition a draw copies z once, and compares it with the last one if it was copied in between (as
    in parallel chains); that takes about a millisecond for a million rows.

    Sample statistics: `n_used`, rows drawn by an update; `fraction_used`, the same over N; `changed`, the
    share of rows drawn that got another category.

    *Guarantee*: exact. Each update leaves the conditional distribution of z given all other variables
    invariant, for any batch size, because the choice of the rows does not depend on the state (appendix D.3
    of Baker et al., 2018, makes this remark of the allocations in their slice sampler).

    *When it fails*: with a term that is not made of N rows, of which row i contains z_i only, it refuses.
    That includes chains, sums, data that have several rows, or none, for some z_i, and N < 3. Where
    components are far apart, allocations and component parameters hold each other, and labels never switch:
    the posterior given one labelling is all that can be expected. If the K probabilities of a row are
    computed from other parameters (``logit_p=X @ B``), they are computed for each of its K categories. PyMC
    records z at every draw: for large N name what to keep, ``pm.sample(var_names=...)``.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> from pymc_austerity import MinibatchCategoricalGibbs
    >>> rng = np.random.default_rng(1)
    >>> mu = np.array([-3.0, 0.0, 3.0])
    >>> y = rng.normal(mu[rng.integers(3, size=1000)], 1)
    >>> with pm.Model() as model:
    ...     w = pm.Dirichlet("w", np.ones(3))
    ...     z = pm.Categorical("z", p=w, shape=1000)
    ...     score = pm.Normal("score", pm.math.constant(mu)[z], 1, observed=y)
    ...     step = MinibatchCategoricalGibbs([z], batch_size=0.1, rng=1)
    ...     point, (stats,) = step.step(model.initial_point())
    >>> stats["n_used"], stats["fraction_used"]
    (100.0, 0.1)

    Beside it `SCIR` moves the weights: ``pm.sample(step=[step, SCIR([w])])``.
    """

    name = "minibatch_categorical_gibbs"
    _rebuilt = ("_updates", "_population", "_counted", "_allocations")
    _state_class = StepMethodState
    _allocations: Any = None
    _updates: Any = None
    _population: Any = None
    # An array of allocations, and its number of rows in each category.
    _counted: tuple[np.ndarray, Index] | None = None
    stats_dtypes_shapes = floats("n_used", "fraction_used", "changed")

    def __init__(
        self,
        vars: Variable | str | Sequence[Variable | str] | None = None,
        *,
        batch_size: int | float | None = None,
        steps_per_draw: int = 1,
        model: pm.Model | None = None,
        blocked: bool = True,
        rng: Any = None,
        initial_point: PointType | None = None,
        compile_kwargs: dict[str, Any] | None = None,
        progressbar: bool = True,
    ) -> None:
        self._steps_per_draw = checked_steps_per_draw(steps_per_draw)
        self._made_for(vars, model, rng, compile_kwargs)
        if len(self.vars) > 1:
            raise ValueError(
                "One step draws one vector of allocations, got "
                f"{', '.join(str(v.name) for v in self.vars)}. Name one variable, as in "
                f"{type(self).__name__}([z]), and give each vector of allocations a step of its own."
            )
        self._requested_size = checked_batch_size(batch_size)
        self._build_first(initial_point, progressbar)

    # Building -------------------------------------------------------------------------------

    def _build(self, point: PointType) -> None:
        """Find the terms that contain z on the graph, and compile."""
        self._compile(Allocations(self._model, self._vars[0], point, check=True), point)

    def _rebuild(self, point: PointType) -> bool:
        found = Allocations(self._model, self._vars[0], point, check=False)
        if [fingerprint(found.factorisation.graph)] != self._data_seen:
            return False
        self._compile(found, point)
        return True

    def _compile(self, found: Allocations, point: PointType) -> None:
        n_local, name = found.n_local, self._vars[0].name
        rows = batch_rows(self._requested_size, n_local, name, (name, n_local))
        self._batch_size = n_local if rows is None else rows
        self._n_local = n_local
        warn_of_given(found)
        self._updates = found.compile(gibbs_updates, {"rule": BatchDraws(..., draw_category)}, ["log_terms"])
        self._population = np.arange(found.n_local)
        self._counted = None
        stage("updates")
        with exact_arithmetic():  # the first call compiles
            z = np.zeros(found.n_local, dtype=np.int64)
            counts = np.zeros(found.n_categories, dtype=np.int64)
            rng = np.random.default_rng(0)
            self._updates(0, rng, z, counts, found.args(point), self._population, self._batch_size)
        self._allocations = found

    def _graphs(self) -> list[LogDensityGraph]:
        return [self._allocations.factorisation.graph]

    # PyMC's contract ------------------------------------------------------------------------

    def _begin_chain(self, n_tune: int) -> None:
        self._counted = None

    def _step(self, point: PointType) -> tuple[PointType, list[dict[str, Any]]]:
        """Make `steps_per_draw` updates of z; all else stays as it is."""
        self.require_built(point)
        value, counts = self._vars[0], self.counts(point)
        z = np.array(point[value.name], dtype=np.int64)
        args = self._allocations.args(point), self._population, self._batch_size
        try:
            outcome: GibbsOutcome = self._updates(self._steps_per_draw, self.rng, z, counts, *args)
        except ImpossibleRowError as error:
            terms = ", ".join(self._allocations.term_names)
            raise ValueError(f"{value.name}: {error} (terms {terms})") from None
        new = z.astype(value.type.dtype, copy=False)
        self._counted = new, counts
        n_used = outcome.n_rows / self._steps_per_draw
        stats = {
            "n_used": n_used,
            "fraction_used": n_used / self._n_local,
            "changed": outcome.n_changed / outcome.n_rows,
        }
        return {**point, value.name: new}, [stats]

    def counts(self, point: PointType) -> Index:
        """Number of rows in each category at a point.

        Counts are carried along as rows change. They are made anew, from all N rows, only if z is not the one
        that this step returned last.

        Parameters
        ----------
        point : dict of str to ndarray
            As in ``model.initial_point()``; only z is looked up.

        Returns
        -------
        ndarray of int, shape (K,)
            The caller's own.

        Raises
        ------
        ValueError
            If z has another length than when the step was built, or values that are no categories.
        """
        self.require_built(point)
        z, last = point[self._vars[0].name], self._counted
        # Within one draw it is the same array; parallel chains copy it after each draw.
        if last is not None and (z is last[0] or np.array_equal(z, last[0])):
            return last[1].copy()
        n_local, n_categories = self._allocations.n_local, self._allocations.n_categories
        z = np.asarray(z)
        if z.shape != (n_local,):
            raise ValueError(
                f"The value of {self._vars[0].name} must have shape ({n_local},), got {z.shape}. If data "
                "were replaced, make a new step, or use the step through pm.sample."
            )
        if z.min() < 0 or z.max() >= n_categories:
            wrong = int(np.flatnonzero((z < 0) | (z >= n_categories))[0])
            raise ValueError(
                f"The value of {self._vars[0].name} in row {wrong} is {int(z[wrong])}, and its categories "
                f"are 0, ..., {n_categories - 1}. Start the chain with one of these."
            )
        return np.bincount(z, minlength=n_categories).astype(np.int64)

    def _settings(self) -> dict[str, Any]:
        return {
            "batch_size": int(self._batch_size),
            "steps_per_draw": self._steps_per_draw,
            "n_local": self._n_local,
        }

    def _own(self, memo: dict[int, Any]) -> dict[str, Any]:
        return {"_population": None if self._population is None else self._population.copy()}
