"""`find_field`: the hierarchy of a model as rows and priors."""

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
import pymc as pm
from pytensor.graph.basic import Variable, equal_computations

from pymc_austerity import work
from pymc_austerity.bounds.expressions.evaluate import evaluate
from pymc_austerity.bounds.expressions.node import Expression
from pymc_austerity.bounds.row_function import evenly_spaced
from pymc_austerity.exceptions import FactorisationError
from pymc_austerity.model.equal_rows import with_equal_rows_joined
from pymc_austerity.model.factorisation import (
    FEWEST_SCALED,
    Factorisation,
    LocalTerm,
    pass_operations,
    some_rows,
)
from pymc_austerity.model.factorise import taken_apart
from pymc_austerity.model.field.check import require_same
from pymc_austerity.model.field.priors import GivenUp, NoField, Priors, factors
from pymc_austerity.model.field.rows import Form, FormsOfRows
from pymc_austerity.model.field.tables import Table, Visitor
from pymc_austerity.model.graph.functions import function_of
from pymc_austerity.model.graph.log_density import LogDensityGraph
from pymc_austerity.model.structure.affine_expressions import leaves
from pymc_austerity.model.structure.scalar_graph import AffineScalar, Obstacle, ScalarGraph, scalar_graph
from pymc_austerity.target import Index


