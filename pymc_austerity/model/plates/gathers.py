"""Effects of groups on the graph of a likelihood: `u[idx]`, `(mu + tau * z)[idx]`, `tau * z[idx]`."""

from dataclasses import replace
from typing import Any, NamedTuple

import pymc as pm
import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.traversal import ancestors, toposort
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.random.basic import CategoricalRV, MultinomialRV
from pytensor.tensor.subtensor import AdvancedSubtensor
from pytensor.tensor.type import TensorType

from pymc_austerity.model.factorisation import FEWEST_GROUPS, Factorisation, LocalTerm
from pymc_austerity.model.graph.rewrite import depends_on, rebuild
from pymc_austerity.model.plates.nested_lookups import looked_up_once
from pymc_austerity.model.structure.predictors import block_and_others
from pymc_austerity.model.structure.prepared_rows import prepared_rows


class NoPlate(Exception):  # noqa: N818 - it is caught, and said
    """Why effects of groups are no plate, in the words of the model."""

    field: Any = None  # Of the model, where one was found


class OtherSpelling(NoPlate):
    """Rows are not spelled as those of a plate, which says nothing about what they are."""


class OneRowEach(NoPlate):
    """Groups have one row each: a field moves these, if it can."""


class LargeFactor(NoPlate):
    """A plate has fewer shared coefficients, however it is written; a field may have so many."""


class Gather(NamedTuple):
    """A variable of the block from which each row looks one element up."""

    name: str  # Of the value variable
    term: LocalTerm  # The likelihood, its rows prepared
    n_groups: int


class ScaledGather(NamedTuple):
    """A likelihood in effects that are not standardised."""

    factorisation: Factorisation  # The same, with the effects u_g = scale z_g in the place of z_g
    term: LocalTerm
    scale: Variable | None  # Function of the other variables; None where the model has u_g itself


def largest_gather(fact: Factorisation, fewest: int = FEWEST_GROUPS) -> Gather | None:
    """The longest variable from which rows of a local term look one element up; None if all are short.

    Those of which each row has an element of its own are none.
    """
    several = [one for one, is_own in _gathers(fact, fewest) if not is_own]
    return max(several, key=lambda one: one.n_groups, default=None)


def require_several_rows(fact: Factorisation, fewest: int = FEWEST_GROUPS) -> None:
    """Say so where each row has an element of a long variable of its own.

    Raises
    ------
    NoPlate
    """
    names = fact.graph.variables
    own = [one for one, is_own in _gathers(fact, fewest) if is_own and one.term.name != names[one.name]]
    if own:
        raise OneRowEach(
            f"each row of the term {own[0].term.name!r} has an element of {names[own[0].name]!r} of its own, "
            "and effects are moved group by group where groups have several rows"
        )


def _gathers(fact: Factorisation, fewest: int) -> list[tuple[Gather, bool]]:
    """Long variables from which each row of a local term looks one element up; is it the row's own?"""
    block, _ = block_and_others(fact)
    long = {
        var: name
        for name, var in block.items()
        if var.type.ndim == 1 and var.type.shape[0] >= fewest and var.type.dtype == "float64"
    }
    found: list[Gather] = []
    for term in fact.locals if long else ():
        if not set(long).intersection(ancestors([term.rows])) or term.rows in long:
            continue
        rows = looked_up_once(fact, prepared_rows(fact, term))
        names = {long[node.inputs[0]] for node in lookups(rows) if node.inputs[0] in long}
        prepared = term if not names else replace(term, rows=rows)
        found += [Gather(name, prepared, int(block[name].type.shape[0])) for name in sorted(names)]
    return [(one, _is_itself(fact, one)) for one in found]


def require_no_categories(model: pm.Model, likelihood: str, effects: str) -> None:
    """Say so where a likelihood has several probabilities in each row.

    Raises
    ------
    NoPlate
    """
    for rv in model.observed_RVs:
        if rv.name == likelihood and isinstance(rv.owner.op, CategoricalRV | MultinomialRV):
            raise NoPlate(
                f"the likelihood {rv.name!r} is of categories, as of an ordered response or a choice: each "
                f"of its probabilities is a function of {effects!r} of its own, and a plate has one"
            )


def _is_itself(fact: Factorisation, one: Gather) -> bool:
    """Are the rows those of the variable's own prior, each of which contains one element?"""
    return one.term.size == one.n_groups and all(
        node.inputs[1] is one.term.index for node in lookups(one.term.rows) if node.inputs[0].name == one.name
    )


