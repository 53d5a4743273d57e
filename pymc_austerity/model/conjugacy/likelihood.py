"""The terms of a model that contain a gamma-type variable, but its prior, as functions of its logarithm.

PyMC's graphs are functions of transformed values with Jacobians. `LikelihoodView` puts other value variables
in their place: log theta, log w, or log odds. Then s_j = w_j dl/dw_j is a plain derivative, which neither
overflows nor divides zero by zero where w_j is zero in floating-point numbers.
"""

from collections.abc import Sequence
from typing import Any

import pymc as pm
import pytensor.scalar as ps
import pytensor.tensor as pt
from pymc.logprob.transforms import Transform
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import toposort
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.shape import Reshape, SpecifyShape
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor

from pymc_austerity.model.conjugacy.priors import GammaPrior
from pymc_austerity.model.graph.checks import is_elemwise
from pymc_austerity.model.graph.rewrite import rebuild

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

    Parameters
    ----------
    model : pymc.Model
    prior : GammaPrior

    Attributes
    ----------
    natural : TensorVariable
        The value variable, named ``<variable>_natural__``. Those of other variables are the model's own.
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
    forms: dict[Variable, Variable | None] = {}
    memo: dict[Variable, Variable] = {}
    for node in toposort(list(outputs)):
        out = node.outputs[0]
        if is_elemwise(out, ps.Log) and (form := _log_form(node.inputs[0], forms)) is not None:
            memo[out] = form
    # Forms contain each other where logarithms are nested; outermost last.
    return rebuild(outputs, memo) if memo else list(outputs)


def _log_form(var: Variable, forms: dict[Variable, Variable | None]) -> Variable | None:
    """The logarithm of `var` without a logarithm of an exponential, or None if there is no such form."""
    if var not in forms:
        forms[var] = _new_log_form(var, forms)
    return forms[var]


def _new_log_form(var: Variable, forms: dict[Variable, Variable | None]) -> Variable | None:
    if var.owner is None:
        return None
    inputs = var.owner.inputs
    if is_elemwise(var, ps.Exp):
        return inputs[0]
    if isinstance(var.owner.op, _SELECTIONS):
        inside = _log_form(inputs[0], forms)
        return None if inside is None else var.owner.op.make_node(inside, *inputs[1:]).outputs[0]
    if is_elemwise(var, ps.Mul, ps.TrueDiv):
        logs = [_log_form(x, forms) for x in inputs]
        if all(x is None for x in logs):
            return None
        full = [pt.log(x) if form is None else form for x, form in zip(inputs, logs, strict=True)]
        return full[0] - full[1] if is_elemwise(var, ps.TrueDiv) else pt.add(*full)
    return None
