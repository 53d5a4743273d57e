"""`find_field`: the hierarchy of a model as rows and priors."""

from dataclasses import dataclass, replace

import numpy as np
import pymc as pm
from pytensor.graph.basic import Variable

from pymc_austerity.bounds.expressions.evaluate import evaluate
from pymc_austerity.model.factorisation import Factorisation, LocalTerm
from pymc_austerity.model.factorise import taken_apart
from pymc_austerity.model.field.check import require_same
from pymc_austerity.model.field.priors import GivenUp, NoField, Priors
from pymc_austerity.model.field.rows import Form, FormsOfRows
from pymc_austerity.model.field.tables import Table, Visitor
from pymc_austerity.model.graph.functions import function_of
from pymc_austerity.model.structure.affine_expressions import leaves
from pymc_austerity.model.structure.scalar_graph import Obstacle, ScalarGraph, scalar_graph
from pymc_austerity.target import Index


@dataclass(frozen=True, eq=False)
class Likelihood:
    """The rows of one term: a function of few predictors, each of which is linear in tables."""

    term: LocalTerm
    graph: ScalarGraph  # The rows as an expression; predictor k is the k-th of its scalars
    forms: FormsOfRows

    def __call__(self, positions: Index) -> list[Form]:
        """The predictors of the rows at some positions, one form (m,) or (1,) for each."""
        found = dict(zip(self._variables, self.forms(positions), strict=True))
        result = []
        for scalar in self.graph.scalars:
            form, element = found[scalar.variable], scalar.element
            index = tuple(slice(None) if k is None else k for k in element)
            result.append(form.moved(lambda ids, index=index: np.atleast_1d(ids[index])))
        return result

    def rows_at(self, positions: Index, tables: dict[Variable, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """The rows at some positions given values of all tables, and the sums of absolute terms in them."""
        columns = leaves(self.graph.expression, "data")
        data = dict(zip(columns, self.graph.data.chosen(columns)(positions), strict=True))
        etas = [np.broadcast_to(one.at(tables), positions.shape) for one in self(positions)]
        rows = evaluate(self.graph.expression, dict(enumerate(etas)), data)
        size = sum(np.abs(eta) for eta in etas) + np.abs(rows)
        return np.broadcast_to(rows, positions.shape), np.broadcast_to(size, positions.shape)

    @property
    def _variables(self) -> list[Variable]:
        return list(dict.fromkeys(scalar.variable for scalar in self.graph.scalars))


@dataclass(frozen=True, eq=False)
class Field:
    """A likelihood in rows and priors.

    eta_i = o_i + a_i . x for each predictor of each row, where x are the tables, and a table is
    x = T (w - m) with an innovation w - m = S z.
    """

    tables: tuple[Table, ...]
    rows: Factorisation  # The likelihood, whose block are the tables
    likelihoods: tuple[Likelihood, ...]


def find_field(model: pm.Model, factorisation: Factorisation) -> Field:
    """The field of a model.

    Raises
    ------
    NoField
        With the operation and the variable that have no rule.
    """
    graph = factorisation.graph
    names = [name for name, n_rows in graph.likelihood.items() if n_rows]
    if not names:
        raise NoField("the model has no likelihood")
    given_up: frozenset[str] = frozenset()
    while True:
        priors = Priors(model, factorisation, given_up)
        visitor = Visitor(priors, max(graph.likelihood.values()))
        try:
            terms = {name: visitor.rewritten(priors.terms[name]) for name in names}
            tables = tuple(visitor.tables)
            _require_numbers(priors, tables)
            _require_one_factor(priors, tables)
            break
        except GivenUp as one:
            given_up |= {str(one)}
    inputs = list(graph.values.values())
    point = [np.asarray(v) for v in graph.point.values()]
    at = function_of([*inputs, *graph.data], [t.graph for t in tables])(*point, *graph.data_values())
    values = {str(t.input.name): t.input for t in tables}
    own = replace(
        graph,
        values=values,
        point={name: np.asarray(x) for name, x in zip(values, at, strict=True)},
        terms=terms,
        variables={},
    )
    threshold = max(3, min(factorisation.threshold, *(graph.likelihood[name] for name in names)))
    rows, _ = taken_apart(own, None, threshold, False)
    if rows.globals:
        raise NoField(f"the rows of {rows.global_terms[0]!r} cannot be had one by one")
    field = Field(tables, rows, tuple(_likelihood(rows, term) for term in rows.locals))
    require_same(factorisation, field)
    return field


def _likelihood(rows: Factorisation, term: LocalTerm) -> Likelihood:
    try:
        graph = scalar_graph(rows, term)
    except Obstacle as obstacle:
        raise NoField(str(obstacle)) from None
    prepared = replace(term, rows=graph.rows)
    variables = list(dict.fromkeys(scalar.variable for scalar in graph.scalars))
    return Likelihood(prepared, graph, FormsOfRows(rows, prepared, variables))


# Elements of tables that are no effects, all together.
_MOST_NUMBERS = 200


def _require_one_factor(priors: Priors, tables: tuple[Table, ...]) -> None:
    """A variable that is multiplied by unknown numbers enters with these alone; others are few."""
    for table in tables:
        one = table.innovation
        scales = priors.given_up_in([step.graph for step in table.steps if step.graph is not None])
        if one is not None and scales and sum(t.innovation is one for t in tables) > 1:
            raise NoField(
                f"{one.name!r} enters times {scales}, and in another way, too, which is bilinear: "
                "it is a latent covariate"
            )
    numbers = [t for t in tables if t.innovation is None]
    longest = max(numbers, key=lambda t: t.size, default=None)
    if longest is not None and longest.size > _MOST_NUMBERS:
        raise NoField(f"the prior of {longest.name} has no rule, and it has {longest.size:,} elements")


def _require_numbers(priors: Priors, tables: tuple[Table, ...]) -> None:
    """What scales effects must not be an effect itself."""
    effects = {t.innovation.value for t in tables if t.innovation is not None}
    for table in tables:
        graphs = (
            [table.graph]
            if table.innovation is None
            else [
                step.graph
                for step in (*table.steps, *table.innovation.steps)
                if step.graph is not None and step.kind != "placed"
            ]
        )
        used = priors.effects_in(graphs) & effects
        if used:
            raise GivenUp(priors.values[min(used, key=lambda v: int(np.prod(v.type.shape)))])
