"""Whether the posterior of a block is log-concave: then it has one mode, and one start leads there.

That is so for regressions with canonical links, for probits, and for many others, under normal priors.
"""

from __future__ import annotations

import pymc as pm
from pymc.distributions.continuous import FlatRV
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.basic import LogisticRV, MvNormalRV, NormalRV

from pymc_austerity.bounds.expressions.curvature import is_concave
from pymc_austerity.model.structure.term_structure import TermStructure

# Their log densities are concave for all parameters.
_CONCAVE = (FlatRV, LogisticRV, MvNormalRV, NormalRV)


def is_log_concave(model: pm.Model, structure: TermStructure) -> bool:
    """Is the log density known to be concave in the block, whatever the other variables are?

    Local terms have to be functions of predictors that are linear in the block, and concave in these
    (`is_concave`). Other terms with variables of the block have to be their priors, of distributions that are
    known, with parameters that do not depend on the block.
    """
    if structure.features is not None:
        return False
    fact = structure.factorisation
    block = {fact.graph.values[name] for name in fact.var_names}
    moved = {rv for rv in model.free_RVs if model.rvs_to_values[rv].name in fact.var_names}
    priors = {rv.name for rv in moved if _has_concave_prior(model, rv, moved)}
    if any(name not in priors for name, graph in fact.globals if block.intersection(ancestors([graph]))):
        return False
    if not all(map(structure.has_row_function, range(len(fact.locals)))):
        return False
    return all(not one.others and is_concave(one.expression) for one in structure.row_functions)


def _has_concave_prior(model: pm.Model, rv: Variable, moved: set[Variable]) -> bool:
    assert rv.owner is not None
    if not isinstance(rv.owner.op, _CONCAVE) or model.rvs_to_transforms[rv] is not None:
        return False
    return moved.isdisjoint(ancestors(rv.owner.inputs))
