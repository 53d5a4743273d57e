"""PyMC's NUTS and Slice on those terms of the log density that contain their variables."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any, Self

import numpy as np
import pymc as pm
import pytensor.scalar as ps
import pytensor.tensor as pt
from pymc.blocking import StatsType
from pymc.initial_point import PointType
from pymc.step_methods.arraystep import ArrayStepShared
from pymc.step_methods.compound import CompoundStep
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors
from pytensor.xtensor.type import XTensorType

from pymc_austerity.model.checks import refuse_data
from pymc_austerity.model.compile.protocol import exact_arithmetic
from pymc_austerity.model.factorise import model_of, value_variables
from pymc_austerity.model.graph.checks import is_elemwise
from pymc_austerity.model.graph.log_density import raw_terms
from pymc_austerity.model.graph.rows_on_disk import refuse_rows
from pymc_austerity.model.starting_point import initial_point as default_point
from pymc_austerity.step_methods.messages import refuse_discrete


class RestrictedModel(pm.Model):
    """A view of a model whose log density is the sum of the terms that contain given variables.

    PyMC's steps take from a model the graph of `logp` and its inputs, `value_vars`. These two are replaced;
    all else is the model's own. As functions of the value variables `vars`, the log densities of the view and
    of the model differ by a constant.
    """

    def __init__(self, model: pm.Model, vars: Sequence[Variable]) -> None:
        self.__dict__.update(model.__dict__)  # instead of pm.Model.__init__, which makes an empty model
        parts = [part for term in raw_terms(model, vars).values() for part in _addends(term)]
        kept = [part.sum() for part in parts if not set(vars).isdisjoint(ancestors([part]))]
        refuse_rows(kept)
        self._log_density = pt.add(pt.constant(0.0), *kept)
        used = {*vars, *ancestors([self._log_density])}  # the density of pm.Flat contains no variable
        self._value_vars = [value for value in model.value_vars if value in used]

    @property
    def value_vars(self) -> list[Variable]:
        """The given variables, and those that their terms depend on."""
        return self._value_vars

    def logp(self, *args: Any, **kwargs: Any) -> Variable:
        """Sum of the terms."""
        return self._log_density


def _addends(term: Variable) -> list[Variable]:
    """Parts of a term that is a sum of numbers, such as a `pm.Potential` of a likelihood and a prior."""
    if term.type.ndim == 0 and is_elemwise(term, ps.Add):
        return [part for x in term.owner.inputs for part in _addends(x)]
    return [term]


def restricted_nuts(
    vars: Variable | str | Sequence[Variable | str], *, model: pm.Model | None = None, **kwargs: Any
) -> pm.NUTS | CompoundStep:
    """`pm.NUTS` that evaluates only the terms of the model that contain its variables.

    For hyperparameters beside a subsampled step. A scale tau above group effects, say, occurs in two short
    terms, but `pm.NUTS([tau])` goes through all data.

    Parameters
    ----------
    vars : variables or their names
        Continuous variables to update together.
    model : pymc.Model, optional
        Default: the model of the context.
    **kwargs
        Any of `pm.NUTS`, such as `target_accept`, `max_treedepth`, `scaling`, `rng` or `initial_point`. With
        ``blocked=False`` every variable has a step of its own.

    Returns
    -------
    pm.NUTS
        A CompoundStep of several with ``blocked=False``.

    Raises
    ------
    ValueError
        If a variable is not a free, continuous variable of the model.
    TypeError
        If `logp_dlogp_func` is given.

    Notes
    -----
    *Guarantee*: up to a constant, the terms kept are the whole conditional density of the variables, so the
    draws have the same distribution as those of `pm.NUTS`. With one seed they are equal up to rounding. The
    values of all other variables are read at each step.

    *When it fails*: it saves nothing where the variables enter the likelihood itself, as does the scale of a
    non-centred effect. There `pm.NUTS` is the better choice: to be the same in every process, long sums are
    taken here in order, which can be ten times slower. If `pm.set_data` changes the length of a variable in
    these terms, make a new step, as of `pm.NUTS`. The sample statistic `lp` would need all terms and is NaN;
    `energy` is that of the conditional density.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> from pymc_austerity import restricted_nuts
    >>> group = np.repeat(np.arange(10), 200)
    >>> y = np.random.default_rng(1).normal(0.1 * group, 1)
    >>> with pm.Model() as model:
    ...     tau = pm.HalfNormal("tau", 1)
    ...     theta = pm.Normal("theta", 0, tau, shape=10)
    ...     score = pm.Normal("score", theta[group], 1, observed=y)
    ...     step = restricted_nuts([tau])  # evaluates tau and theta, and none of the 2000 scores
    ...     point, _ = step.step(model.initial_point())
    >>> sorted(point)
    ['tau_log__', 'theta']

    Pass it beside a step for the other variables: ``pm.sample(step=[AusterityMH([theta]), step])``.
    """
    if "logp_dlogp_func" in kwargs:
        raise TypeError("restricted_nuts makes logp_dlogp_func itself; leave it out, or use pm.NUTS.")
    return _make(RestrictedNUTS, vars, model, kwargs)


def restricted_slice(
    vars: Variable | str | Sequence[Variable | str], *, model: pm.Model | None = None, **kwargs: Any
) -> pm.Slice | CompoundStep:
    """`pm.Slice` that evaluates only the terms of the model that contain its variables.

    The counterpart of `restricted_nuts` for variables without a gradient, or few of them.

    Parameters
    ----------
    vars : variables or their names
        Continuous variables to update.
    model : pymc.Model, optional
        Default: the model of the context.
    **kwargs
        Any of `pm.Slice`, such as `w`, `max_steps` or `rng`.

    Returns
    -------
    pm.Slice
        A CompoundStep with one for each of several variables, unless ``blocked=True``.

    Raises
    ------
    ValueError
        If a variable is not a free, continuous variable of the model.

    Notes
    -----
    *Guarantee*: as of `restricted_nuts`; with one seed the draws equal those of `pm.Slice` up to rounding.

    *When it fails*: as of `restricted_nuts`.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> from pymc_austerity import restricted_slice
    >>> group = np.repeat(np.arange(10), 200)
    >>> y = np.random.default_rng(1).normal(0.1 * group, 1)
    >>> with pm.Model() as model:
    ...     tau = pm.HalfNormal("tau", 1)
    ...     theta = pm.Normal("theta", 0, tau, shape=10)
    ...     score = pm.Normal("score", theta[group], 1, observed=y)
    ...     step = restricted_slice([tau])  # evaluates tau and theta, and none of the 2000 scores
    ...     point, _ = step.step(model.initial_point())
    >>> sorted(point)
    ['tau_log__', 'theta']

    Pass it beside a step for the other variables: ``pm.sample(step=[AusterityMH([theta]), step])``.
    """
    return _make(RestrictedSlice, vars, model, kwargs)


def _make(
    kind: type[_Restricted],
    vars: Variable | str | Sequence[Variable | str],
    model: pm.Model | None,
    kwargs: dict[str, Any],
) -> _Restricted | CompoundStep:
    model = model_of(model)
    value_vars = value_variables(model, vars)
    refuse_discrete(value_vars)
    refuse_data(model)
    labelled = [v.name for v in value_vars if isinstance(v.type, XTensorType)]
    if labelled and kind is RestrictedSlice:
        raise ValueError(
            f"pm.Slice cannot update variables of pymc.dims ({', '.join(labelled)}); use restricted_nuts."
        )
    return kind(value_vars, model=model, **kwargs)


class _Restricted(ArrayStepShared):
    """One of PyMC's steps, built on a view of the model, which is all that it needs to be restricted."""

    def __init__(
        self,
        vars: list[Variable],
        *,
        model: pm.Model,
        initial_point: PointType | None = None,
        compile_kwargs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        # An input is not used if the terms need its shape alone, or if no term contains a variable.
        kwargs["compile_kwargs"] = {"on_unused_input": "ignore", **(compile_kwargs or {})}
        kwargs["initial_point"] = default_point(model) if initial_point is None else initial_point
        # PyMC takes `check_bounds` from the context, not from the argument.
        with RestrictedModel(model, vars) as view, exact_arithmetic():
            if isinstance(scaling := kwargs.get("scaling"), dict):  # a point
                kwargs["scaling"] = {v.name: scaling[v.name] for v in view.value_vars}
            super().__init__(vars, model=view, **kwargs)
        self._model = model  # which NUTS asks for the terms that are not finite at a bad start

    def step(self, point: PointType) -> tuple[PointType, StatsType]:
        """Show the step only what it depends on.

        PyMC's steps ravel the whole point, in its own order, if they depend on no variable of another step.
        """
        own = {name: point[name] for name in (*self.var_names, *self.shared)}
        with exact_arithmetic():  # the first call compiles
            new, stats = super().step(own)
        if "model_logp" in stats[0]:
            stats[0]["model_logp"] = np.nan
        return {**point, **new}, stats

    # Copies are built anew from the arguments, not from compiled functions: those would be compiled again
    # without `exact_arithmetic`, and draws of parallel chains would differ in the last bit.

    def __getstate__(self) -> Any:
        return self.sampling_state

    def __setstate__(self, state: Any) -> None:
        args, kwargs = self.__getnewargs_ex__()
        self.__init__(*args, **kwargs)  # type: ignore[misc]
        self.sampling_state = state

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        args, kwargs = self.__getnewargs_ex__()
        kwargs = deepcopy(kwargs, {**memo, id(self._model): self._model})  # the model is shared
        clone = type(self)(*args, **kwargs)
        clone.sampling_state = self.sampling_state
        return clone


class RestrictedNUTS(_Restricted, pm.NUTS):
    """NUTS on a restricted density."""


class RestrictedSlice(_Restricted, pm.Slice):
    """Slice sampling on a restricted density."""
