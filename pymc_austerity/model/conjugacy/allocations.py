"""Latent allocations z: the terms of the log density that contain z_i, as functions of z_i and i alone.

That such functions exist is what makes the z_i independent given all other variables. It is shown on the
graph: rows of every term that contains z are computed from an index, and if these touch z only as
``z[index]``, row by row, then ``z[index]`` can be replaced by an input of its own and z is gone.
"""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.initial_point import PointType
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors, toposort
from pytensor.tensor.random.basic import CategoricalRV
from pytensor.tensor.subtensor import AdvancedSubtensor

from pymc_austerity.exceptions import FactorisationError
from pymc_austerity.model.categories import length_of_categories
from pymc_austerity.model.compile.backend import current_backend
from pymc_austerity.model.compile.target import CompiledTarget
from pymc_austerity.model.factorisation import Factorisation, LocalTerm
from pymc_austerity.model.factorise import build
from pymc_austerity.model.graph.leaves import extract_given
from pymc_austerity.model.graph.rewrite import INTERPRETED, rebuild
from pymc_austerity.model.self_check import check_change, jittered

_SEED = 2014
# Vectors of other variables (tables of weights, say) that are worth computing once for each draw.
_LONG = 1000
# Rows whose categories are changed together in the numerical check.
_CHECKED_ROWS = 6
_ADVICE = (
    "Write the model so that the prior and the likelihood of row i depend on z[i] only, or use "
    "pm.CategoricalGibbsMetropolis, which evaluates the full density for each row."
)


def number_of_categories(model: pm.Model, value: Variable, point: Mapping[str, Any]) -> int:
    """K of a vector of categorical variables, refusing all other variables.

    It has to be of `pm.Categorical`, with at least three rows and two categories. `point` is where a length
    is measured that the graph does not tell.
    """
    rv = model.values_to_rvs[value]
    if rv.owner is None or not isinstance(rv.owner.op, CategoricalRV):
        kind = "no random variable" if rv.owner is None else f"a {type(rv.owner.op).__name__}"
        raise ValueError(
            f"The variable {rv.name!r} is {kind}, and must be a pm.Categorical: its rows have to be "
            "independent, each with a finite number of categories. Use pm.CategoricalGibbsMetropolis or "
            "pm.Metropolis."
        )
    shape = np.shape(point[value.name])
    if len(shape) != 1 or shape[0] < 3:
        raise ValueError(
            f"The variable {rv.name!r} must be a vector of at least 3 allocations, got shape {shape}. Use "
            "pm.CategoricalGibbsMetropolis, or write a table as one long vector."
        )
    return length_of_categories(model, rv, point)


