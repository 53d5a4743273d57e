"""`PlateModel`: a model whose likelihood has one effect of a group in each row, taken apart."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, cast

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.basic import NormalRV

from pymc_austerity.bounds.expressions import forms
from pymc_austerity.bounds.expressions.evaluate import evaluate
from pymc_austerity.bounds.expressions.node import Expression, constant, ordered, predictor
from pymc_austerity.bounds.expressions.rebuild import rebuilt
from pymc_austerity.bounds.row_function import RowFunction
from pymc_austerity.model.factorisation import FEWEST_GROUPS, Factorisation
from pymc_austerity.model.graph.functions import function_of
from pymc_austerity.model.graph.rewrite import parts_of, rebuild
from pymc_austerity.model.plates.dispersions import Dispersions, dispersions, selected, shared_numbers
from pymc_austerity.model.plates.effects_prior import (
    EffectsPrior,
    effects_prior,
    is_positive,
    is_standard,
    typed,
)
from pymc_austerity.model.plates.gathers import (
    Gather,
    LargeFactor,
    NoPlate,
    OtherSpelling,
    ScaledGather,
    is_looked_up,
    largest_gather,
    require_no_categories,
    require_several_rows,
    scaled,
)
from pymc_austerity.model.plates.inner_effects import (
    InnerEffects,
    Scaled,
    inner_effects,
    scaled_coordinates,
)
from pymc_austerity.model.plates.limits import MOST_OUTER, require_few_shared
from pymc_austerity.model.plates.matrix_effects import (
    MatrixEffects,
    matrix_effects,
    matrix_group_effects,
    rows_of_factor,
)
from pymc_austerity.model.plates.plate_rows import PlateRows
from pymc_austerity.model.plates.slopes import GroupEffects, group_effects, names_of_effects
from pymc_austerity.model.self_check import jittered
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

# Normal residuals with one free scale, for which sums over rows are sufficient.

# How near the curvature of the rows is to the precision.
_TOLERANCE = 1e-8
_ZERO = constant(0.0)


def normal_precision(model: pm.Model, fact: Factorisation, name: str) -> Variable | None:
    """Logarithm of the one precision of normal residuals, a function of theta; None for other likelihoods."""
    rv = model[name]
    op = getattr(rv.owner, "op", None)
    if not isinstance(op, NormalRV):
        return None
    _, scale = typed(model, fact, op.dist_params(rv.owner))
    if int(np.prod([k or 0 for k in scale.type.shape])) != 1 and scale.type.ndim:
        return None
    return -2.0 * pt.log(scale.flatten()[0] if scale.type.ndim else scale)


def is_about_predictor(
    fact: Factorisation,
    graph: ScalarGraph,
    rows: Expression,
    scales: list[Expression],
    log_precision: Variable,
) -> bool:
    """Is the mean of all rows their predictor, or its negative, and a number?

    Sums over rows are sufficient then. They are not where the mean is a curve, or a multiple of the
    predictor: the precision is not the curvature of the rows.

    Parameters
    ----------
    fact : Factorisation
    graph : ScalarGraph
        The rows, taken apart.
    rows : Expression
        The likelihood; predictor 0 is that of the rows, predictor 1 the other.
    scales : list of Expression
        Predictor 1, if there is one, made of scalars of the graph.
    log_precision : TensorVariable
    """
    powers = by_powers(rows)
    if len(scales) != 1 or powers is None or leaves(powers[2], "data") or leaves(scales[0], "data"):
        return False
    (scale,) = scales
    places = leaves(scale, "predictor")
    function = function_of(
        [*fact.graph.values.values(), *fact.graph.data],
        [log_precision, *(selected(graph, k) for k in places)],
    )
    for values in (list(fact.graph.point.values()), jittered(fact.graph)):
        found, *scalars = (np.ravel(one)[0] for one in function(*values, *fact.graph.data_values()))
        at = evaluate(scale, dict(zip(places, scalars, strict=True)), {})
        curvature = -2.0 * float(evaluate(powers[2], {1: at}, {}))
        if not np.isclose(curvature, np.exp(found), rtol=_TOLERANCE, atol=0.0):
            return False
    return True


_Powers = tuple[Expression, Expression, Expression]


def by_powers(root: Expression) -> _Powers | None:
    """Coefficients of 1, t and t^2, t being predictor 0; None if that is not all there is."""
    found: dict[Expression, _Powers | None] = {}
    for one in ordered(root):
        if 0 not in leaves(one, "predictor"):
            found[one] = (one, _ZERO, _ZERO)
        elif one.op == "predictor":
            found[one] = (_ZERO, constant(1.0), _ZERO)
        else:
            own = [found[arg] for arg in one.args]
            known = [each for each in own if each is not None]
            found[one] = _combined(one, known) if len(known) == len(own) else None
    return found[root]


def _combined(one: Expression, parts: list[_Powers]) -> _Powers | None:
    if one.op == "sum":
        first, factors = cast(tuple[float, tuple[float, ...]], one.value)
        scaled = [
            [forms.multiply(constant(factor), each) for each in part]
            for factor, part in zip(factors, parts, strict=True)
        ]
        a, b, c = (forms.add(*each) for each in zip(*scaled, strict=True))
        return forms.add(constant(first), a), b, c
    if one.op == "square":
        return _product(parts[0], parts[0])
    return _product(*parts) if one.op == "product" else None


def _product(a: _Powers, b: _Powers) -> _Powers | None:
    degree = sum(max(k for k in range(3) if k == 0 or part[k] is not _ZERO) for part in (a, b))
    if degree > 2:
        return None
    return (
        forms.multiply(a[0], b[0]),
        forms.add(forms.multiply(a[0], b[1]), forms.multiply(a[1], b[0])),
        forms.add(forms.multiply(a[0], b[2]), forms.multiply(a[1], b[1]), forms.multiply(a[2], b[0])),
    )


# The effects of groups in a model: one vector, several of the same groups, or a matrix.


class FoundEffects(NamedTuple):
    """Effects of groups as they were found in a model."""

    original: Factorisation  # Its block is theta, then the effects as the model has them
    factorisation: Factorisation  # Its block is theta, then the effects as vectors
    gather: Gather  # The likelihood in these, and the intercepts
    names: tuple[str, ...]  # Of the vectors: intercepts, then slopes
    variables: tuple[str, ...]  # Of the value variables
    matrix: MatrixEffects | None  # If they are one

    @property
    def n_vectors(self) -> int:
        """Number of vectors that effects are in; 1 if those of a group are side by side."""
        return 1 if self.matrix is not None and self.matrix.by_group else len(self.names)

    def priors(self, model: pm.Model, fact: Factorisation, gather: Gather) -> GroupEffects:
        """Priors of the effects; in the likelihood others may have taken the place of standardised ones.

        Raises
        ------
        NoPlate
            If they are of another form.
        """
        if self.matrix is None:
            return group_effects(model, fact, gather, self.names)
        matrix = self.matrix._replace(factorisation=fact, gather=gather)
        return matrix_group_effects(model, self.original, matrix)

    def inner(self, factor: list[Variable]) -> tuple[InnerEffects, ...]:
        """Elements of their covariance's factor that are proposed in other units."""
        if self.matrix is None:
            return ()
        return rows_of_factor(self.original, factor, len(self.names), self.variables)


