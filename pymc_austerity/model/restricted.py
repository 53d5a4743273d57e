"""`RestrictedModel`: what a step sees of a model if it needs only the terms with its own variables."""

from collections.abc import Sequence
from typing import Any

import pymc as pm
import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors

from pymc_austerity.model.graph.checks import is_elemwise
from pymc_austerity.model.graph.log_density import raw_terms
from pymc_austerity.model.graph.rows_on_disk import refuse_rows


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
