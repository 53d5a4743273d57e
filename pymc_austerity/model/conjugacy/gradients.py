"""Derivatives of the likelihood by natural values, compiled: summed over some rows, or over all.

`LikelihoodGradient` has size N. It is left out of pickles and built again in a worker.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.gradient import grad
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors

from pymc_austerity.exceptions import FactorisationError
from pymc_austerity.model.compile.backend import current_backend
from pymc_austerity.model.conjugacy.likelihood import LikelihoodView, without_logs_of_exponentials
from pymc_austerity.model.conjugacy.priors import GammaPrior
from pymc_austerity.model.factorisation import CHUNK, Factorisation
from pymc_austerity.model.factorise import build
from pymc_austerity.model.graph.leaves import extract_given
from pymc_austerity.model.graph.rewrite import rebuild, stable
from pymc_austerity.model.refusal import NO_GRADIENT
from pymc_austerity.target import Array, Index

# No vector is so long: everything is evaluated in full.
_NOTHING_LOCAL = 2**62
# Of larger intermediate results the self-check would take too much memory.
_MOST_NUMBERS = 50_000_000


class LikelihoodGradient:
    """Derivatives of all terms that contain one variable, but for its prior.

    Parameters
    ----------
    model : pymc.Model
    prior : GammaPrior
        The variable.
    point : dict of str to ndarray
        A point of the model.
    threshold : int or None
        Vectors of so many rows are local terms. None: up to 1000, the longest vectors are.
    subsampled : bool
        Whether rows must be had one by one.
    check : bool
        Whether to compare the rows with PyMC's once, if that takes no more than some hundred megabytes.

    Attributes
    ----------
    sizes : list of int
        Rows of each local term.
    names : list of str
        Names of the local terms, then of the others.
    longest : (str, int)
        Name and length of the longest vector in any term.
    parents : list of str
        Value variables of the model that the derivatives depend on.

    Raises
    ------
    FactorisationError
        Naming the term, if `subsampled` and its rows cannot be computed one by one.
    ValueError
        Naming the term, if it cannot be differentiated.
    """

    def __init__(
        self,
        model: pm.Model,
        prior: GammaPrior,
        point: Mapping[str, Any],
        *,
        threshold: int | None,
        subsampled: bool,
        check: bool,
    ) -> None:
        view = LikelihoodView(model, prior)
        others = {name: value for name, value in point.items() if name != prior.value_name}
        here = {**others, view.natural.name: prior.family.central_natural()}
        self._size = int(np.prod(prior.family.array_shape))
        self.names: list[str] = []
        self.sizes: list[int] = []
        self.parents: list[str] = []
        self._others: list[tuple[str, str, tuple[int, ...]]] = []
        self._local: list[Any] = []
        self._global: Any = None
        self.longest = ("none", 0)
        whole = build(view, [view.natural], threshold=_NOTHING_LOCAL, initial_point=here, check=False)
        self.graph = whole.graph
        if not whole.graph.terms:
            return
        level = max(3, min(1000, whole.longest_term()[1])) if threshold is None else threshold
        # The check evaluates PyMC's own graphs, in which w[z] for a table of topics is N x V numbers.
        check = check and _largest(whole) <= _MOST_NUMBERS
        try:
            fact = build(view, [view.natural], threshold=level, initial_point=here, check=check)
        except FactorisationError:
            if subsampled:
                raise
            fact = whole
        self.longest = whole.longest_term()
        self._compile(fact, view.natural.name)

    def _compile(self, fact: Factorisation, own: str) -> None:
        natural = fact.graph.values[own]
        self.graph = fact.graph
        flat = pt.vector(own, shape=(self._size,))
        graphs = without_logs_of_exponentials([t.rows for t in fact.locals] + [g for _, g in fact.globals])
        graphs = rebuild([pt.as_tensor(g) for g in graphs], {natural: flat.reshape(natural.type.shape)})
        moving = [flat, *(t.index for t in fact.locals)]
        self.given, graphs = extract_given(graphs, moving, fact.threshold)
        n_local = len(fact.locals)
        self.names = [t.name for t in fact.locals] + [name for name, _ in fact.globals]
        self.sizes = [t.size for t in fact.locals]
        local = [
            self._derivative(name, rows, flat)
            for name, rows in zip(self.names, graphs[:n_local], strict=False)
        ]
        rest = [
            self._derivative(name, g, flat)
            for name, g in zip(self.names[n_local:], graphs[n_local:], strict=True)
        ]
        used = set(ancestors([*local, *rest, *(given.source for given in self.given)]))
        others = [(n, v) for n, v in fact.graph.values.items() if v is not natural and v in used]
        self._others = [(n, v.type.dtype, v.type.shape) for n, v in others]
        self.parents = [n for n, _ in others]
        pairs = [
            (leaf.placeholder, np.asarray(value, order="C"))
            for leaf, value in zip(fact.leaves, fact.leaf_values, strict=True)
            if leaf.placeholder in used
        ]
        self._leaves = tuple(value for _, value in pairs)
        inputs = [*(v for _, v in others), *(leaf for leaf, _ in pairs)]
        args = [*inputs, *(given.placeholder for given in self.given)]
        self._given = _compiled(inputs, [given.source for given in self.given]) if self.given else None
        self._local = [
            _compiled([flat, t.index, *args], [g]) for t, g in zip(fact.locals, local, strict=True)
        ]
        self._global = _compiled([flat, *args], [pt.stack(rest)]) if rest else None

    @staticmethod
    def _derivative(name: str, graph: Variable, natural: Variable) -> Variable:
        try:
            result = grad(stable(graph).sum(), natural, disconnected_inputs="ignore")
        except NO_GRADIENT as error:
            raise ValueError(
                f"The term {name!r} cannot be differentiated, which this step needs: {error}. Use another "
                "step method for the variable, such as pm.Slice."
            ) from None
        return pt.as_tensor(result).astype("float64").flatten()

    @property
    def n_local(self) -> int:
        """Number of local terms N."""
        return sum(self.sizes)

    def args(self, point: Mapping[str, Any]) -> tuple[Any, ...]:
        """Arguments of the functions besides natural values and rows: other variables, data."""
        if not self.names:
            return ()
        others = []
        for name, dtype, shape in self._others:
            value = np.asarray(point[name], dtype, order="C")
            if value.shape != shape:  # machine code does not look
                raise ValueError(f"The value of {name} must have shape {shape}, got {value.shape}.")
            others.append(value)
        args = (*others, *self._leaves)
        return (*args, *self._given(*args)) if self._given is not None else args

    def rows(self, term: int, natural: Array, index: Index, args: tuple[Any, ...]) -> Array:
        """Sum over some rows of a local term; flat."""
        return self._local[term](natural, index, *args)[0]

    def short(self, natural: Array, args: tuple[Any, ...]) -> Array:
        """Derivatives of the terms that are not local, a row for each term."""
        if self._global is None:
            return np.zeros((0, self._size))
        return self._global(natural, *args)[0]

    def terms(self, natural: Array, args: tuple[Any, ...]) -> Array:
        """Derivatives of each term in full, in the order of `names`; (terms, size)."""
        result = np.zeros((len(self.names), self._size))
        for k, size in enumerate(self.sizes):
            for start in range(0, size, CHUNK):
                result[k] += self.rows(k, natural, np.arange(start, min(start + CHUNK, size)), args)
        result[len(self.sizes) :] = self.short(natural, args)
        return result


def _largest(factorisation: Factorisation) -> int:
    """Size of the largest intermediate result of any term."""
    shapes = [getattr(v.type, "shape", ()) for v in ancestors(factorisation.graph.terms.values())]
    return max((math.prod(shape) for shape in shapes if None not in shape), default=0)


def _compiled(inputs: list[Variable], outputs: list[Variable]) -> Any:
    backend = current_backend()
    return backend.entry(backend.function(inputs, outputs))