def found_effects(model: pm.Model, fact: Factorisation, fewest: int) -> FoundEffects | None:
    """The effects of `fewest` groups or more; None if there are none.

    Raises
    ------
    NoPlate
        If there are, in a form that is no plate.
    """
    matrix = matrix_effects(model, fact, fewest)
    gather = largest_gather(fact, fewest) if matrix is None else matrix.gather
    if gather is None:
        require_several_rows(fact, fewest)
        return None
    require_no_categories(model, gather.term.name, gather.name)
    split = fact if matrix is None else matrix.factorisation
    names = names_of_effects(split, gather)
    if matrix is not None and names != matrix.names:
        raise NoPlate(
            f"the first effects of {matrix.name!r} are to be intercepts, and all others slopes, each times "
            "its data and nothing else: write u[index, 0] + b * x + u[index, 1] * x, with the mean slope b "
            "apart"
        )
    split = _with_last(split, names)
    if len(split.var_names) == len(names):
        raise NoPlate(f"there are no shared variables beside the effects {names[0]!r}")
    variables = names if matrix is None else (matrix.name,)
    original = _with_last(fact, variables)
    return FoundEffects(original, split, gather._replace(name=names[0]), names, variables, matrix)


def _with_last(fact: Factorisation, names: tuple[str, ...]) -> Factorisation:
    return replace(fact, var_names=(*(n for n in fact.var_names if n not in names), *names))


# Effects of other factors that a model has not centred, ``scale * v[idx]``, as effects with that scale.


def with_inner_centered(
    model: pm.Model, fact: Factorisation, gather: Gather, n_effects: int
) -> tuple[Factorisation, Gather, tuple[InnerEffects, ...]]:
    """Likelihood and prior rewritten in v = scale z, for each short vector z of standard normals.

    Parameters
    ----------
    model : pymc.Model
    fact : Factorisation
        Its block is theta, then the effects of the plate.
    gather : Gather
        The effects of the plate.
    n_effects : int
        Vectors of these.
    """
    found: list[InnerEffects] = []
    first = 0
    for name in fact.var_names[:-n_effects]:
        size = int(np.prod(fact.graph.values[name].type.shape))
        own = _scaled(model, fact, gather._replace(name=name, n_groups=size))
        if own is not None and own.scale is not None:
            fact, gather = _with_prior(model, own, name), gather._replace(term=own.term)
            coordinates = np.arange(first, first + size)
            found.append(InnerEffects(coordinates, pt.zeros(()), own.scale, is_centered=False))
        first += size
    return fact, gather, tuple(found)


