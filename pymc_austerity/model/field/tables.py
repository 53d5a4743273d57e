"""Which vectors the rows of a likelihood look up or multiply by data, found on its graph.

The linear part of a predictor is written in many ways: ``u[g]``, ``(mu + tau * z)[g]``, ``tau * z[g]``,
``(Z * u[g]).sum(-1)``, ``X @ beta``, ``u[i, j]``, ``basis @ coef``, ``(b + u[g]) * x``. In all of them some
vector, the same for all rows, is looked up or multiplied by data, and what follows is linear with
coefficients that are data. Such a vector is a *table*. One visitor goes through the graph of the likelihood
from the variables to the rows. A value is

- *data*, if no variable moves it;
- *short*, if it is made of variables without any data that differ by row: a table, should rows use it;
- *linear*, if it is a sum of tables with coefficients that are data;
- *another* function of these, from which on rows are a function of few predictors.

The likelihood is written anew with an input in the place of each table. Numbers by which a whole linear value
is multiplied go into its tables: ``tau * z[g]`` is ``(tau * z)[g]``. A short value is taken apart as far as
its parts are linear in variables with a prior that has a rule (`priors`): ``mu + tau * z`` is two tables, and
u with the prior ``pm.Normal("u", v[outer], tau)`` is ``v[outer]`` and the table u - v[outer]. So no number
that a step moves is left among the coefficients.
"""

from dataclasses import dataclass, field
from enum import Enum
from functools import reduce
from operator import mul
from typing import NoReturn

import numpy as np
import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Constant, Variable, equal_computations
from pytensor.graph.traversal import graph_inputs
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.extra_ops import CumOp
from pytensor.tensor.linalg.decomposition.cholesky import Cholesky
from pytensor.tensor.math import Dot, Sum
from pytensor.tensor.subtensor import AdvancedSubtensor
from pytensor.tensor.type import TensorType

from pymc_austerity.model.factorisation import some_rows
from pymc_austerity.model.field.priors import Innovation, NoField, Priors, Step, applied, factors
from pymc_austerity.model.graph.checks import is_elemwise
from pymc_austerity.model.graph.rewrite import rebuild
from pymc_austerity.model.graph.terms import is_single
from pymc_austerity.model.structure.operations import ADDING, JOINING, MOVING, core_of


class Kind(Enum):
    """How a value of the graph is made."""

    DATA = "of data alone"
    SHORT = "of variables, without data that differ by row"
    LINEAR = "a sum of tables times data"
    OTHER = "anything else"


@dataclass(frozen=True, eq=False)
class Table:
    """A vector that rows look up or multiply by data.

    It is ``steps(innovation)``, where an innovation is a variable less its location, normal given numbers
    that are the same for all elements; or, without an innovation, a function of these numbers alone.
    """

    name: str
    input: Variable  # What stands for it in the likelihood; its shape is that of the table
    graph: Variable  # Its value, a function of the value variables of the model
    innovation: Innovation | None
    steps: tuple[Step, ...] = ()

    @property
    def variable(self) -> str:
        """The variable of the model whose innovation it is made of, or those that its numbers are made of."""
        return self.name if self.innovation is None else repr(self.innovation.variable)

    @property
    def size(self) -> int:
        """How many elements it has."""
        return int(np.prod(self.input.type.shape))

    @property
    def is_scaled(self) -> bool:
        """Whether rows have it times unknown numbers."""
        return any(not isinstance(one, Constant) for one in graph_inputs(factors(self.steps)))

    @property
    def said(self) -> str:
        """The prior of a table in words."""
        if self.innovation is None:
            return "without a rule of a prior"
        steps = dict.fromkeys(_IN_WORDS[step.kind] for step in self.steps if step.kind in _IN_WORDS)
        ending = self.innovation.name.removeprefix(self.innovation.variable)
        return ", ".join([self.innovation.kind + _SCALES.get(ending, ""), *steps])


_SCALES = {"_log__": " on a log scale", "_logodds__": " on a logit scale"}
_IN_WORDS = {
    "scale": "scaled",
    "left": "times a matrix",
    "right": "times a matrix",
    "sum": "summed up",
    "autoregression": "carried on",
}
# Elements of variables that are taken for numbers where they enter through a curve.
_FEW = 10


