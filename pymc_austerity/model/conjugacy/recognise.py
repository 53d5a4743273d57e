"""What is known of the likelihood of one variable: derivatives, its form, and sufficient statistics.

PyMC's graphs are functions of transformed values with Jacobians. `LikelihoodView` puts other value variables
in their place: log theta, log w, or log odds. Then s_j = w_j dl/dw_j is a plain derivative, which neither
overflows nor divides zero by zero where w_j is zero in floating-point numbers.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
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

from pymc_austerity.exceptions import FactorisationError, SelfCheckError
from pymc_austerity.model.compile.backend import current_backend
from pymc_austerity.model.compile.target import CompiledTarget
from pymc_austerity.model.conjugacy.families import GammaPrior, LikelihoodForm, Totals
from pymc_austerity.model.factorisation import Factorisation, some_rows
from pymc_austerity.model.factorise import build
from pymc_austerity.model.graph.checks import is_elemwise
from pymc_austerity.model.graph.leaves import extract_given
from pymc_austerity.model.graph.rewrite import INTERPRETED, rebuild, stable
from pymc_austerity.model.refusal import NO_GRADIENT
from pymc_austerity.model.starting_point import dispersed_points, jittered_point
from pymc_austerity.target import Array, Index

# No vector is so long: everything is evaluated in full.
_NOTHING_LOCAL = 2**62
# Of larger intermediate results the self-check would take too much memory.
_MOST_NUMBERS = 50_000_000
# Operations that select and arrange elements.
_SELECTIONS = (Subtensor, AdvancedSubtensor, DimShuffle, Reshape, SpecifyShape)
_SEED = 2018
# Random points at which a form is verified, for each of several values of the other variables, which are
# moved by up to these distances.
_N_POINTS = 3
_DISTANCES = (0.1, 1.0, 3.0)
_TOLERANCE = 1e-7

# Priors are compared at this many pairs of points, the first with the other variables where they are, and
# the second with them moved by up to the distance.
_PRIOR_SEED = 2019
_PRIOR_DISTANCES = (0.0, 0.3)
_PRIOR_TOLERANCE = 1e-6


# Derivatives by natural values, compiled: summed over some rows, or over all --------------------------------


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
        self._shape = (family.n_rows, family.width)
        table = pt.matrix(view.natural.name, shape=self._shape)
        graphs = without_logs_of_exponentials([t.rows for t in fact.locals] + [g for _, g in fact.globals])
        graphs = rebuild([pt.as_tensor(g) for g in graphs], {natural: table.reshape(natural.type.shape)})
        self.given, graphs = extract_given(graphs, [table, *(t.index for t in fact.locals)], fact.threshold)
        slopes = [self._derivative(name, g, table) for name, g in zip(self.names, graphs, strict=True)]
        placeholders = [leaf.placeholder for leaf in fact.leaves]
        data = dict(zip(placeholders, fact.leaf_values, strict=True))
        args = self._take_arguments(slopes, data, [view.natural.name])
        self._local = [
            self._compiled([table, t.index, *args], g) for t, g in zip(fact.locals, slopes, strict=False)
        ]
        rest = slopes[len(self.sizes) :]
        self._rest = self._compiled([table, *args], pt.stack(rest)) if rest else None

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
        return pt.as_tensor(result).astype("float64")

    @property
    def n_local(self) -> int:
        """Number of local terms N."""
        return sum(self.sizes)

    def rows(self, term: int, natural: Array, args: tuple[Any, ...], index: Index) -> Array:
        """Sum over some rows of a local term."""
        return self._local[term](natural, index, *args)[0]

    def short(self, natural: Array, args: tuple[Any, ...]) -> Array:
        """Derivatives of the terms that are not local, a table for each term."""
        return np.zeros((0, *self._shape)) if self._rest is None else self._rest(natural, *args)[0]

    def terms(self, natural: Array, args: tuple[Any, ...]) -> Array:
        """Derivatives of each term in full, in the order of `names`; (terms, n_rows, width)."""
        result = np.zeros((len(self.names), *self._shape))
        for k, size in enumerate(self.sizes):
            for some in some_rows(size):
                result[k] += self.rows(k, natural, args, some)
        result[len(self.sizes) :] = self.short(natural, args)
        return result


def _largest(factorisation: Factorisation) -> int:
    """Size of the largest intermediate result of any term."""
    shapes = [getattr(v.type, "shape", ()) for v in ancestors(factorisation.graph.terms.values())]
    return max((math.prod(shape) for shape in shapes if None not in shape), default=0)


# Sufficient statistics: of all the data, or of some rows ----------------------------------------------------


class Place(NamedTuple):
    """A point at which derivatives of the likelihood are taken."""

    references: tuple[Array, ...]  # Natural values of the variable
    args: tuple[Any, ...]  # Other variables and data, as `LikelihoodGradient` takes them


class Groups(NamedTuple):
    """Statistics of parts of a minibatch."""

    totals: Totals  # Of each group, unscaled; its first axis has one entry for each group
    sizes: npt.NDArray[np.int64]  # Rows of each group
    n_rows: int  # N, rows of the local term


@dataclass(eq=False)
class Conjugacy:
    """The likelihood of one variable: its form, and sufficient statistics, or derivatives.

    It has size N, but for its pickles, which leave the derivatives out.
    """

    prior: GammaPrior
    gradient: LikelihoodGradient
    batch_sizes: list[int] | None  # Rows of each local term in a minibatch; None: all are read
    form: LikelihoodForm
    references: tuple[Array, ...]  # Natural values at which G is taken; none if frozen
    nonlinear: tuple[str, ...] = ()  # Names of terms that are of no conjugate form
    # Over all data, and of the terms that are not subsampled, if they depend on no other variable
    totals: Totals | None = None
    short_totals: Totals | None = None
    shift: float = 0.0  # M of a frozen drift

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "gradient": None}

    @property
    def n_read(self) -> int:
        """Rows that `full` reads."""
        return self.gradient.n_local if self.totals is None else 0

    def place(self, log_theta: Array, point: Mapping[str, Any]) -> Place:
        """Where derivatives are taken when the processes are at `log_theta`.

        Rates: near the present theta, which may be far from where the step was built, little is lost.
        """
        references = self.references
        if self.form == "frozen" or (self.form == "rate" and self.totals is None):
            natural = self.prior.family.natural(log_theta)
            references = (natural,) if self.form == "frozen" else self.prior.family.reference_pair(natural)
        return Place(references, self.gradient.args(point))

    def full(self, place: Place) -> Totals:
        """Statistics of all the data."""
        known = self.totals
        return self._sums(place, lambda *at: self.gradient.terms(*at).sum(axis=0)) if known is None else known

    def short(self, place: Place) -> Totals:
        """Statistics of the terms that are not subsampled."""
        known = self.short_totals
        return self._sums(place, lambda *at: self.gradient.short(*at).sum(axis=0)) if known is None else known

    def groups(self, term: int, place: Place, index: Any, sizes: Any) -> Groups:
        """Statistics of consecutive groups, of these sizes, of the rows `index` of a local term."""
        rows = [index[end - size : end] for size, end in zip(sizes, np.cumsum(sizes), strict=True)]

        def derivatives(reference: Array, args: tuple[Any, ...]) -> Array:
            return np.array([self.gradient.rows(term, reference, args, some) for some in rows])

        return Groups(self._sums(place, derivatives), sizes, self.gradient.sizes[term])

    def _sums(self, place: Place, derivatives: Callable[[Array, tuple[Any, ...]], Array]) -> Totals:
        """Statistics from some derivatives, which are taken at the references of a place."""
        found = [derivatives(reference, place.args) for reference in place.references]
        return self.prior.family.statistics(self.form, found, place.references)


# The form, found by numbers ---------------------------------------------------------------------------------


def analyse(
    model: pm.Model,
    prior: GammaPrior,
    gradient: LikelihoodGradient,
    batch_sizes: list[int] | None,
    point: Mapping[str, Any],
) -> Conjugacy:
    """Find the form of the likelihood in one variable, whose prior is compared with PyMC's.

    `ValueError` names the term whose derivative is not a number at `point`.
    """
    require_prior(model, prior, point)
    family, rng = prior.family, np.random.default_rng(_SEED)
    here = gradient.args(point)
    others = [here, *_elsewhere(model, gradient, point, rng)]
    start = family.natural(family.log_gammas(point[prior.value_name]))

    def total(natural: Array) -> Array:
        return gradient.terms(natural, here).sum(axis=0)

    wrong: list[str] = []
    with np.errstate(all="ignore"):
        for form in family.forms:
            references = family.references(form, start, total, prior.parameters(point))
            found = Conjugacy(prior, gradient, batch_sizes, form, references)
            wrong, flat = differing_terms(found, references, others, rng)
            # Terms without any derivative at all points prove nothing: they are of no form.
            wrong = wrong or flat
            if wrong:
                continue
            # That statistics do not change from one point to another would prove nothing.
            if not gradient.other_names:
                place = Place(references, here)
                found.totals, found.short_totals = found.full(place), found.short(place)
            return found
        derivatives = gradient.terms(start, here)
    for name, derivative in zip(gradient.names, derivatives, strict=True):
        if not np.all(np.isfinite(derivative)):
            raise ValueError(
                f"The derivative of the term {name!r} by {prior.name!r} is not finite at the initial point. "
                "Give the step an initial_point= at which the log density is smooth."
            )
    n_terms = gradient.n_local + len(gradient.names) - len(gradient.sizes)
    shift = family.default_shift(derivatives, n_terms)
    nonlinear = tuple(dict.fromkeys(wrong))
    return Conjugacy(prior, gradient, batch_sizes, "frozen", (), nonlinear, shift=shift)


@np.errstate(all="ignore")
def require_prior(model: pm.Model, prior: GammaPrior, point: Mapping[str, Any]) -> None:
    """Compare the prior that a family states with PyMC's: changes of the log density between random points.

    `SelfCheckError` names the variable and its family, if they differ in a row.
    """
    family, rng = prior.family, np.random.default_rng(_PRIOR_SEED)
    graph = model.logp(vars=[prior.rv], sum=False)[0]
    used = set(ancestors([graph]))
    inputs = [v for v in model.value_vars if v in used]
    function = pm.compile(inputs, graph, mode=INTERPRETED)
    for distance in _PRIOR_DISTANCES:
        at = jittered_point(point, rng, distance, ())
        try:
            alpha, rate = prior.parameters(at)
        except ValueError:
            continue  # moved out of the support
        ours, theirs = [], []
        for _ in range(2):
            log_theta = np.log(alpha) - np.log(rate) + rng.uniform(-1.0, 1.0, alpha.shape)
            at[prior.value_name] = family.value(log_theta)
            ours.append(family.log_density(log_theta, alpha, rate))
            theirs.append(np.reshape(function(*(at[v.name] for v in inputs)), np.shape(ours[-1])))
        change, expected = ours[1] - ours[0], theirs[1] - theirs[0]
        scale = 1.0 + np.abs([*ours, *theirs]).max(axis=0)
        wrong = np.flatnonzero(~(np.abs(change - expected) <= _PRIOR_TOLERANCE * scale))
        if len(wrong):
            raise SelfCheckError(
                f"Self-check failed for the prior of {prior.name!r}: between two points its log density "
                f"changes by {float(expected[wrong[0]]):.6g}, and that of the gamma variables of the family "
                f"{type(family).__name__!r} by {float(change[wrong[0]]):.6g}. This is a defect of the "
                f"family, or it does not take such parameters. Give {prior.name!r} to another step method, "
                "such as pm.NUTS."
            )


@np.errstate(all="ignore")
def differing_terms(
    conjugacy: Conjugacy,
    references: tuple[Array, ...],
    others: Sequence[tuple[Any, ...]],
    rng: np.random.Generator,
) -> tuple[list[str], list[str]]:
    """Terms whose derivatives differ from the form's at random points, and those without any.

    `others` are arguments of the derivatives, for several values of the other variables.
    """
    family, form, gradient = conjugacy.prior.family, conjugacy.form, conjugacy.gradient
    wrong: list[str] = []
    seen = np.zeros(len(gradient.names), dtype=bool)
    for k, args in enumerate(others):
        at = [gradient.terms(r, args) for r in references]
        if k > 0 and not np.all(np.isfinite(at)):
            continue  # out of the support, perhaps
        seen |= np.any(at, axis=(0, 2, 3))
        found = family.statistics(form, at, references)
        scale = np.abs(found.s) + np.abs(found.t) * family.weights(references[0])
        scale = scale.max(axis=(-1, -2), initial=0.0)[..., None, None] + 1e-300
        for _ in range(_N_POINTS):
            natural = family.random_natural(references[0], rng)
            residuals = family.residuals(form, found, gradient.terms(natural, args), natural)
            right = np.abs(residuals) <= _TOLERANCE * scale
            wrong += [n for n, ok in zip(gradient.names, right.all(axis=(1, 2)), strict=True) if not ok]
        if wrong:
            break
    return wrong, [name for name, known in zip(gradient.names, seen, strict=True) if not known]


def _elsewhere(
    model: pm.Model, gradient: LikelihoodGradient, point: Mapping[str, Any], rng: np.random.Generator
) -> list[tuple[Any, ...]]:
    """Arguments of the derivatives for other values of the other variables.

    Discrete variables are drawn from their prior: where a chain begins they are often all alike.
    """
    names = gradient.other_names
    if not names:
        return []
    drawn = [dict(point) for _ in _DISTANCES]
    for name in names:
        if np.asarray(point[name]).dtype.kind != "f":
            for at, one in zip(drawn, dispersed_points(model, point, [name], len(drawn), rng), strict=True):
                at[name] = one[name]
    moved = [jittered_point(at, rng, far, ()) for at, far in zip(drawn, _DISTANCES, strict=True)]
    return [gradient.args(at) for at in moved]
