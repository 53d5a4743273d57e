"""How many values a discrete variable has."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pymc as pm
from pytensor.graph.basic import Variable
from pytensor.tensor.random.basic import BernoulliRV, CategoricalRV

from pymc_austerity.model.graph.functions import function_of
from pymc_austerity.model.graph.rewrite import INTERPRETED


def number_of_values(model: pm.Model, value: Variable, point: Mapping[str, Any]) -> int:
    """K of a vector of variables with values 0, ..., K - 1.

    A length that the graph does not tell is measured at `point`. `ValueError` is raised if the variable is
    neither a vector of `pm.Bernoulli` nor of `pm.Categorical`, or K is 1.
    """
    rv = model.values_to_rvs[value]
    operation = None if rv.owner is None else rv.owner.op
    if not isinstance(operation, BernoulliRV | CategoricalRV):
        kind = "no random variable" if operation is None else f"a {type(operation).__name__}"
        raise ValueError(
            f"The variable {rv.name!r} is {kind}, and must be a pm.Bernoulli or a pm.Categorical: its values "
            "have to be known, and few. Use pm.Metropolis, or a Categorical of as many categories."
        )
    shape = np.shape(point[value.name])
    if len(shape) != 1:
        raise ValueError(
            f"The variable {rv.name!r} must be a vector of sites, got shape {shape}. Write a table as one "
            "long vector, and look its sites up by their numbers."
        )
    if isinstance(operation, BernoulliRV):
        return 2
    return length_of_categories(model, rv, point)


def length_of_categories(model: pm.Model, rv: Variable, point: Mapping[str, Any]) -> int:
    """Number of probabilities that a `pm.Categorical` has, which are two at least."""
    (p,) = rv.owner.op.dist_params(rv.owner)
    (length,) = model.replace_rvs_by_values([p.shape[-1]])
    function = function_of(model.value_vars, length, INTERPRETED.including("ShapeOpt"))
    n_categories = int(function(*(point[v.name] for v in model.value_vars)))
    if n_categories < 2:
        raise ValueError(f"The variable {rv.name!r} has {n_categories} category: there is nothing to draw.")
    return n_categories
