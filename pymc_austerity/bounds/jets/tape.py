"""Programs for the machine: what it does, step by step, to enclose the derivatives of an expression.

A *jet* of order n in p variables has a coefficient, derivative / alpha!, for every multi-index alpha with
|alpha| <= n. Which of them can be other than zero is known beforehand: a column of data has one, a predictor
1 + p, a product those that are sums of two. Steps of a program list only these.

phi(g) is phi_0 + sum over k >= 1 of phi_k d^k, with phi_k = phi^(k) / k! over the range of g, and d equal to
g without its value. The powers d^k are products. A function of two arguments that move has multi-indices k.
"""

import itertools
from functools import lru_cache
from typing import NamedTuple, cast

import numpy as np
import numpy.typing as npt

from pymc_austerity.bounds.expressions.continuity import is_continuous
from pymc_austerity.bounds.expressions.node import Expression, ordered
from pymc_austerity.bounds.jets.codes import FUNCTIONS, LARGEST_ORDER, LOG_NDTR_BETWEEN
from pymc_austerity.bounds.jets.functions import address_of_special
from pymc_austerity.target import Vector

Index = tuple[int, ...]
Integers = npt.NDArray[np.int64]

# What a step does.
STEPS = (
    "constant", "data", "predictor", "add", "multiply", "square", "tighten", "taylor", "compose",
    "positive", "nonnegative", "zero", "not", "and", "or", "select",
)  # fmt: skip
(
    CONSTANT, DATA, PREDICTOR, ADD, MULTIPLY, SQUARE, TIGHTEN, TAYLOR, COMPOSE, POSITIVE, NONNEGATIVE, ZERO,
    NOT, AND, OR, SELECT,
) = range(len(STEPS))  # fmt: skip


class Tape(NamedTuple):
    """A program. Jets are kept in slots, which are used again."""

    # (I, 6): what is done; the slots of the result and of up to two arguments (or the number of a function,
    # of a predictor, of a column); and the range of the table of pairs that is gone through. The third
    # argument of a `taylor` or a `select` is in the place of the first pair.
    steps: Integers
    # (I,): the constant of a step: a coefficient; or 1.0 if the result is added to what is in the slot, a
    # condition moves, or a select is continuous
    numbers: Vector
    # (Q, 3): coefficients of the first and of the second argument, and that of the result to which their
    # product is added
    pairs: Integers
    weights: Vector  # (Q,): how often
    # n_slots, order, n_coefficients, root: `root` is the slot of the result
    n_slots: int
    order: int
    n_coefficients: int
    root: int


@lru_cache
def multi_indices(n_variables: int, order: int) -> tuple[Index, ...]:
    """All multi-indices up to an order: zero, the unit vectors, and so on by degree."""
    found = []
    for degree in range(order + 1):
        for chosen in itertools.combinations_with_replacement(range(n_variables), degree):
            found.append(tuple(chosen.count(k) for k in range(n_variables)))
    return tuple(found)


def tape_of(root: Expression, n_predictors: int, order: int) -> Tape:
    """The program that encloses all derivatives of an expression up to an order."""
    if order > LARGEST_ORDER:
        raise ValueError(f"derivatives of order {order} are not known, only up to {LARGEST_ORDER}")
    return _Writer(n_predictors, order).tape(root)


def address_for(tape: Tape) -> int:
    """Where the machine code of the special functions in a program is; 0 if there are none."""
    is_function = tape.steps[:, 0] == TAYLOR
    return address_of_special(int(code) for code in tape.steps[is_function, 3])


def n_taylor(tape: Tape) -> int:
    """The most Taylor coefficients that a function in a program has."""
    is_of_two = (tape.steps[:, 0] == TAYLOR) & (tape.steps[:, 3] == LOG_NDTR_BETWEEN)
    return len(multi_indices(2 if is_of_two.any() else 1, tape.order))


