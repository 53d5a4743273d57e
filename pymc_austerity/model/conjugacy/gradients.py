"""Derivatives of the likelihood by natural values, compiled: summed over some rows, or over all.

PyMC's graphs are functions of transformed values with Jacobians. `LikelihoodView` puts other value variables
in their place: log theta, log w, or log odds. Then s_j = w_j dl/dw_j is a plain derivative, which neither
overflows nor divides zero by zero where w_j is zero in floating-point numbers.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pymc as pm
import pytensor.scalar as ps
import pytensor.tensor as pt
from pymc.logprob.transforms import Transform
from pytensor.gradient import grad
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors, toposort
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.shape import Reshape, SpecifyShape
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor

from pymc_austerity.exceptions import FactorisationError
from pymc_austerity.model.compile.backend import current_backend
from pymc_austerity.model.compile.target import CompiledTarget
from pymc_austerity.model.conjugacy.families import GammaPrior
from pymc_austerity.model.factorisation import CHUNK, Factorisation
from pymc_austerity.model.factorise import build
from pymc_austerity.model.graph.checks import is_elemwise
from pymc_austerity.model.graph.leaves import extract_given
from pymc_austerity.model.graph.rewrite import rebuild, stable
from pymc_austerity.model.refusal import NO_GRADIENT
from pymc_austerity.target import Array, Index

# No vector is so long: everything is evaluated in full.
_NOTHING_LOCAL = 2**62
# Of larger intermediate results the self-check would take too much memory.
_MOST_NUMBERS = 50_000_000
# Operations that select and arrange elements.
_SELECTIONS = (Subtensor, AdvancedSubtensor, DimShuffle, Reshape, SpecifyShape)


class _FromNatural(Transform):
    """Transform from the natural values of a variable to the variable. Nobody asks for its Jacobian."""

    name = "natural"

    def __init__(self, prior: GammaPrior) -> None:
        self._family = prior.family
        self.ndim_supp = prior.rv.owner.op.ndim_supp

    def forward(self, value: Variable, *inputs: Variable) -> Variable:
        raise NotImplementedError

    def backward(self, value: Variable, *inputs: Variable) -> Variable:
        return self._family.from_natural(value)

    def log_jac_det(self, value: Variable, *inputs: Variable) -> Variable:
        """Zero; PyMC asks for it in a term that is not used."""
        zeros = pt.zeros_like(value)
        return zeros.sum(axis=-1) if self.ndim_supp else zeros


class LikelihoodView(pm.Model):
    """A view of a model without the prior of one variable, as a function of its natural values.

    The value variable `natural` is named ``<variable>_natural__``. Those of other variables are the model's
    own.
    """

    def __init__(self, model: pm.Model, prior: GammaPrior) -> None:
        self.__dict__.update(model.__dict__)  # instead of pm.Model.__init__, which makes an empty model
        self._rv = prior.rv
        self.natural = pt.tensor(f"{prior.name}_natural__", dtype="float64", shape=prior.family.array_shape)
        self.rvs_to_values = {**model.rvs_to_values, prior.rv: self.natural}
        self.values_to_rvs = {value: rv for rv, value in self.rvs_to_values.items()}
        self.rvs_to_transforms = {**model.rvs_to_transforms, prior.rv: _FromNatural(prior)}
        # The step keeps the variable where it is valid, and derivatives do not see the checks.
        self.check_bounds = False

    def logp(self, vars: Any = None, jacobian: bool = True, sum: bool = True) -> Any:
        """Every term in the order of PyMC, with a zero for the prior of the variable."""
        every = [*self.free_RVs, *self.observed_RVs, *self.potentials]
        others = [rv for rv in every if rv is not self._rv]
        terms = iter(super().logp(others, jacobian=jacobian, sum=False) if others else [])
        return [pt.constant(0.0) if rv is self._rv else next(terms) for rv in every]


def without_logs_of_exponentials(outputs: Sequence[Variable]) -> list[Variable]:
    """Write log(exp(x)[i]), log(c exp(x)) and the like as x[i], log(c) + x.

    PyTensor's rewrites know log(exp(x)) only. Elsewhere, a component that is zero in floating-point numbers
    becomes log(0), and its derivative 0 / 0.
    """
    forms: dict[Variable, Variable] = {}  # Logarithms, of what has one without that of an exponential
    memo: dict[Variable, Variable] = {}
    for node in toposort(list(outputs)):
        out = node.outputs[0]
        if is_elemwise(out, ps.Log) and node.inputs[0] in forms:
            memo[out] = forms[node.inputs[0]]
        form = _log_form(out, forms)
        if form is not None:
            forms[out] = form
    # Forms contain each other where logarithms are nested; outermost last.
    return rebuild(outputs, memo) if memo else list(outputs)


def _log_form(var: Variable, forms: dict[Variable, Variable]) -> Variable | None:
    """The logarithm of `var` without a logarithm of an exponential, or None if there is no such form."""
    inputs = var.owner.inputs
    if is_elemwise(var, ps.Exp):
        return inputs[0]
    if isinstance(var.owner.op, _SELECTIONS) and inputs[0] in forms:
        return var.owner.op.make_node(forms[inputs[0]], *inputs[1:]).outputs[0]
    if is_elemwise(var, ps.Mul, ps.TrueDiv) and any(x in forms for x in inputs):
        full = [forms[x] if x in forms else pt.log(x) for x in inputs]
        return full[0] - full[1] if is_elemwise(var, ps.TrueDiv) else pt.add(*full)
    return None


class LikelihoodGradient(CompiledTarget):
    """Derivatives of all terms that contain one variable, but for its prior.

    Vectors of `threshold` rows are local terms; None: up to 1000, the longest vectors are. If `subsampled`,
    rows must be had one by one: a `FactorisationError` names the term where they cannot. `check` compares the
    rows with PyMC's once, if that takes no more than some hundred megabytes.
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
        here = {name: value for name, value in point.items() if name != prior.value_name}
        family = prior.family
        middle = family.natural(np.zeros((family.n_rows, family.n_parts)))
        here[view.natural.name] = middle.reshape(family.array_shape)
        whole = build(view, [view.natural], threshold=_NOTHING_LOCAL, initial_point=here, check=False)
        self.longest = whole.longest_term()  # Name and length of the longest vector in any term
        level = max(3, min(1000, self.longest[1])) if threshold is None else threshold
        # The check evaluates PyMC's own graphs, in which w[z] for a table of topics is N x V numbers.
        check = check and _largest(whole) <= _MOST_NUMBERS
        try:
            fact = build(view, [view.natural], threshold=level, initial_point=here, check=check)
        except FactorisationError:
            if subsampled:
                raise
            fact = whole
        self.backend = current_backend()
        self.graph, self.values = fact.graph, fact.graph.values
        # Names of the local terms, then of the others; rows of each local term.
        self.names = [t.name for t in fact.locals] + [name for name, _ in fact.globals]
        self.sizes = [t.size for t in fact.locals]
        natural = self.values[view.natural.name]
        self._size = int(np.prod(prior.family.array_shape))
        flat = pt.vector(view.natural.name, shape=(self._size,))
        graphs = without_logs_of_exponentials([t.rows for t in fact.locals] + [g for _, g in fact.globals])
        graphs = rebuild([pt.as_tensor(g) for g in graphs], {natural: flat.reshape(natural.type.shape)})
        self.given, graphs = extract_given(graphs, [flat, *(t.index for t in fact.locals)], fact.threshold)
        slopes = [self._derivative(name, g, flat) for name, g in zip(self.names, graphs, strict=True)]
        placeholders = [leaf.placeholder for leaf in fact.leaves]
        data = dict(zip(placeholders, fact.leaf_values, strict=True))
        args = self._take_arguments(slopes, data, [view.natural.name])
        self._local = [
            self._compiled([flat, t.index, *args], g) for t, g in zip(fact.locals, slopes, strict=False)
        ]
        rest = slopes[len(self.sizes) :]
        self._rest = self._compiled([flat, *args], pt.stack(rest)) if rest else None

    def _compiled(self, inputs: list[Variable], output: Variable) -> Any:
        return self.backend.entry(self.backend.function(inputs, [output]))

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

    def rows(self, term: int, natural: Array, index: Index, args: tuple[Any, ...]) -> Array:
        """Sum over some rows of a local term; flat."""
        return self._local[term](natural, index, *args)[0]

    def short(self, natural: Array, args: tuple[Any, ...]) -> Array:
        """Derivatives of the terms that are not local, a row for each term."""
        return np.zeros((0, self._size)) if self._rest is None else self._rest(natural, *args)[0]

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