def _of_elements(rows: Variable) -> list[Apply]:
    return [node for node in toposort([rows]) if isinstance(node.op, AdvancedSubtensor)]


def lookups(rows: Variable) -> list[Apply]:
    """Operations by which rows look up one element of a vector. A mask of booleans looks nothing up."""
    found = [node for node in _of_elements(rows) if node.op.idx_list == (0,)]
    return [node for node in found if node.inputs[1].type.dtype != "bool"]


def is_looked_up(rows: Variable, value: Variable) -> bool:
    """Do rows look elements of a variable up?"""
    return any(node.inputs[0] is value for node in lookups(rows))


def scaled(fact: Factorisation, gather: Gather) -> ScaledGather:
    """The likelihood in u_g = scale z_g, where its rows contain z_g times a function of short variables only.

    Raises
    ------
    NoPlate
        If the variable enters the rows in any other way.
    """
    rows, effects = gather.term.rows, fact.graph.values[gather.name]
    own = [node for node in lookups(rows) if node.inputs[0] is effects]
    if len({node.inputs[1] for node in own}) != 1:
        raise NoPlate(
            f"rows of the term {gather.term.name!r} look up {fact.graph.variables[gather.name]!r} in more "
            "than one way, as those of a match look up two players, and effects are moved group by group "
            "where each row has one of them"
        )
    out, scale, data = _product(rows, own[0].outputs[0], fact)
    if scale is None:
        return ScaledGather(fact, gather.term, None)
    new = TensorType("float64", effects.type.shape)(gather.name)
    (looked_up,) = own[0].clone_with_new_inputs([new, own[0].inputs[1]]).outputs
    (rows,) = rebuild([rows], {out: pt.mul(looked_up, *data) if data else looked_up})
    if effects in set(ancestors([rows])):
        raise OtherSpelling(f"{gather.name!r} enters the term {gather.term.name!r} with more than one factor")
    term = replace(gather.term, rows=rows)
    graph = replace(fact.graph, values={**fact.graph.values, gather.name: new})
    return ScaledGather(replace(fact, graph=graph), term, scale)


def _product(
    rows: Variable, one: Variable, fact: Factorisation
) -> tuple[Variable, Variable | None, list[Variable]]:
    """The largest product of `one` with functions of the block that are the same for all rows; these; data.

    Data are other factors of that product, as of random slopes.
    """
    block, _ = block_and_others(fact)
    moving = depends_on([rows], block.values())
    clients: dict[Variable, list[Apply]] = {}
    for node in toposort([rows]):
        for var in node.inputs:
            clients.setdefault(var, []).append(node)
    scale: Variable | None = None
    data: list[Variable] = []
    found, found_data = one, data
    while len(clients.get(one, ())) == 1:
        (node,) = clients[one]
        others = [var for var in node.inputs if var is not one]
        if not multiplies(node, one):
            break
        wide = [var for var in others if None in var.type.shape]
        if any(moving.get(var, False) for var in wide):
            if node.inputs.count(one) == 1 and any(moving.get(v, False) for v in others):
                raise OtherSpelling("effects that are multiplied by a column of data and by other variables")
            break
        narrow = [var for var in others if var not in wide]
        divides = isinstance(node.op.scalar_op, ps.TrueDiv)
        data = [*data, *(1.0 / var if divides else var for var in wide)]
        one = node.outputs[0]
        if not any(moving.get(var, False) for var in narrow):
            data += [1.0 / var if divides else var for var in narrow]
            continue
        factor = pt.mul(*(var.flatten()[0] for var in narrow)) if len(narrow) > 1 else narrow[0].flatten()[0]
        factor = 1.0 / factor if divides else factor
        scale = factor if scale is None else scale * factor
        found, found_data = one, data
    return found, scale, found_data


def multiplies(node: Apply, one: Variable) -> bool:
    """Does an operation multiply `one`, or divide it, by its other inputs?"""
    if isinstance(node.op, DimShuffle) or not isinstance(node.op, Elemwise):
        return False
    if isinstance(node.op.scalar_op, ps.TrueDiv):
        return node.inputs[0] is one and node.inputs[1] is not one
    return isinstance(node.op.scalar_op, ps.Mul) and node.inputs.count(one) == 1
