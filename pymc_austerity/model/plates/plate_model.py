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
from pymc_austerity.model.factorisation import FEWEST_GROUPS, Factorisation
from pymc_austerity.model.graph.rewrite import parts_of, rebuild
from pymc_austerity.model.plates.dispersions import Dispersions, dispersions, shared_numbers
from pymc_austerity.model.plates.effects_prior import EffectsPrior
from pymc_austerity.model.plates.found_effects import found_effects
from pymc_austerity.model.plates.gathers import Gather, LargeFactor, NoPlate, ScaledGather
from pymc_austerity.model.plates.inner_effects import (
    InnerEffects,
    Scaled,
    inner_effects,
    scaled_coordinates,
)
from pymc_austerity.model.plates.inner_scaled import require_own_scales, with_inner_centered
from pymc_austerity.model.plates.limits import MOST_OUTER, require_few_shared
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

# Predictors of a likelihood, at most: bounds are known for so many.
MOST_PREDICTORS = 4


@dataclass(frozen=True, eq=False)
class PlateModel:
    """y_i ~ f(x_i . theta + o_i + u_g(i), phi), u_g = location_g + scale x_g for G groups.

    With random slopes u_g is a vector of q effects, and rows have Z_i . u_g(i), Z_i beginning with a one.

    Attributes
    ----------
    factorisation : Factorisation
        Its block is theta, then the effects as the model has them.
    name : str
        Of the likelihood.
    effects : tuple of str
        Of the value variables of the effects: intercepts, then slopes.
    n_groups : int
    rows : PlateRows
    columns : Columns
        The data that f reads.
    expression : Expression
        f; predictor 0 is that of the rows, the others are phi. For a normal likelihood with a free scale
        that is put to a constant.
    dispersions : Dispersions
        phi, which is the same for all rows.
    priors : tuple of EffectsPrior
        Of u_g: of its intercept, then of its slopes.
    is_centered : bool
        Whether the model has u_g, else x_g = (u_g - location_g) / scale.
    n_vectors : int
        How many vectors effects are in, the first all intercepts; 1 if those of a group are side by side.
    shared : Factorisation
        The terms of theta alone; its features are tau (with slopes the Cholesky factor of the
        covariance of u_g, row by row), the logarithm of the precision of residuals, the shape of the effects'
        prior, and the scales of inner effects.
    inner : tuple of InnerEffects
        Effects of a second factor, among the shared variables.
    is_normal : bool
        Whether the precision of normal residuals is a function of theta.
    """

    factorisation: Factorisation
    name: str
    effects: tuple[str, ...]
    n_groups: int
    rows: PlateRows
    columns: Columns
    expression: Expression
    dispersions: Dispersions
    priors: tuple[EffectsPrior, ...]
    is_centered: bool
    n_vectors: int
    shared: Factorisation
    inner: tuple[InnerEffects, ...]
    is_normal: bool

    @property
    def n_shared(self) -> int:
        """Length of the vector theta."""
        return self.rows.n_shared

    @property
    def n_effects(self) -> int:
        """Effects of a group, q: an intercept and slopes."""
        return len(self.priors)

    @property
    def scaled(self) -> Scaled:
        """Coordinates of theta that the model has divided by a scale."""
        return scaled_coordinates(self.inner, self.n_effects)

    @property
    def n_predictors(self) -> int:
        """Number of predictors: the linear one, and the dispersions phi."""
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