class _Writer:
    """Writes a program; knows which coefficients each slot may hold."""

    def __init__(self, n_predictors: int, order: int) -> None:
        self._p, self._order = n_predictors, order
        indices = multi_indices(n_predictors, order)
        self._position = {index: k for k, index in enumerate(indices)}
        self._degree = [sum(index) for index in indices]
        self._sums = {
            (i, j): self._position[tuple(map(sum, zip(a, b, strict=True)))]
            for i, a in enumerate(indices)
            for j, b in enumerate(indices)
            if self._degree[i] + self._degree[j] <= order
        }
        self._steps: list[list[int]] = []
        self._numbers: list[float] = []
        self._pairs: list[tuple[int, int, int]] = []
        self._weights: list[float] = []
        self._slot: dict[Expression, int] = {}
        self._support: dict[int, tuple[int, ...]] = {}
        self._free: list[int] = []
        self._n_slots = 0

    def tape(self, root: Expression) -> Tape:
        """The whole program; slots are free again after their last use."""
        nodes = list(ordered(root))
        last = {arg: number for number, node in enumerate(nodes) for arg in node.args}
        last[root] = len(nodes)
        for number, node in enumerate(nodes):
            self._slot[node] = self._node(node)
            for arg in set(node.args):
                if last[arg] == number:
                    self._free.append(self._slot.pop(arg))
        return Tape(
            np.array(self._steps, dtype=np.int64),
            np.array(self._numbers),
            np.array(self._pairs, dtype=np.int64).reshape(-1, 3),
            np.array(self._weights),
            self._n_slots,
            self._order,
            len(self._position),
            self._slot[root],
        )

    def _node(self, node: Expression) -> int:
        special = getattr(self, f"_{node.op}", None)
        if special is not None:
            slot: int = special(node)
            return slot
        if node.op in FUNCTIONS:
            return self._function(node)
        raise NotImplementedError(f"no derivatives are known of {node.op!r}")

    # Leaves

    def _constant(self, node: Expression) -> int:
        slot = self._new((0,))
        self._write(CONSTANT, slot, number=float(node.value))  # type: ignore[arg-type]
        return slot

    def _data(self, node: Expression) -> int:
        slot = self._new((0,))
        self._write(DATA, slot, int(node.value))  # type: ignore[call-overload]
        return slot

    def _predictor(self, node: Expression) -> int:
        slot = self._new(tuple(range(self._p + 1)) if self._order else (0,))
        self._write(PREDICTOR, slot, int(node.value))  # type: ignore[call-overload]
        self._tighten(slot)
        return slot

    # Arithmetic

    def _sum(self, node: Expression) -> int:
        offset, coefficients = cast(tuple[float, tuple[float, ...]], node.value)
        args = [self._slot[arg] for arg in node.args]
        slot = self._new(self._union(args))
        self._write(CONSTANT, slot, number=offset)
        for arg, c in zip(args, coefficients, strict=True):
            pairs = [(k, k, k) for k in self._support[arg]] + self._at_zero(slot)
            self._write(ADD, slot, arg, pairs=pairs, number=c)
        self._tighten(slot)
        return slot

    def _product(self, node: Expression) -> int:
        a, b = (self._slot[arg] for arg in node.args)
        slot = self._times(a, b)
        self._tighten(slot)
        return slot

    def _square(self, node: Expression) -> int:
        a = self._slot[node.args[0]]
        slot = self._times(a, a)
        self._write(SQUARE, slot, a)
        return slot

    def _times(self, a: int, b: int, *, least: int = 0) -> int:
        """The product; with `least` 1 without the values of both, and of powers of these."""
        pairs = self._products(a, b, least)
        slot = self._new(tuple(sorted({out for _, _, out in pairs})))
        self._write(MULTIPLY, slot, a, b, pairs + self._at_zero(slot))
        return slot

    def _products(self, a: int, b: int, least: int = 0) -> list[tuple[int, int, int]]:
        one, two = ([k for k in self._support[slot] if self._degree[k] >= least] for slot in (a, b))
        return [(i, j, self._sums[i, j]) for i in one for j in two if (i, j) in self._sums]

    # Functions

    def _function(self, node: Expression) -> int:
        args, code = [self._slot[arg] for arg in node.args], FUNCTIONS.index(node.op)
        moving = args if code == LOG_NDTR_BETWEEN else args[:1]
        taylor = self._new(tuple(range(len(multi_indices(len(moving), self._order)))))
        self._write(TAYLOR, taylor, args[0], code, third=args[1] if len(args) > 1 else -1)
        result = self._composed(moving, taylor)
        self._free.append(taylor)
        return result

    def _composed(self, args: list[int], taylor: int) -> int:
        """phi_0 + sum of phi_k d^k."""
        slot, total = self._new((0,)), {0}
        self._write(COMPOSE, slot, taylor)
        powers: dict[Index, int] = {}  # those that are not zero
        for place, k in enumerate(multi_indices(len(args), self._order)[1:], 1):
            last = max(i for i in range(len(args)) if k[i])
            before = tuple(n - (i == last) for i, n in enumerate(k))
            if len(self._support[args[last]]) == 1 or (sum(k) > 1 and before not in powers):
                continue  # an argument does not move
            powers[k] = args[last] if sum(k) == 1 else self._times(powers[before], args[last], least=1)
            support = [j for j in self._support[powers[k]] if self._degree[j] >= sum(k)]
            total.update(support)
            self._write(MULTIPLY, slot, taylor, powers[k], [(place, j, j) for j in support], number=1.0)
        self._support[slot] = tuple(sorted(total))
        self._free.extend(power for k, power in powers.items() if sum(k) > 1)
        return slot

    # Conditions

    def _sign(self, node: Expression) -> int:
        slot = self._new((0,))
        # What does not move is compared as it is, without an allowance for rounding.
        moves = float(node.args[0].moves)
        self._write(STEPS.index(node.op), slot, self._slot[node.args[0]], number=moves)
        return slot

    _positive = _nonnegative = _zero = _sign

    def _not(self, node: Expression) -> int:
        slot = self._new((0,))
        self._write(NOT, slot, self._slot[node.args[0]])
        return slot

    def _both(self, node: Expression) -> int:
        slot = self._new((0,))
        a, b = (self._slot[arg] for arg in node.args)
        self._write(STEPS.index(node.op), slot, a, b)
        return slot

    _and = _or = _both

    def _select(self, node: Expression) -> int:
        condition, a, b = (self._slot[arg] for arg in node.args)
        # What is not decided has an infinite radius in all coefficients, or in those beyond the first order.
        support = self._union([a, b]) if not node.args[0].moves else tuple(range(len(self._position)))
        slot = self._new(support)
        self._write(SELECT, slot, a, b, third=condition, number=float(is_continuous(node)))
        return slot

    # Writing

    def _new(self, support: tuple[int, ...]) -> int:
        if self._free:
            slot = self._free.pop()
        else:
            slot, self._n_slots = self._n_slots, self._n_slots + 1
        self._support[slot] = support
        return slot

    def _union(self, slots: list[int]) -> tuple[int, ...]:
        return tuple(sorted({0, *(k for slot in slots for k in self._support[slot])}))

    def _is_affine(self, slot: int) -> bool:
        return self._order > 1 and self._support[slot][-1] <= self._p

    def _at_zero(self, slot: int) -> list[tuple[int, int, int]]:
        """Coefficient that affine forms have beyond others, the value at z = 0, as a product to add."""
        last = len(self._position)
        return [(last, last, last)] if self._is_affine(slot) else []

    def _tighten(self, slot: int) -> None:
        if self._p > 1 and self._is_affine(slot):
            self._write(TIGHTEN, slot)

    def _write(
        self,
        step: int,
        out: int,
        a: int = -1,
        b: int = -1,
        pairs: list[tuple[int, int, int]] | None = None,
        number: float = 0.0,
        third: int = -1,
    ) -> None:
        first = len(self._pairs)
        merged: dict[tuple[int, int, int], float] = {}
        for i, j, k in pairs or ():
            key = (min(i, j), max(i, j), k) if a == b else (i, j, k)
            merged[key] = merged.get(key, 0.0) + 1.0
        self._pairs += merged
        self._weights += merged.values()
        self._steps.append([step, out, a, b, first if pairs is not None else third, len(self._pairs)])
        self._numbers.append(number)
