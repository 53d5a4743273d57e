"""Effects of groups in forms that are no plate: which one it is, and what to write instead."""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.traversal import ancestors, toposort
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.shape import Shape, Shape_i
from pytensor.tensor.subtensor import AdvancedSubtensor

from pymc_austerity.model.checks import IMPUTED
from pymc_austerity.model.factorisation import CHUNK, Factorisation, LocalTerm
from pymc_austerity.model.graph.rewrite import INTERPRETED, depends_on, rebuild
from pymc_austerity.model.plates.gathers import NoPlate, require_no_categories
from pymc_austerity.model.plates.nested_lookups import looked_up_once
from pymc_austerity.model.plates.slopes import MOST_EFFECTS
from pymc_austerity.model.refusal import NO_GRADIENT
from pymc_austerity.model.self_check import jittered
from pymc_austerity.model.structure.predictors import block_and_others
from pymc_austerity.model.structure.prepared_rows import prepared_rows

_TOLERANCE, _SEED = 1e-7, 2041


class _Lookup(NamedTuple):
    """Where rows look effects of their group up."""

    node: Apply
    value: Variable  # The variable of the block
    index: Variable  # The first of the indices
    n_indices: int  # Indices that differ by row
    n_groups: int
    n_effects: int  # Of a group, that are looked up at once


def unknown_form(model: pm.Model, fact: Factorisation, fewest: int) -> NoPlate | None:
    """Why effects of `fewest` groups or more are no plate, if rows contain them in another form."""
    block, _ = block_and_others(fact)
    long = [var for var in block.values() if math.prod(var.type.shape) >= fewest - 1]
    try:
        for term in fact.locals:
            if term.name in fact.graph.likelihood and not set(long).isdisjoint(ancestors([term.rows])):
                _OneTerm(model, fact, term, fewest).require_known()
    except NoPlate as reason:
        return reason
    return None