def plate_model(
    model: pm.Model, fact: Factorisation, fewest: int = FEWEST_GROUPS, *, apart: bool = True
) -> PlateModel | None:
    """The plate of a model; None if no variable is looked up by the rows, in `fewest` groups or more.

    Levels of other factors are kept `apart` from the columns of rows, or are columns like others.

    Raises
    ------
    NoPlate
        If there is such a variable, and the model is no plate.
    """
    effects = found_effects(model, fact, fewest)
    if effects is None:
        return None
    names, gather = effects.names, effects.gather
    others = _other_terms(model, effects.original, gather, effects.variables)
    fact, gather, not_centered = with_inner_centered(model, effects.factorisation, gather, len(names))
    others = tuple((name, graph) for name, graph in fact.globals if name in dict(others))
    found, priors, factor, is_centered = effects.priors(model, fact, gather)
    graph, cases = _taken_apart(found)
    which, *scalars = _predictors(graph, cases)
    parts = [affine_nodes(value)[value] for value in cases.values]
    log_precision = normal_precision(model, found.factorisation, gather.term.name)
    kind = gather.n_groups, len(names), apart
    if log_precision is not None:
        _, rows = _rows_of(found, graph, parts[which], [], kind)
        own = _by_phi(cases.expression, (which, rows.factor), {k: predictor(1) for k in scalars})
        scales = [cases.values[k] for k in scalars]
        if not is_about_predictor(found.factorisation, graph, own, scales, log_precision):
            log_precision = None
    of_phi = shared_numbers([] if log_precision is not None else [parts[k] for k in scalars])
    phi, rows = _rows_of(found, graph, parts[which], of_phi.numbers, kind)
    # Sums of normal residuals are proportional to their precision: they are made for some constant.
    expressions = of_phi.expressions if log_precision is None else [constant(1.0)]
    expression = _by_phi(cases.expression, (which, rows.factor), dict(zip(scalars, expressions, strict=True)))
    if 1 + len(of_phi.numbers) > MOST_PREDICTORS:
        raise NoPlate(_too_many(1 + len(of_phi.numbers), 1))
    if of_phi.numbers and len(names) > 1:
        raise NoPlate(
            f"the likelihood {gather.term.name!r} has a free dispersion or the like, which a plate with "
            "random slopes does not take: give it a fixed value"
        )
    columns = leaves(expression, "data")
    precision = pt.zeros(()) if log_precision is None else log_precision
    coefficients = set(ancestors([found.term.rows, *(prior.location for prior in priors)]))
    require_own_scales(fact, not_centered, coefficients)
    inner = (*inner_effects(model, fact, names, coefficients), *not_centered, *effects.inner(factor))
    require_few_shared(gather.name, rows, inner)
    scales = [*factor, precision, priors[0].shape, *(one.scale for one in inner)]
    return PlateModel(
        factorisation=effects.original,
        name=gather.term.name,
        effects=names,
        n_groups=gather.n_groups,
        rows=rows,
        expression=renumbered(expression, columns),
        dispersions=phi,
        columns=graph.data.chosen(columns),
        priors=priors,
        is_centered=is_centered,
        n_vectors=effects.n_vectors,
        shared=_shared(fact, names, others, scales),
        inner=inner,
        is_normal=log_precision is not None,
    )


def _other_terms(
    model: pm.Model, fact: Factorisation, gather: Gather, names: tuple[str, ...]
) -> tuple[tuple[str, Variable], ...]:
    """Terms beside the likelihood and the priors of the effects, which must not contain the effects."""
    own = [str(model.values_to_rvs[v].name) for v in model.value_vars if v.name in names]
    long = [term.name for term in fact.locals if term.name not in (*own, gather.term.name)]
    if long or sum(term.name == gather.term.name for term in fact.locals) != 1:
        found = ", ".join(map(repr, long)) or repr(gather.term.name)
        hint = ""
        if set(long).intersection(str(rv.name) for rv in model.free_RVs):
            hint = f"; of effects of outer groups there are to be {MOST_OUTER} at most"
        kind = LargeFactor if hint else NoPlate
        raise kind(f"there are other long terms ({found}) beside the likelihood of {gather.name!r}{hint}")
    others = tuple((name, graph) for name, graph in fact.globals if name not in own)
    for name, graph in others:
        used = set(ancestors([graph]))
        for effects in names:
            if fact.graph.values[effects] in used:
                raise NoPlate(f"the effects {effects!r} enter the term {name!r}, too")
    return others


def _rows_of(
    found: ScaledGather,
    graph: ScalarGraph,
    own: AffineParts,
    numbers: list[AffineParts],
    kind: tuple[int, int, bool],
) -> tuple[Dispersions, PlateRows]:
    """Numbers that rows share beside their predictor, and the rows.

    `kind` are the number of groups, effects of each, and whether levels of other factors are kept apart.
    """
    fact, (n_groups, n_effects, apart) = found.factorisation, kind
    n_shared = sum(int(np.prod(fact.graph.values[name].type.shape)) for name in fact.var_names[:-n_effects])
    phi = dispersions(fact, found.term, graph, numbers, n_shared)
    return phi, PlateRows(fact, found.term, graph, own, (n_groups, n_effects), phi.places, apart)


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
    return (
        f"the likelihood depends on {n - 1} numbers beside a linear predictor (dispersions, or coefficients "
        f"that enter it through a curve), and a plate's at most on {MOST_PREDICTORS - 1}"
    )


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
    effects: tuple[str, ...],
    others: tuple[tuple[str, Variable], ...],
    scales: list[Variable],
) -> Factorisation:
    """The terms of theta alone, with scales as features."""
    features = pt.stack(scales).astype("float64")
    names = tuple(name for name in fact.var_names if name not in effects)
    values = {name: var for name, var in fact.graph.values.items() if name not in effects}
    point = {name: value for name, value in fact.graph.point.items() if name not in effects}
    graph = replace(fact.graph, values=values, point=point)
    return replace(
        fact, graph=graph, var_names=names, locals=(), globals=others, features=features, is_expanded=False
    )


def in_theta(shared: Factorisation, graphs: list[Variable], theta: Variable) -> list[Variable]:
    """Graphs of the variables of theta, as functions of one vector."""
    block = [shared.graph.values[name] for name in shared.var_names]
    return rebuild(graphs, parts_of(theta, block))
