"""`factorise`: the factorisation of a model, which shows the field of the model."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import pymc as pm
from pymc.initial_point import PointType
from pytensor.graph.basic import Variable

from pymc_austerity.exceptions import FactorisationError
from pymc_austerity.model.factorisation import Factorisation
from pymc_austerity.model.factorise import build, model_of
from pymc_austerity.model.field.find import Field, find_field
from pymc_austerity.model.field.priors import NoField


def factorise(
    model: pm.Model | None = None,
    vars: Variable | str | Sequence[Variable | str] | None = None,
    *,
    threshold: int = 1000,
    initial_point: PointType | None = None,
) -> Factorisation:
    """Split a model's log density into a global part and a sum of independent local terms.

    Parameters
    ----------
    model : pymc.Model, optional
        Default: the model of the context.
    vars : variables or their names, optional
        Keep only the terms that contain one of these. Default: all.
    threshold : int, default 1000
        A vector of at least so many terms, or a table of so many cells, is local; shorter ones are evaluated
        in full.
    initial_point : dict, optional
        A point as ``model.initial_point()`` gives it, for models where that is slow.

    Returns
    -------
    Factorisation

    Raises
    ------
    FactorisationError
        If the rows of a long term cannot be computed one by one. The message names the term, the
        operation that couples its rows, and what to do.

    Notes
    -----
    Section 3.1 of Chen, Mansinghka & Ghahramani (2015). Nothing is compiled; the factorisation is
    checked once against the model, at a random point near `initial_point`, at the cost of a few
    evaluations of the log density. Rows on disk (`stored_data`) are compared with their checksums, in one
    pass.

    *Guarantee*: with ``vars=None``, ``log_density_terms(point).sum() + global_log_density(point)``
    equals ``model.compile_logp()(point)`` up to rounding. With some variables, differences between
    two points that differ only in these variables are equal. One exception: where a parameter is
    invalid in some row and its log density is not simply added up (inside a mixture, PyMC drops that
    component for all rows and goes on), the density here is minus infinity.

    *When it fails*: it refuses, by name, whatever it cannot factorise; see `FactorisationError`.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> from pymc_austerity import factorise
    >>> rng = np.random.default_rng(1)
    >>> x = rng.normal(size=2000)
    >>> y = rng.poisson(np.exp(1 + 0.3 * x))
    >>> with pm.Model() as model:
    ...     level, slope = pm.Normal("level"), pm.Normal("slope")
    ...     visits = pm.Poisson("visits", pm.math.exp(level + slope * x), observed=y)
    >>> print(factorise(model))
    Factorisation by level, slope: 2,000 local terms
      local   visits         2,000
      global  level
      global  slope
    """
    model = model_of(model)
    found = build(model, vars, threshold=threshold, initial_point=initial_point, check=True)
    return replace(found, find=partial(_field_of, model))


def _field_of(model: pm.Model, factorisation: Factorisation) -> Field | NoField:
    graph = factorisation.graph
    try:
        if not set(graph.terms).issuperset(graph.variables.values()):  # it has the terms of some variables
            factorisation = build(
                model, None, threshold=factorisation.threshold, initial_point=graph.point, check=False
            )
        return find_field(model, factorisation)
    except NoField as reason:
        return reason
    except FactorisationError as error:
        return NoField(str(error))