@dataclass(frozen=True, eq=False)
class Likelihood:
    """The rows of one term: a function of few predictors, each of which is linear in tables."""

    term: LocalTerm
    graph: ScalarGraph  # The rows as an expression; predictor k is the k-th of its scalars
    forms: FormsOfRows

    def __call__(self, positions: Index) -> list[Form]:
        """The predictors of the rows at some positions, one form (m,) or (1,) for each."""
        found = self.forms(positions)
        return [_element(found[one.variable], one) for one in self.graph.scalars]

    def leaves_at(
        self, positions: Index, tables: dict[Variable, np.ndarray]
    ) -> tuple[np.ndarray, dict[int, np.ndarray]]:
        """Predictors (p, m) and columns of data of the rows at some positions, given values of all tables."""
        etas = [np.broadcast_to(one.at(tables), positions.shape) for one in self(positions)]
        every = (self.graph.expression, *self.graph.guards)
        columns = sorted({k for one in every for k in leaves(one, "data")})
        return np.array(etas), dict(zip(columns, self.graph.data.chosen(columns)(positions), strict=True))

    def rows_at(self, positions: Index, tables: dict[Variable, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """The rows at some positions given values of all tables, and the sums of absolute terms in them."""
        etas, data = self.leaves_at(positions, tables)

        def values(one: Expression) -> np.ndarray:
            return evaluate(one, etas, data)

        rows = values(self.graph.expression)
        for guard in self.graph.guards:
            rows = np.where(values(guard) < 0.0, -np.inf, rows)
        size = sum(np.abs(eta) for eta in etas) + np.abs(rows)
        return np.broadcast_to(rows, positions.shape), np.broadcast_to(size, positions.shape)

    def looked_up(self, tables: tuple[Table, ...], fewest: int, *, scaled: bool = False) -> list[Table]:
        """Tables of `fewest` elements or more of which a row has at most half, as far as some rows tell.

        With `scaled` also shorter ones that unknown numbers multiply: with these a posterior is far from
        normal.
        """
        positions = evenly_spaced(self.term.size, _LOOKED_AT)
        forms, found = self(positions), []
        for table in tables:
            own = [(form, form.terms[table.input][0]) for form in forms if table.input in form.terms]
            used = [np.broadcast_to(c, (*form.shape, c.shape[-1])) for form, c in own]
            most = max((int(np.count_nonzero(c, axis=-1).max(initial=0)) for c in used), default=0)
            is_apart = table.size >= fewest and 0 < 2 * most <= table.size
            if is_apart or (scaled and most and table.is_scaled and table.size >= FEWEST_SCALED):
                found.append(table)
        return found


def _element(form: Form, scalar: AffineScalar) -> Form:
    return form.moved(lambda ids: np.atleast_1d(ids[scalar.element]))


@dataclass(frozen=True, eq=False)
class Field:
    """A likelihood in rows and priors.

    eta_i = o_i + a_i . x for each predictor of each row, where x are the tables, and a table is
    x = T (w - m) with an innovation w - m = S z.
    """

    tables: tuple[Table, ...]
    rows: Factorisation  # The likelihood, whose block are the tables
    likelihoods: tuple[Likelihood, ...]
    # Terms of the model that contain effects beside the likelihood and their priors: potentials, variables
    # that nothing else depends on, a likelihood of few rows. Whoever moves effects adds them.
    others: tuple[str, ...]

    def __repr__(self) -> str:
        rows = _listed([f"{one.term.name!r} ({one.term.size:,})" for one in self.likelihoods])
        n = len(self.tables)
        widths = [max(len(f(table)) for table in self.tables) for f in (_name, _size)]
        lines = [f"Field: rows of {rows} are linear in {n} vector{'s' if n > 1 else ''}"]
        for table in self.tables:
            lines.append(f"  {_name(table):<{widths[0]}}  {_size(table):>{widths[1]}}  {table.said}")
        return "\n".join([*lines, *([f"  also in {_listed(map(repr, self.others))}"] if self.others else [])])


def _name(table: Table) -> str:
    return table.variable.replace("'", "")


def _size(table: Table) -> str:
    return f"{table.size:,}"


def _listed(words: Iterable[str]) -> str:
    *others, last = words
    return f"{', '.join(others)} and {last}" if others else last


def find_field(model: pm.Model, factorisation: Factorisation) -> Field:
    """The field of the block of a factorisation: variables that are not in it are numbers.

    Raises
    ------
    NoField
        With the operation and the variable that have no rule.
    """
    priors, field = in_tables(model, factorisation)
    tables, names = field.tables, [one.term.name for one in field.likelihoods]
    _require_one_factor(priors, field)
    _require_few_numbers(priors, tables, factorisation.var_names)
    field = replace(field, others=_others(priors, tables, names))
    work.spend(_COMPARISONS * pass_operations(field.rows), _SEARCH)
    require_same(factorisation, field)
    return field


def in_tables(model: pm.Model, factorisation: Factorisation) -> tuple[Priors, Field]:
    """Rewrite the likelihood of a model in tables, without comparing it with the model.

    Returns the rules of the priors, and the field.

    Raises
    ------
    NoField
        With the operation that has no rule.
    """
    graph = factorisation.graph
    names = [name for name, n_rows in graph.likelihood.items() if n_rows >= _FEWEST_ROWS]
    if not names:
        raise NoField(f"the model has no likelihood of {_FEWEST_ROWS} rows or more")
    given_up = frozenset(graph.values) - frozenset(factorisation.var_names)
    while True:
        priors = Priors(model, factorisation, given_up)
        visitor = Visitor(priors)
        try:
            terms = {name: visitor.rewritten(priors.terms[name]) for name in names}
            tables = tuple(visitor.tables)
            _require_numbers(priors, tables)
            break
        except GivenUp as one:
            given_up |= {str(one)}
    if all(table.innovation is None for table in tables):
        raise NoField(_no_table(priors, [priors.terms[name] for name in names]))
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
    rows = _rows(own, factorisation.threshold)
    work.spend(_PASSES * pass_operations(rows), _SEARCH)
    if rows.globals:
        raise NoField(f"the rows of {rows.global_terms[0]!r} cannot be had one by one")
    likelihoods = tuple(_likelihood(rows, term, tables) for term in rows.locals)
    return priors, Field(tables, rows, likelihoods, ())


def joined(field: Field) -> Field:
    """The field with one row for each kind of equal rows, where these are several times fewer."""
    rows = with_equal_rows_joined(field.rows)
    if rows is field.rows:
        return field
    return replace(
        field, rows=rows, likelihoods=tuple(_likelihood(rows, term, field.tables) for term in rows.locals)
    )


def _rows(graph: LogDensityGraph, threshold: int) -> Factorisation:
    """The rows of a likelihood in tables; of a likelihood that is a table its cells, if these can be had."""
    shapes = [tuple(int(k) for k in term.type.shape) for term in graph.terms.values()]
    shapes = [shape for shape in shapes if shape]
    longest = max((max(shape) for shape in shapes if len(shape) > 1), default=0)
    most = min([threshold, *(graph.likelihood[name] for name in graph.terms)])
    if longest and longest < min(math.prod(shape) for shape in shapes):
        try:
            found, _ = taken_apart(graph, None, longest + 1, False)
        except FactorisationError:
            found = None
        if found is not None and not found.globals:
            return found
    return taken_apart(graph, None, max(3, most), False)[0]


def _no_table(priors: Priors, terms: list[Variable]) -> str:
    """Why rows are linear in nothing that has a rule, in words."""
    effects, others = priors.effects_in(terms), priors.numbers_in(terms)
    if effects:
        how = f": {priors.named(effects)} enter in products with others that have none"
    else:
        said = [f"{priors.named([value])} has the prior {priors.kind(value)}" for value in others[:_NAMED]]
        how = f": {_listed(said)}{', and so on' if len(others) > _NAMED else ''}" if said else ""
    return f"the likelihood is linear in no variable whose prior has a rule{how}"


def _likelihood(rows: Factorisation, term: LocalTerm, tables: tuple[Table, ...]) -> Likelihood:
    try:
        graph = scalar_graph(rows, term)
    except Obstacle as obstacle:
        said = str(obstacle).replace("whose derivatives have no known bounds", "which has no rule")
        for table in tables:  # in the words of the model
            said = said.replace(repr(table.input.name), table.variable)
        raise NoField(said) from None
    prepared = replace(term, rows=graph.rows)
    variables = list(dict.fromkeys(scalar.variable for scalar in graph.scalars))
    return Likelihood(prepared, graph, FormsOfRows(rows, prepared, variables))


# Rows of a likelihood that is taken apart, and that are looked at first; elements of what has no rule.
_FEWEST_ROWS, _LOOKED_AT, _MOST_NUMBERS = 3, 200, 200
# Variables that are named where none has a rule.
_NAMED = 3
# Passes over rows of a search: columns of data, indices, predictors; and of a comparison, at three points.
_PASSES, _COMPARISONS = 3, 3
_SEARCH = "The search for the hierarchy"


def _others(priors: Priors, tables: tuple[Table, ...], names: list[str]) -> tuple[str, ...]:
    """Terms that contain effects, but for the likelihood and the priors of these."""
    graph = priors.factorisation.graph
    effects = [table.innovation.value for table in tables if table.innovation is not None]
    own = {*names, *(graph.variables[str(value.name)] for value in effects)}
    return tuple(
        n for n, term in priors.terms.items() if n not in own and priors.effects_in([term]) & {*effects}
    )


def _require_one_factor(priors: Priors, field: Field) -> None:
    """A variable that is multiplied by unknown numbers enters with these alone, as far as rows use it."""
    for table, other in itertools.combinations(field.tables, 2):
        if table.innovation is None or table.innovation is not other.innovation:
            continue
        one, two = (list(filter(priors.moves, factors(each.steps))) for each in (table, other))
        if len(one) == len(two) and equal_computations(one, two):
            continue
        by_element = all(step.kind == "scale" for each in (table, other) for step in each.steps)
        if not by_element or (_used(field, table) & _used(field, other)).any():
            raise NoField(
                f"{table.variable} enters times unknown numbers, and in another way, too, as a latent "
                "covariate or a factor does: that is bilinear"
            )


def _used(field: Field, table: Table) -> np.ndarray:
    """Which elements of a table are in rows."""
    used = np.zeros(table.size, dtype=bool)
    for one in field.likelihoods:
        work.spend(one.term.size, _SEARCH)
        for positions in some_rows(one.term.size):
            for form in one(positions):
                c, p = form.terms.get(table.input, (np.zeros(0), np.zeros(0, np.int64)))
                used[np.broadcast_to(p, np.broadcast_shapes(c.shape, p.shape))[c != 0.0]] = True
    return used


def _require_few_numbers(priors: Priors, tables: tuple[Table, ...], block: tuple[str, ...]) -> None:
    """What has no rule is short, or has one element for each effect, as local scales have."""
    for table in tables:
        graphs, longest = [table.graph], _MOST_NUMBERS
        if table.innovation is not None:
            graphs = factors(table.steps)
            longest = max(longest, int(np.prod(table.innovation.value.type.shape)))
        for value in priors.numbers_in(graphs):
            size = int(np.prod(value.type.shape))
            if size > longest:
                name = priors.named([value])
                why = (
                    f"the prior of {name} has no rule" if value.name in block else f"other steps move {name}"
                )
                raise NoField(f"{why}, and it has {size:,} elements")


def _require_numbers(priors: Priors, tables: tuple[Table, ...]) -> None:
    """What scales effects must not be an effect itself."""
    effects = {t.innovation.value for t in tables if t.innovation is not None}
    for table in tables:
        one = table.innovation
        graphs = [table.graph] if one is None else factors((*table.steps, *one.steps))
        used = priors.effects_in(graphs) & effects
        if used:
            priors.give_up_shortest(list(used))