def _scaled(model: pm.Model, fact: Factorisation, one: Gather) -> ScaledGather | None:
    """Likelihood in v = scale z; None if z is no vector of standard normals that a scale alone multiplies."""
    value = fact.graph.values[one.name]
    if value.type.ndim != 1 or one.n_groups < 2 or not is_looked_up(one.term.rows, value):
        return None
    try:
        prior, found = effects_prior(model, fact, one.name), scaled(fact, one)
    except NoPlate:  # it is a coefficient like others
        return None
    if found.scale is None or prior.family.name != "Normal" or not is_standard(fact, prior):
        return None
    own = _name(model, one.name)
    elsewhere = [graph for name, graph in fact.globals if name != own]
    if value in set(ancestors([found.scale, *elsewhere])) or not is_positive(fact, found.scale):
        return None
    return found


def _with_prior(model: pm.Model, own: ScaledGather, name: str) -> Factorisation:
    """The factorisation with the prior of v in the place of that of z."""
    fact, value = own.factorisation, own.factorisation.graph.values[name]
    log_prior: Variable = pm.logp(pm.Normal.dist(0.0, own.scale), value).sum()
    terms = tuple((term, log_prior if term == _name(model, name) else graph) for term, graph in fact.globals)
    return replace(fact, globals=terms)


def _name(model: pm.Model, name: str) -> str:
    """Name of the random variable of a value variable."""
    return next(str(model.values_to_rvs[var].name) for var in model.value_vars if var.name == name)


def require_own_scales(
    fact: Factorisation, inner: tuple[InnerEffects, ...], coefficients: set[Variable]
) -> None:
    """Scales must not be coefficients, nor depend on effects: proposals move these together.

    Raises
    ------
    NoPlate
        If they do.
    """
    names = [fact.coordinate(int(one.coordinates[0]))[0] for one in inner]
    values = {fact.graph.values[name] for name in fact.var_names}
    effects = {value for value in values if value.name in names}
    for name, one in zip(names, inner, strict=True):
        of_scale = values.intersection(ancestors([one.scale]))
        if of_scale & (coefficients | effects):
            raise NoPlate(f"the scale of the effects {name!r} enters the likelihood in another way, too")


# Predictors of a likelihood, at most: bounds are known for so many.
MOST_PREDICTORS = 4


@dataclass(frozen=True, eq=False)
class PlateModel:
    """y_i ~ f(x_i . theta + o_i + u_g(i), phi), u_g = location_g + scale x_g for G groups.

    With random slopes u_g is a vector of q effects, and rows have Z_i . u_g(i), Z_i beginning with a one.
    """

    factorisation: Factorisation  # Its block is theta, then the effects as the model has them
    name: str  # Of the likelihood
    effects: tuple[str, ...]  # Of the value variables of the effects: intercepts, then slopes
    n_groups: int
    rows: PlateRows
    columns: Columns  # The data that f reads
    # f; predictor 0 is that of the rows, the others are phi. For a normal likelihood with a free scale that
    # is put to a constant.
    expression: Expression
    dispersions: Dispersions  # phi, which is the same for all rows
    priors: tuple[EffectsPrior, ...]  # Of u_g: of its intercept, then of its slopes
    is_centered: bool  # Whether the model has u_g, else x_g = (u_g - location_g) / scale
    # How many vectors effects are in, the first all intercepts; 1 if those of a group are side by side
    n_vectors: int
    # The terms of theta alone; its features are tau (with slopes the Cholesky factor of the covariance of
    # u_g, row by row), the logarithm of the precision of residuals, the shape of the effects' prior, and the
    # scales of inner effects
    shared: Factorisation
    inner: tuple[InnerEffects, ...]  # Effects of a second factor, among the shared variables
    is_normal: bool  # Whether the precision of normal residuals is a function of theta

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


def plate_model(model: pm.Model, fact: Factorisation, fewest: int = FEWEST_GROUPS) -> PlateModel | None:
    """The plate of a model; None if no variable is looked up by the rows, in `fewest` groups or more.

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
    kind = gather.n_groups, len(names)
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
        raise _too_many(1 + len(of_phi.numbers), 1)
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
    kind: tuple[int, int],
) -> tuple[Dispersions, PlateRows]:
    """Numbers that rows share beside their predictor, and the rows.

    `kind` are the number of groups, and effects of each.
    """
    fact, n_effects = found.factorisation, kind[1]
    n_shared = sum(int(np.prod(fact.graph.values[name].type.shape)) for name in fact.var_names[:-n_effects])
    phi = dispersions(fact, found.term, graph, numbers, n_shared)
    return phi, PlateRows(fact, found.term, graph, own, kind, phi.places)


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
        raise _too_many(len(cases.values), len(wide))
    return wide + [k for k in range(len(cases.values)) if k not in wide]


def _too_many(n: int, n_wide: int) -> NoPlate:
    if n_wide != 1:
        return OtherSpelling(
            f"{n_wide} predictors of the likelihood differ by row, and one of a plate's does; others, as "
            "dispersions, are to be the same for all rows"
        )
    return NoPlate(
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