class _OneTerm:
    """Looks at the rows of one term of the likelihood."""

    def __init__(self, model: pm.Model, fact: Factorisation, term: LocalTerm, fewest: int) -> None:
        self._model, self._fact, self._term, self._fewest = model, fact, term, fewest
        self._name, self._said = term.name, f"rows of the term {term.name!r}"
        self._rows = looked_up_once(fact, prepared_rows(fact, term))
        block, _ = block_and_others(fact)
        self._names = {var: fact.graph.variables.get(name, name) for name, var in block.items()}
        self._moving = depends_on([self._rows], block.values())
        self._by_row = depends_on([self._rows], [term.index])
        self._nodes = list(toposort([self._rows]))

    def require_known(self) -> None:
        """Say which form of effects is not known.

        Raises
        ------
        NoPlate
        """
        found = list(self._lookups())
        for one in found:
            self._require_no_missing_values(one)
            require_no_categories(self._model, self._name, self._names[one.value])
            self._require_few(one)
        self._require_one_factor_with_slopes(found)
        for one in found:
            self._require_single(one)
            self._require_vector(one)
            self._require_independent(one)
        self._require_added(found)

    def _lookups(self) -> Iterator[_Lookup]:
        for node in self._nodes:
            if not isinstance(node.op, AdvancedSubtensor) or not self._moving.get(node.inputs[0], False):
                continue
            source, entries = node.inputs[0], dict(enumerate(node.op.idx_list))
            indices = {a: node.inputs[1 + k] for a, k in entries.items() if isinstance(k, int)}
            own = [a for a, var in indices.items() if self._differs(var)]
            shape = source.type.shape
            n_groups = math.prod(shape[a] for a in own) if None not in shape else 0
            others = [shape[a] for a in range(len(shape)) if a not in own and indices.get(a) is None]
            value = self._largest(source)
            few = n_groups < self._fewest or math.prod(value.type.shape) < self._fewest - 1
            if few or n_groups >= self._term.size:
                continue
            yield _Lookup(node, value, indices[own[0]], len(own), n_groups, math.prod(others))

    def _differs(self, index: Variable) -> bool:
        """Is it data, another one in each row?"""
        return self._by_row.get(index, False) and not self._moving.get(index, False)

    def _largest(self, source: Variable) -> Variable:
        """The longest variable of which something is made."""
        used = set(ancestors([source]))
        return max((v for v in self._names if v in used), key=lambda v: math.prod(v.type.shape))

    def _prior(self, value: Variable) -> Any:
        names = self._names[value]
        return next(rv.owner.op for rv in self._model.free_RVs if rv.name == names)

    def _require_no_missing_values(self, one: _Lookup) -> None:
        name = self._names[one.value]
        if name.endswith(IMPUTED):
            raise NoPlate(
                f"{name!r} are missing values of {name.removesuffix(IMPUTED)!r}, each in a row of its own, "
                "and effects are moved group by group where groups have several rows"
            )

    def _require_few(self, one: _Lookup) -> None:
        if one.n_effects > MOST_EFFECTS:
            raise NoPlate(
                f"{self._said} contain {one.n_effects} effects of their group in "
                f"{self._names[one.value]!r}, and {MOST_EFFECTS} at most are moved group by group: an "
                f"intercept and {MOST_EFFECTS - 1} slopes"
            )

    def _require_one_factor_with_slopes(self, found: list[_Lookup]) -> None:
        several = {one.index: one for one in found if one.n_effects > 1}
        if len(several) > 1:
            first, other, *_ = several.values()
            here, there = self._names[first.value], self._names[other.value]
            raise NoPlate(
                f"{self._said} contain {first.n_effects} effects of each of {first.n_groups:,} groups in "
                f"{here!r}, and {other.n_effects} of each of {other.n_groups:,} others in {there!r}: random "
                "slopes are moved group by group where one factor has them, and no other spelling helps"
            )

    def _require_single(self, one: _Lookup) -> None:
        name = self._names[one.value]
        at_once = math.prod(k for k in one.index.type.shape if k is not None)
        if at_once > 1:
            raise NoPlate(
                f"{self._said} look up {at_once} elements of {name!r} each, and effects are moved group by "
                "group where each row has one of them"
            )

    def _require_vector(self, one: _Lookup) -> None:
        name, shape = self._names[one.value], one.value.type.shape
        if len(shape) > 1 and max(shape) == math.prod(shape):
            raise NoPlate(
                f"{name!r} has the shape {shape}, and effects of groups and rows are vectors: write "
                f"shape={max(shape)}"
            )

    def _require_independent(self, one: _Lookup) -> None:
        name, value, source = self._names[one.value], one.value, one.node.inputs[0]
        if value.type.ndim != 1:
            return
        prior = self._prior(value)
        if source is not value and not self._is_elementwise(source):
            raise NoPlate(
                f"{self._said} look up elements that are made of several of {name!r}, as "
                "with ZeroSumNormal or an ordered transform: effects are not independent then"
            )
        if getattr(prior, "ndim_supp", 0):
            raise NoPlate(
                f"the prior of {name!r} is {type(prior).__name__.removesuffix('RV')}, one of all its "
                "elements together: effects are not independent then, and only independent ones are moved "
                "group by group"
            )
        own = set(ancestors([source]))
        if any(
            value in node.inputs and not own.issuperset(node.outputs)
            for node in self._nodes
            if not isinstance(node.op, AdvancedSubtensor | Shape | Shape_i)
        ):
            raise NoPlate(
                f"{self._said} contain all of {name!r} beside the element of their group, as "
                f"in u - u.mean(): groups depend on each other then"
            )

    def _require_added(self, found: list[_Lookup]) -> None:
        """Rows are functions of a sum of effects, each times data.

        They are where the ratio of derivatives by two effects does not depend on these effects.
        """
        own = {one.value: one.node.outputs[0] for one in found if one.node.outputs[0].type.ndim == 1}
        if len(own) < 2:
            return
        shifts = [pt.vector() for _ in own]
        memo = {one: one + shift for one, shift in zip(own.values(), shifts, strict=True)}
        (moved,) = rebuild([self._rows], memo)
        try:
            slopes = pt.grad(moved.sum(), shifts)
        except NO_GRADIENT:
            return
        positions = np.arange(min(self._term.size, CHUNK))
        function = self._fact.compile(slopes, [self._term.index, *shifts], mode=INTERPRETED)
        point, rng = jittered(self._fact.graph), np.random.default_rng(_SEED)
        here, there = (
            function(*point, positions, *by, *self._fact.leaf_values)
            for by in (np.zeros((len(own), len(positions))), rng.normal(size=(len(own), len(positions))))
        )
        first, *others = (self._names[value] for value in own)
        for name, a, b in zip(others, here[1:], there[1:], strict=True):
            one, other = here[0] * b, there[0] * a
            if not np.allclose(one, other, rtol=_TOLERANCE, atol=_TOLERANCE, equal_nan=True):
                raise NoPlate(
                    f"{self._said} are not functions of a sum of {first!r} and {name!r}: one "
                    "of them enters another parameter of the likelihood, as a scale for each group does, or "
                    "they are multiplied, and only effects that are added are moved group by group"
                )

    def _is_elementwise(self, source: Variable) -> bool:
        """Is each element made of elements at the same place?"""
        return all(
            isinstance(node.op, Elemwise | DimShuffle)
            for node in toposort([source])
            if self._moving.get(node.outputs[0], False)
            and any(
                v.type.ndim == 1 and v.type.shape[0] > 1 for v in node.inputs if self._moving.get(v, False)
            )
        )