@dataclass(eq=False)
class Visitor:
    """Takes the graph of a likelihood apart.

    Attributes
    ----------
    priors : Priors
        Rules for the variables of the model.
    tables : list of Table
    """

    priors: Priors
    tables: list[Table] = field(default_factory=list)
    _kinds: dict[Variable, Kind] = field(default_factory=dict)
    _rewritten: dict[Variable, Variable] = field(default_factory=dict)

    def kind(self, var: Variable) -> Kind:
        """How a value is made."""
        if var not in self._kinds:
            stack = [var]
            while stack:
                one = stack[-1]
                missing = [] if one.owner is None else [v for v in one.owner.inputs if v not in self._kinds]
                if missing:
                    stack += missing
                else:
                    self._kinds[one] = self._kind_of(one)
                    self._give_up_curved(one)
                    stack.pop()
        return self._kinds[var]

    def _kind_of(self, var: Variable) -> Kind:
        if var in self.priors.values or var in self.priors.images:
            return Kind.SHORT
        node = var.owner
        if node is None:
            return Kind.DATA
        own = [self._kinds[v] for v in node.inputs]
        if all(one is Kind.DATA for one in own):
            return Kind.DATA
        if Kind.OTHER in own:
            return Kind.OTHER
        if not self.priors.carries(var) and all(self._is_short(v) for v in node.inputs):
            return Kind.SHORT
        op = core_of(node.op)
        if isinstance(op, Elemwise):
            return self._kind_of_elemwise(node, own)
        data = [v for v, one in zip(node.inputs, own, strict=True) if one is Kind.DATA]
        if isinstance(op, MOVING):
            if own[0] is Kind.DATA:
                return Kind.OTHER
            if isinstance(op, AdvancedSubtensor) and any(self._is_by_row(v) for v in data):
                return Kind.LINEAR
            return own[0]
        if isinstance(op, Sum | CheckAndRaise):
            return own[0]
        if Kind.LINEAR not in own and all(map(_is_small, data)):
            return Kind.SHORT
        is_linear = isinstance(op, JOINING) or (isinstance(op, Dot) and data)
        return Kind.LINEAR if is_linear else Kind.OTHER

    def _give_up_curved(self, var: Variable) -> None:
        """Take few variables of which rows know a curve alone, as a length scale, for numbers."""
        node = var.owner
        if self._kinds[var] is not Kind.OTHER or any(self._kinds[v] is Kind.OTHER for v in node.inputs):
            return
        if None in getattr(var.type, "shape", ()) or self._is_by_row(var):
            return
        own = self.priors.effects_in([var])
        if own and sum(int(np.prod(v.type.shape)) for v in own) <= _FEW:
            self.priors.give_up_shortest([var])

    def _is_short(self, var: Variable) -> bool:
        """Is a value short, or data that do not differ by row?"""
        return not self._is_by_row(var) if self._kinds[var] is Kind.DATA else self._kinds[var] is Kind.SHORT

    def _is_by_row(self, var: Variable) -> bool:
        """Are data as long as a likelihood?"""
        return not self.priors.lengths.isdisjoint(getattr(var.type, "shape", ()))

    def _kind_of_elemwise(self, node: Apply, own: list[Kind]) -> Kind:
        scalar = node.op.scalar_op
        wide = [v for v, one in zip(node.inputs, own, strict=True) if one is Kind.DATA and not _is_small(v)]
        if Kind.LINEAR not in own and not wide:
            return self._kind_of_short(node)
        if isinstance(scalar, ADDING):
            return Kind.LINEAR if node.outputs[0].type.dtype == "float64" else Kind.OTHER
        if isinstance(scalar, ps.TrueDiv):
            return Kind.LINEAR if own[1] is Kind.DATA else Kind.OTHER
        if isinstance(scalar, ps.Mul):
            moving = [v for v, one in zip(node.inputs, own, strict=True) if one is not Kind.DATA]
            if len(moving) == 1:
                return Kind.LINEAR
            linear = [v for v in moving if self._kinds[v] is Kind.LINEAR]
            if len(linear) == 1 and all(is_single(v) for v in moving if v not in linear):
                return Kind.LINEAR if self._is_homogeneous(linear[0]) else Kind.OTHER
            if len(moving) == 2 and self._lookup_of_both(*moving) is not None:
                return Kind.LINEAR
            if Kind.LINEAR not in own and not any(map(self._is_by_row, wide)):
                return self._kind_of_short(node)
            if self._is_bilinear(moving):
                self._refuse_product(moving)
        return Kind.OTHER

    def _refuse_product(self, moving: list[Variable]) -> NoReturn:
        names = " and ".join(self.priors.named([v]) for v in moving)
        raise NoField(
            f"a product of {names}, which is bilinear: each "
            "is an unknown vector, as in a factor model or with a latent covariate"
        )

    def _is_bilinear(self, moving: list[Variable]) -> bool:
        wide = [v for v in moving if not is_single(v) and self._kinds[v] in (Kind.LINEAR, Kind.SHORT)]
        different = {v for v in wide if self._is_homogeneous(v)}
        return len(different) > 1 and any(self.priors.carries(v) for v in different)

    def _kind_of_short(self, node: Apply) -> Kind:
        """Kind of an operation on short values: short if linear in variables with a rule, or a number."""
        scalar = node.op.scalar_op
        carried = [v for v in node.inputs if self.priors.carries(v)]
        if not carried or isinstance(scalar, ADDING):
            return Kind.SHORT
        if isinstance(scalar, ps.Mul):
            if len(carried) > 1:
                self.priors.give_up_shortest(carried)
            return Kind.SHORT
        return Kind.SHORT if isinstance(scalar, ps.TrueDiv) and carried == node.inputs[:1] else Kind.OTHER

    def _is_homogeneous(self, var: Variable) -> bool:
        """Is a linear value a sum of tables times data, without a summand of data alone?"""
        node, kind = var.owner, self._kinds[var]
        if kind is Kind.DATA:
            return _is_zero(var)
        if kind is Kind.SHORT or node is None:
            return True
        if is_elemwise(var, ps.Add, ps.Sub) or isinstance(node.op, JOINING):
            return all(self._is_homogeneous(v) for v in node.inputs)
        return all(self._is_homogeneous(v) for v in node.inputs if self._kinds[v] is not Kind.DATA)

    # Writing the likelihood in tables ---------------------------------------------------------------

    def rewritten(self, var: Variable) -> Variable:
        """A value of any kind, with inputs in the place of tables."""
        if var in self._rewritten:
            return self._rewritten[var]
        kind = self.kind(var)
        if kind is Kind.DATA:
            return var
        if kind is Kind.SHORT and (var in self.priors.values or self.priors.carries(var)):
            new = self.apart(var)
        elif kind is Kind.LINEAR and self.priors.carries(var):
            new = self.times(var, None)
        elif kind is Kind.SHORT and isinstance(core_of(var.owner.op), Cholesky):
            new = self._number(var, ())
        else:
            node = var.owner
            inputs = [self.rewritten(v) for v in node.inputs]
            outputs = rebuild(list(node.outputs), dict(zip(node.inputs, inputs, strict=True)))
            self._rewritten.update(zip(node.outputs, outputs, strict=True))
            return self._rewritten[var]
        self._rewritten[var] = new
        return new

    def times(self, var: Variable, number: Variable | None) -> Variable:
        """A linear or short value times a number that variables move, or 1, in tables."""
        kind = self.kind(var)
        if kind is Kind.SHORT:
            return self.apart(var, () if number is None else (Step("scale", number),))
        node = var.owner
        op = core_of(node.op)
        if isinstance(op, Elemwise) and isinstance(op.scalar_op, ps.Mul):
            return self._product(node, number)
        memo = {v: self.times(v, number) for v in node.inputs if self.kind(v) is not Kind.DATA}
        is_sum = isinstance(op, Elemwise) and isinstance(op.scalar_op, ps.Add | ps.Sub)
        if number is not None and (is_sum or isinstance(op, JOINING)):
            fixed = [v for v in node.inputs if v not in memo and not _is_zero(v)]
            memo.update({v: self._number(v, (Step("scale", number),)) for v in fixed})
        return _applied(node, memo)

    def _product(self, node: Apply, number: Variable | None) -> Variable:
        moving = [v for v in node.inputs if self.kind(v) is not Kind.DATA]
        numbers = [v for v in moving if is_single(v) and self.kind(v) is Kind.SHORT]
        base = [v for v in moving if v not in numbers]
        if len(base) == 2:
            lookup = self._lookup_of_both(*base)
            assert lookup is not None
            base = [self._product_of_lookups(*lookup)]
        elif not base:
            base, numbers = numbers[:1], numbers[1:]
        for one in numbers:
            one = one.flatten()[0] if one.type.ndim else one
            number = one if number is None else number * one
        others = [v for v in node.inputs if self.kind(v) is Kind.DATA]
        found = self.times(base[0], number)
        return pt.mul(found, *others) if others else found

    def _lookup_of_both(self, a: Variable, b: Variable) -> tuple[Variable, Variable, Apply] | None:
        """``a[h]`` and ``b[g]`` as two vectors and one look-up; None if neither index tells the other."""
        for one, two in ((a.owner, b.owner), (b.owner, a.owner)):
            if one is None or two is None or not isinstance(one.op, AdvancedSubtensor) or one.op != two.op:
                return None
            if one.op.idx_list != (0,) or one.inputs[0].type.ndim != 1 or two.inputs[0].type.ndim != 1:
                return None
            if one.inputs[1] is two.inputs[1]:
                return one.inputs[0], two.inputs[0], two
            inner, outer = self._index(two.inputs[1]), self._index(one.inputs[1])
            if inner is None or outer is None or inner.shape != outer.shape:
                return None
            n_inner = two.inputs[0].type.shape[0]
            of_inner = np.zeros(n_inner, np.int64)
            for some in some_rows(len(inner)):
                of_inner[inner[some]] = outer[some]
            if all(np.array_equal(of_inner[inner[some]], outer[some]) for some in some_rows(len(inner))):
                return one.inputs[0][of_inner], two.inputs[0], two
        return None

    def _index(self, var: Variable) -> np.ndarray | None:
        """The numbers of an index; data are not copied."""
        graph = self.priors.factorisation.graph
        if var in graph.data:
            return np.asarray(graph.data[var].get_value(borrow=True))
        return None if self.priors.moves(var) else graph.evaluate(var)

    def _product_of_lookups(self, one: Variable, two: Variable, place: Apply) -> Variable:
        """``sigma[g] * z[g]`` as ``(sigma * z)[g]``."""
        (found,) = place.clone_with_new_inputs([one * two, *place.inputs[1:]]).outputs
        return found

    # Taking short values apart ------------------------------------------------------------------------

    def apart(self, var: Variable, steps: tuple[Step, ...] = ()) -> Variable:
        """A short value, with `steps` applied to it, in tables. The last of the steps comes last."""
        if var in self.priors.images:
            value, own = self.priors.images[var]
            return self._variable(value, (*own, *steps))
        if var in self.priors.values:
            return self._variable(var, steps)
        node = var.owner
        carried = [v for v in node.inputs if self.kind(v) is not Kind.DATA and self.priors.carries(v)]
        if not carried:  # a function of numbers that have no rule
            return self._number(var, steps)
        op = core_of(node.op)
        if isinstance(op, Elemwise):
            return self._short_elemwise(node, carried, steps)
        if isinstance(op, Dot) and len(carried) == 2:
            self._refuse_product(node.inputs)
        if isinstance(op, Dot):
            left = carried[0] is node.inputs[1]
            other = node.inputs[0 if left else 1]
            if self.kind(other) is Kind.DATA and not steps:
                return _applied(node, {carried[0]: self.apart(carried[0])})
            return self.apart(carried[0], (Step("left" if left else "right", other), *steps))
        if isinstance(op, CumOp) and op.mode == "add":
            return self.apart(carried[0], (Step("sum", axis=op.axis), *steps))
        if isinstance(op, (*MOVING, *JOINING, Sum, CheckAndRaise)):
            if all(map(_is_number_step, steps)):
                moving = [v for v in node.inputs if self.kind(v) is not Kind.DATA]
                memo = {v: self.apart(v, steps) for v in moving}
                if steps and isinstance(op, JOINING):
                    fixed = [v for v in node.inputs if v not in memo and not _is_zero(v)]
                    memo.update({v: self._number(v, steps) for v in fixed})
                return _applied(node, memo)
            if isinstance(op, DimShuffle):
                return self.apart(carried[0], (Step("placed", var), *steps))
            if all(step.kind == "scale" for step in steps):
                scale = applied(pt.ones(var.type.shape), steps)
                if isinstance(op, JOINING):
                    return self._joined(node, scale)
                if isinstance(op, MOVING):
                    return self._placed(node, scale)
        raise NoField(f"{self.priors.named(carried)} through {op}, for which there is no rule of a prior")

    def _joined(self, node: Apply, scale: Variable) -> Variable:
        """What is joined, each part with its own part of a scale."""
        axis, start, memo = getattr(node.op, "axis", 0), 0, {}
        for v in node.inputs:
            k = v.type.shape[axis] if v.type.ndim else 1
            own = scale[(slice(None),) * axis + (slice(start, start + k) if v.type.ndim else start,)]
            start += k
            own = Step("scale", own)
            if not _is_zero(v):
                memo[v] = self._number(v, (own,)) if self.kind(v) is Kind.DATA else self.apart(v, (own,))
        return _applied(node, memo)

    def _placed(self, node: Apply, scale: Variable) -> Variable:
        """What is at other places times a scale, which is put where the input has what it multiplies."""
        source = node.inputs[0]
        n = int(np.prod(source.type.shape))
        numbers = _applied(node, {source: pt.arange(n, dtype=source.type.dtype).reshape(source.type.shape)})
        places = np.ravel(self.priors.factorisation.graph.evaluate(numbers)).astype(np.int64)
        if len(np.unique(places)) < len(places):
            raise NoField(
                f"elements of {self.priors.named([source])} are looked up, and each has several scales"
            )
        back = np.full(n, len(places))
        back[places] = np.arange(len(places))
        own = pt.concatenate([scale.flatten(), [1.0]])[back].reshape(source.type.shape)
        return _applied(node, {source: self.apart(source, (Step("scale", own),))})

    def _short_elemwise(self, node: Apply, carried: list[Variable], steps: tuple[Step, ...]) -> Variable:
        scalar, inputs = node.op.scalar_op, node.inputs
        if isinstance(scalar, ADDING):
            memo = {v: self.apart(v, steps) for v in inputs if self.kind(v) is not Kind.DATA}
            if steps and any(self.kind(v) is Kind.DATA for v in inputs):
                memo.update({v: self._number(v, steps) for v in inputs if self.kind(v) is Kind.DATA})
            return _applied(node, memo)
        if isinstance(scalar, ps.Mul) and len(carried) == 1:
            own = [v for v in inputs if v is not carried[0]]
            scale = own[0] if len(own) == 1 else pt.mul(*own)
            return self.apart(carried[0], (_scale(scale, node), *steps))
        if isinstance(scalar, ps.TrueDiv) and carried == [inputs[0]]:
            return self.apart(carried[0], (_scale(1.0 / inputs[1], node), *steps))
        if isinstance(scalar, ps.Mul):
            self.priors.give_up_shortest(carried)
        return self._number(node.outputs[0], steps)

    def _variable(self, value: Variable, steps: tuple[Step, ...]) -> Variable:
        """A variable of the model: its location, and a table of what it differs from that."""
        innovation = self.priors.rule(value)
        if innovation is None:
            return self._number(value, steps)
        new = self._table(innovation.name, innovation.graph, innovation, steps)
        if innovation.location is None:
            return new
        name = repr(innovation.variable)
        if innovation.location.type.shape != value.type.shape and not all(map(_is_number_step, steps)):
            raise NoField(
                f"the location of {name} is the same for several of its elements, of which sums or "
                "products with unknown numbers are taken"
            )
        kind = self.kind(innovation.location)
        if kind is Kind.DATA:
            return new + self._number(innovation.location, steps)
        if kind is Kind.SHORT:
            return new + self.apart(innovation.location, steps)
        if kind is Kind.LINEAR and all(map(_is_number_step, steps)):
            return new + self.times(innovation.location, reduce(mul, factors(steps)) if steps else None)
        raise NoField(
            f"the location of {name} is not a linear function of variables with a normal prior"
            if kind is Kind.OTHER
            else f"{name}, whose location differs by element, is multiplied by several numbers"
        )

    def _number(self, var: Variable, steps: tuple[Step, ...]) -> Variable:
        graph = applied(var, steps)
        if not self.priors.moves(graph):
            return graph
        return self._table(self.priors.named([graph]), graph, None, ())

    def _table(
        self, name: str, graph: Variable, innovation: Innovation | None, steps: tuple[Step, ...]
    ) -> Variable:
        """The input that stands for a table; the same one for equal tables."""
        value = applied(graph, steps)
        for table in self.tables:
            if table.innovation is innovation and equal_computations([table.graph], [value]):
                return table.input
        if np.dtype(value.type.dtype).kind != "f":
            raise NoField(f"{name}, on which rows depend, is discrete")
        shape = tuple(int(k) for k in value.type.shape)
        new = TensorType("float64", shape)(f"{name}[{len(self.tables)}]")
        self.tables.append(Table(name, new, value, innovation, steps))
        return new


def _scale(scale: Variable, node: Apply) -> Step:
    """A factor of a product. One number loses its shape, so that it fits whatever comes later."""
    is_alone = (
        is_single(scale)
        and scale.type.ndim
        and all(v.type.ndim == node.outputs[0].type.ndim for v in node.inputs)
    )
    return Step("scale", scale.flatten()[0] if is_alone else scale)


def _is_zero(var: Variable) -> bool:
    return isinstance(var, Constant) and not np.any(var.data)


def _is_number_step(step: Step) -> bool:
    return step.kind == "scale" and step.graph is not None and is_single(step.graph)


def _applied(node: Apply, memo: dict[Variable, Variable]) -> Variable:
    """The operation on other inputs."""
    return rebuild([node.outputs[0]], dict(memo))[0]


def _is_small(var: Variable) -> bool:
    """Is data one number, or a constant that says where things go?"""
    return not isinstance(var.type, TensorType) or int(np.prod([k or 0 for k in var.type.shape])) <= 1