class Allocations(CompiledTarget):
    """All terms that contain z_i, for one vector z of allocations, whose value variable is `value`.

    The state q of a `CompiledTarget` is here the category of each row that is asked for, an integer vector of
    the length of the index: ``log_terms(categories, index, args)``. With `check` the terms are compared with
    the model, numerically, at the cost of a few evaluations of its log density. If the z_i are coupled given
    all other variables, a `FactorisationError` names the term.
    """

    def __init__(self, model: pm.Model, value: Variable, point: PointType, *, check: bool) -> None:
        self.n_categories = number_of_categories(model, value, point)
        self.n_local = len(point[value.name])
        # Initial points have all rows in one category; that would hide coupling from the checks.
        z = np.random.default_rng(_SEED).integers(self.n_categories, size=self.n_local)
        point = {**point, value.name: z.astype(value.type.dtype)}
        fact = _factorised(model, value, point, check=check)
        self.term_names = [term.name for term in fact.locals]  # of the model, that contain z
        self.backend = current_backend()
        self.factorisation = fact
        self.values = fact.graph.values
        self._q = pt.vector("categories", dtype="int64")
        self._index = pt.vector("index", dtype="int64")
        own = self.values[value.name]
        total: Variable = pt.constant(0.0)
        for term in fact.locals:
            total = total + self._as_function_of_category(term, own)
        moving = [self._q, self._index]
        self.given, (total,) = extract_given([total], moving, max(fact.threshold, _LONG))
        placeholders = [leaf.placeholder for leaf in fact.leaves]
        args = self._take_arguments([total], dict(zip(placeholders, fact.leaf_values, strict=True)), ())
        self._outputs = {"log_terms": total}
        self._inputs = {"log_terms": [self._q, self._index, *args]}
        self._functions = {}
        if check:
            self._compare_with_model(model, value)

    def log_terms(self, point: PointType, categories: np.ndarray, index: np.ndarray) -> np.ndarray:
        """Sum of the terms that contain z_i for rows i, with z_i as in `categories`; nothing is compiled."""
        given = categories.astype(np.int64), index.astype(np.int64)
        return self.evaluated("log_terms", *given, *self.args(point))

    def _as_function_of_category(self, term: LocalTerm, z: Variable) -> Variable:
        """Rows of a term with ``z[index]`` replaced by the categories; refused if z is needed otherwise."""
        if term.size != self.n_local:
            raise _coupled(z.name, term.name, f"it has {term.size:,} rows, and {z.name} has {self.n_local:,}")
        replace: dict[Variable, Variable] = {term.index: self._index}
        for node in toposort([term.rows]):
            looks_up = isinstance(node.op, AdvancedSubtensor) and node.inputs[0] is z
            if looks_up and len(node.inputs) == 2 and node.inputs[1].type.ndim == 1:
                self._require_own_row(term, z, node.inputs[1])
                replace[node.outputs[0]] = self._q
        (rows,) = rebuild([term.rows], replace)
        if z in ancestors([rows]):
            raise _coupled(z.name, term.name, f"a row of it takes all of {z.name}")
        return rows

    def _require_own_row(self, term: LocalTerm, z: Variable, position: Variable) -> None:
        """Refuse a row that reads z elsewhere than in its own place."""
        if position is term.index:
            return
        if not set(ancestors([position])).isdisjoint(self.values.values()):
            raise _coupled(z.name, term.name, f"which of {z.name} a row reads depends on sampled variables")
        numbers = np.arange(self.n_local)
        function = self.factorisation.compile(position, [term.index], mode=INTERPRETED)
        point = self.factorisation.point_values(self.factorisation.graph.point)
        found = function(*point, numbers, *self.factorisation.leaf_values)
        different = np.flatnonzero(found != numbers)
        if len(different):
            i = int(different[0])
            raise _coupled(z.name, term.name, f"row {i} of it reads {z.name}[{int(found[i])}]")

    def _compare_with_model(self, model: pm.Model, value: Variable) -> None:
        """Change the categories of several rows together: the terms must change as those of each row do."""
        graph = self.factorisation.graph
        # At an initial point all components are often alike, and every z has the same density.
        point = dict(zip(graph.values, jittered(graph), strict=True))
        rng = np.random.default_rng(_SEED + 1)
        n = self.n_local
        rows = np.unique([0, 1, n - 1, *rng.integers(n, size=_CHECKED_ROWS - 3)])
        old = np.asarray(point[value.name])
        new = old.copy()
        new[rows] = (old[rows] + rng.integers(1, self.n_categories, size=len(rows))) % self.n_categories
        with np.errstate(all="ignore"):
            ours = [self.log_terms(point, z[rows], rows).sum() for z in (new, old)]
        points = [{**point, value.name: z} for z in (new, old)]
        moved = f"other categories in rows {rows.tolist()} change"
        check_change(graph, model, points, ours, (f"the allocations {value.name!r}", moved, "these rows"))


def _factorised(model: pm.Model, value: Variable, point: PointType, *, check: bool) -> Factorisation:
    """All terms that contain z, taken apart into as many rows as z has."""
    try:
        fact = build(model, [value], threshold=len(point[value.name]), initial_point=point, check=check)
    except FactorisationError as error:
        # What `factorise` advises, another threshold or NUTS, is of no use here.
        reason = re.sub(r" \(if these are not observations.*? allows that\)", "", str(error))
        reason = reason.split(" Use another step method")[0].rstrip(".")
        raise FactorisationError(
            f"The allocations {value.name!r} cannot be drawn row by row, each given all other variables. "
            f"{reason}. {_ADVICE}"
        ) from error
    for name, graph in fact.globals:
        if fact.graph.values[value.name] in ancestors([graph]):
            n = len(point[value.name])
            raise _coupled(value.name, name, f"it does not consist of {n:,} terms, one for each row")
    return fact


def _coupled(z: str, term: str, reason: str) -> FactorisationError:
    return FactorisationError(
        f"The allocations {z!r} cannot be drawn row by row, each given all other variables, because of the "
        f"term {term!r}: {reason}. {_ADVICE}"
    )
