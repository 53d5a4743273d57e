"""`PlateModel`: a model whose likelihood has one effect of a group in each row, taken apart."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import cast

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors

from pymc_austerity.bounds.expressions import forms
from pymc_austerity.bounds.expressions.node import Expression, constant, predictor
from pymc_austerity.bounds.expressions.rebuild import rebuilt
from pymc_austerity.bounds.row_function import RowFunction
from pymc_austerity.model.factorisation import Factorisation
from pymc_austerity.model.graph.rewrite import parts_of, rebuild
from pymc_austerity.model.plates.dispersions import Dispersions, dispersions, shared_numbers
from pymc_austerity.model.plates.effects_prior import (
    EffectsPrior,
    effects_prior,
    is_positive,
    is_standard,
)
from pymc_austerity.model.plates.gathers import (
    FEWEST_GROUPS,
    Gather,
    NoPlate,
    ScaledGather,
    largest_gather,
    require_no_categories,
    require_no_mixture,
    require_vector,
    scaled,
)
from pymc_austerity.model.plates.inner_effects import (
    InnerEffects,
    Scaled,
    inner_effects,
    scaled_coordinates,
)
from pymc_austerity.model.plates.inner_scaled import require_own_scales, with_inner_centered
from pymc_austerity.model.plates.normal_residuals import is_about_predictor, normal_precision
from pymc_austerity.model.plates.plate_rows import PlateRows
from pymc_austerity.model.structure.affine_expressions import (
    AffineParts,
    affine_nodes,
    leaves,
    renumbered,
)
from pymc_austerity.model.structure.case_predictors import CasePredictors, case_predictors
from pymc_austerity.model.structure.predictors import block_and_others
from pymc_austerity.model.structure.row_data import Columns
from pymc_austerity.model.structure.scalar_graph import Obstacle, ScalarGraph, scalar_graph

# Shared coefficients, at most: their covariance is kept, and moved.
MOST_SHARED = 200
# Predictors of a likelihood, at most: bounds are known for so many.
MOST_PREDICTORS = 4


@dataclass(frozen=True, eq=False)
class PlateModel:
    """y_i ~ f(x_i . theta + o_i + u_g(i), phi), u_g = location_g + scale x_g for G groups.

    Attributes
    ----------
    factorisation : Factorisation
        Its block is theta, then the effects as the model has them.
    name : str
        Of the likelihood.
    effects : str
        Of the value variable of the effects.
    n_groups : int
    rows : PlateRows
    columns : Columns
        The data that f reads.
    expression : Expression
        f; predictor 0 is that of the rows, the others are phi. For a normal likelihood with a free scale
        that is put to a constant.
    dispersions : Dispersions
        phi, which is the same for all rows.
    prior : EffectsPrior
        Of u_g.
    is_centered : bool
        Whether the model has u_g, else x_g = (u_g - location_g) / scale.
    shared : Factorisation
        The terms of theta alone; its features are tau, the logarithm of the precision of residuals, the
        shape of the effects' prior, and the scales of inner effects.
    inner : tuple of InnerEffects
        Effects of a second factor, among the shared variables.
    is_normal : bool
        Whether the precision of normal residuals is a function of theta.
    """

    factorisation: Factorisation
    name: str
    effects: str
    n_groups: int
    rows: PlateRows
    columns: Columns
    expression: Expression
    dispersions: Dispersions
    prior: EffectsPrior
    is_centered: bool
    shared: Factorisation
    inner: tuple[InnerEffects, ...]
    is_normal: bool

    @property
    def n_shared(self) -> int:
        """Length of theta."""
        return self.rows.n_shared

    @property
    def scaled(self) -> Scaled:
        """Coordinates of theta that the model has divided by a scale."""
        return scaled_coordinates(self.inner)

    @property
    def n_predictors(self) -> int:
        """That of rows, and phi."""
        return 1 + len(self.dispersions.offsets)

    @cached_property
    def row_function(self) -> RowFunction:
        """The likelihood as a function of its predictors, for bounds."""
        p = self.n_predictors
        return RowFunction(
            name=self.name, n_rows=self.rows.n_rows, n_dim=p, n_predictors=p, rows=_no_rows,
            data=self.columns, expression=self.expression, others=(),
            offset_fixed=True,
        )  # fmt: skip


def _no_rows(positions: np.ndarray) -> np.ndarray:
    raise NotImplementedError("Rows of a plate have no design over all effects.")


def plate_model(model: pm.Model, fact: Factorisation, fewest: int = FEWEST_GROUPS) -> PlateModel | None:
    """The plate of a model; None if no variable is looked up by the rows, in `fewest` groups or more.

    Raises
    ------
    NoPlate
        If there is such a variable, and the model is no plate.
    """
    gather = largest_gather(fact, fewest)
    if gather is None:
        require_no_mixture(fact, fewest)
        require_vector(fact, fewest)
        return None
    require_no_categories(model, gather)
    fact = _with_effects_last(fact, gather.name)
    if len(fact.var_names) == 1:
        raise NoPlate(f"there are no shared variables beside the effects {gather.name!r}")
    original = fact
    fact, gather, not_centered = with_inner_centered(model, fact, gather)
    prior = effects_prior(model, fact, gather.name)
    found = scaled(fact, gather)
    others = _other_terms(model, fact, gather, found)
    if found.scale is not None:
        if not is_standard(fact, prior):
            raise NoPlate(
                f"{gather.name!r} is multiplied by a scale, and its prior is not of location 0 and scale 1"
            )
        prior = prior._replace(location=pt.zeros(()), scale=found.scale)
    _require_positive(fact, gather.name, prior)
    graph, cases = _taken_apart(found)
    which, *scalars = _predictors(graph, cases)
    parts = [affine_nodes(value)[value] for value in cases.values]
    log_precision = normal_precision(model, found.factorisation, gather.term.name)
    if log_precision is not None:
        _, rows = _rows_of(found, graph, parts[which], [], gather.n_groups)
        own = _by_phi(cases.expression, (which, rows.factor), {k: predictor(1) for k in scalars})
        scales = [cases.values[k] for k in scalars]
        if not is_about_predictor(found.factorisation, graph, own, scales, log_precision):
            log_precision = None
    of_phi = shared_numbers([] if log_precision is not None else [parts[k] for k in scalars])
    phi, rows = _rows_of(found, graph, parts[which], of_phi.numbers, gather.n_groups)
    # Sums of normal residuals are proportional to their precision: they are made for some constant.
    expressions = of_phi.expressions if log_precision is None else [constant(1.0)]
    expression = _by_phi(cases.expression, (which, rows.factor), dict(zip(scalars, expressions, strict=True)))
    if 1 + len(of_phi.numbers) > MOST_PREDICTORS:
        raise NoPlate(_too_many(1 + len(of_phi.numbers), 1))
    columns = leaves(expression, "data")
    if len(rows.places) > MOST_SHARED:
        raise NoPlate(
            f"there are {len(rows.places)} shared coefficients beside the effects {gather.name!r}, and "
            f"{MOST_SHARED} at most are moved together"
        )
    precision = pt.zeros(()) if log_precision is None else log_precision
    coefficients = set(ancestors([found.term.rows, prior.location]))
    require_own_scales(fact, not_centered, coefficients)
    inner = (*inner_effects(model, fact, gather.name, coefficients), *not_centered)
    scales = [prior.ratio * prior.scale, precision, prior.shape, *(one.scale for one in inner)]
    return PlateModel(
        factorisation=original,
        name=gather.term.name,
        effects=gather.name,
        n_groups=gather.n_groups,
        rows=rows,
        expression=renumbered(expression, columns),
        dispersions=phi,
        columns=graph.data.chosen(columns),
        prior=prior,
        is_centered=found.scale is None,
        shared=_shared(fact, gather.name, others, scales),
        inner=inner,
        is_normal=log_precision is not None,
    )


def _require_positive(fact: Factorisation, name: str, prior: EffectsPrior) -> None:
    if not is_positive(fact, prior.scale):
        raise NoPlate(
            f"the scale of the effects {name!r} is not positive whatever the values of other variables"
        )


def _with_effects_last(fact: Factorisation, name: str) -> Factorisation:
    return replace(fact, var_names=(*(n for n in fact.var_names if n != name), name))


def _other_terms(
    model: pm.Model, fact: Factorisation, gather: Gather, found: ScaledGather
) -> tuple[tuple[str, Variable], ...]:
    """Terms beside the likelihood and the prior of the effects, which must not contain the effects."""
    own = next(str(model.values_to_rvs[v].name) for v in model.value_vars if v.name == gather.name)
    long = [term.name for term in fact.locals if term.name not in (own, gather.term.name)]
    if long or sum(term.name == gather.term.name for term in fact.locals) != 1:
        names = ", ".join(map(repr, long)) or repr(gather.term.name)
        raise NoPlate(f"there are other long terms ({names}) beside the likelihood of {gather.name!r}")
    others = tuple((name, graph) for name, graph in fact.globals if name != own)
    effects = fact.graph.values[gather.name]
    for name, graph in others:
        if effects in set(ancestors([graph])):
            raise NoPlate(f"the effects {gather.name!r} enter the term {name!r}, too")
    return others


def _rows_of(
    found: ScaledGather, graph: ScalarGraph, own: AffineParts, numbers: list[AffineParts], n_groups: int
) -> tuple[Dispersions, PlateRows]:
    """Numbers that rows share beside their predictor, and the rows."""
    fact = found.factorisation
    n_shared = sum(int(np.prod(fact.graph.values[name].type.shape)) for name in fact.var_names[:-1])
    phi = dispersions(fact, found.term, graph, numbers, n_shared)
    return phi, PlateRows(fact, found.term, graph, own, n_groups, phi.places)


def _taken_apart(found: ScaledGather) -> tuple[ScalarGraph, CasePredictors]:
    fact = found.factorisation
    try:
        graph = scalar_graph(fact, found.term)
    except Obstacle as obstacle:
        raise NoPlate(str(obstacle)) from None
    if graph.guards:
        raise NoPlate(f"rows of the term {found.term.name!r} may be minus infinity for some of the effects")
    _, others = block_and_others(fact)
    moved = [name for name, var in others.items() if var in set(ancestors([graph.rows]))]
    if moved:
        raise NoPlate(
            f"the term {found.term.name!r} depends on {', '.join(map(repr, moved))}, which other steps move"
        )
    return graph, case_predictors(graph.expression, graph.data.moved_columns)


def _predictors(graph: ScalarGraph, cases: CasePredictors) -> list[int]:
    """Which of the values is the predictor of rows, and then those that are the same for all rows."""
    wide = [
        k
        for k, value in enumerate(cases.values)
        if any(None in graph.scalars[s].variable.type.shape for s in leaves(value, "predictor"))
    ]
    if len(wide) != 1 or len(cases.values) > MOST_PREDICTORS:
        raise NoPlate(_too_many(len(cases.values), len(wide)))
    return wide + [k for k in range(len(cases.values)) if k not in wide]


def _too_many(n: int, n_wide: int) -> str:
    if n_wide != 1:
        return (
            f"{n_wide} predictors of the likelihood differ by row, and one of a plate's does; others, as "
            "dispersions, are to be the same for all rows"
        )
    return f"the likelihood has {n - 1} dispersions or the like, and a plate's at most {MOST_PREDICTORS - 1}"


def _by_phi(expression: Expression, own: tuple[int, Expression], others: dict[int, Expression]) -> Expression:
    """An expression of predictor 0 and of phi.

    Parameters
    ----------
    expression : Expression
    own : tuple
        Which predictor is that of the rows, and by what data it was divided. Cases of the data become cases
        of all.
    others : dict
        What takes the place of the other predictors.
    """
    which, factor = own
    if factor.op == "select":
        condition, *branches = factor.args
        return forms.select(condition, *(_by_phi(expression, (which, one), others) for one in branches))

    def replaced(one: Expression) -> Expression | None:
        if one.op != "predictor":
            return None
        return forms.multiply(factor, predictor(0)) if one.value == which else others[cast(int, one.value)]

    return rebuilt(expression, replaced)


def _shared(
    fact: Factorisation,
    effects: str,
    others: tuple[tuple[str, Variable], ...],
    scales: list[Variable],
) -> Factorisation:
    """The terms of theta alone, with scales as features."""
    features = pt.stack(scales).astype("float64")
    names = tuple(name for name in fact.var_names if name != effects)
    values = {name: var for name, var in fact.graph.values.items() if name != effects}
    point = {name: value for name, value in fact.graph.point.items() if name != effects}
    graph = replace(fact.graph, values=values, point=point)
    return replace(
        fact, graph=graph, var_names=names, locals=(), globals=others, features=features, is_expanded=False
    )


def in_theta(shared: Factorisation, graphs: list[Variable], theta: Variable) -> list[Variable]:
    """Graphs of the variables of theta, as functions of one vector."""
    block = [shared.graph.values[name] for name in shared.var_names]
    return rebuild(graphs, parts_of(theta, block))
