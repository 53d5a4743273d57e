"""Rules for the priors of effects: which variables of a model are normal given few numbers.

A variable w with a rule is w = m + S z: m its location, which may be a linear function of other such
variables, S a product of scales and matrices that are made of numbers, and z standard normal (or of another
standard distribution, whose excess over the normal one is known). S is a sequence of `Step`; nothing is
divided by it. w - m is the *innovation* of the variable. A rule is a function of the operation that draws the
variable; a new one is a function with the formula in its docstring and a line in `RULES`.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor.scalar as ps
import pytensor.tensor as pt
import scipy
from pymc.dims.distributions import transforms as labelled
from pymc.distributions.continuous import FlatRV
from pymc.distributions.multivariate import CARRV, ICARRV, ZeroSumNormalRV
from pymc.distributions.timeseries import AutoRegressiveRV, RandomWalkRV
from pymc.distributions.transforms import ZeroSumTransform
from pymc.logprob.transforms import LogOddsTransform, LogTransform
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.rewriting.utils import rewrite_graph
from pytensor.graph.traversal import ancestors, graph_inputs, toposort
from pytensor.tensor.random.basic import (
    BetaRV,
    CauchyRV,
    ExponentialRV,
    GammaRV,
    InvGammaRV,
    LaplaceRV,
    LogisticRV,
    LogNormalRV,
    MvNormalRV,
    NormalRV,
    StudentTRV,
)
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.subtensor import AdvancedIncSubtensor, IncSubtensor
from pytensor.xtensor.shape import Transpose
from pytensor.xtensor.type import XTensorType
from pytensor.xtensor.vectorization import XRV
from scipy import sparse

from pymc_austerity.model.factorisation import FEWEST_GROUPS, Factorisation
from pymc_austerity.model.graph.checks import is_elemwise
from pymc_austerity.model.graph.random_variables import in_values
from pymc_austerity.model.graph.rewrite import INTERPRETED, depends_on, merged, narrowed, rebuild


class NoField(Exception):  # noqa: N818 - it is caught, and said
    """Why a likelihood is no field, in the words of the model."""


class GivenUp(Exception):  # noqa: N818 - the search begins again
    """A variable that cannot be an effect, as it multiplies others or moves their scales."""


class Step(NamedTuple):
    """One factor of a linear map, in the order in which factors are applied.

    ``scale``: element by element, times a graph. ``left``, ``right``: a matrix product from that side; from
    the right also with one matrix for each row, (rows, k, k).
    ``sum``: cumulative, along an axis. ``autoregression``: x_t = z_t + sum_k rho_k x_(t - k) along the last
    axis, the graph being rho. ``zero_sum``: an orthonormal map of n - 1 numbers to n that sum to zero along
    an axis. ``placed``: what the operation that made the graph does to its input.
    """

    kind: str
    graph: Variable | None = None
    axis: int = 0


def factors(steps: Iterable[Step]) -> list[Variable]:
    """What steps multiply by."""
    return [step.graph for step in steps if step.graph is not None and step.kind != "placed"]


def applied(var: Variable, steps: Iterable[Step]) -> Variable:
    """A value to which the steps have been applied."""
    for step in steps:
        if step.kind == "scale":
            var = var * step.graph
        elif step.kind == "left":
            var = pt.dot(step.graph, var)
        elif step.kind == "right":
            assert step.graph is not None
            is_by_row = step.graph.type.ndim > 2
            var = (
                pt.matmul(var[..., None, :], step.graph)[..., 0, :] if is_by_row else pt.dot(var, step.graph)
            )
        elif step.kind == "sum":
            var = pt.cumsum(var, axis=step.axis)
        elif step.kind == "zero_sum":
            var = ZeroSumTransform.extend_axis(var, step.axis)
        else:
            assert step.graph is not None
            var = step.graph.owner.op(var)
    return var


class Family(NamedTuple):
    """A standard distribution, of location 0 and scale 1."""

    name: str  # As PyMC calls it
    distribution: Callable[[float], Any]  # callable: ``(shape) -> ``, as SciPy has it
    degrees: float = 0.0  # Degrees of freedom that the name fixes; 0 for none


FAMILIES: dict[type, Family] = {
    NormalRV: Family("Normal", lambda shape: scipy.stats.norm()),
    StudentTRV: Family("StudentT", lambda shape: scipy.stats.t(shape)),
    CauchyRV: Family("Cauchy", lambda shape: scipy.stats.t(1.0), 1.0),
    LaplaceRV: Family("Laplace", lambda shape: scipy.stats.laplace()),
}
FAMILIES[LogNormalRV] = FAMILIES[NormalRV]  # Of the logarithm, which is what PyMC samples


class NearlyNormal(NamedTuple):
    """The log density a v - b K(v) + c of v = m + s z; K is exp(v), exp(-v) or log(1 + exp(v)).

    The variable is w = v, or l + t v.
    """

    kind: int  # Which K: 0, 1 or 2
    slope: Variable  # a
    amount: Variable  # b
    log_normaliser: Variable  # c
    mean: Variable  # m
    variance: Variable  # s^2
    location: Variable = pt.constant(0.0)  # l
    unit: Variable = pt.constant(1.0)  # t


@dataclass(frozen=True, eq=False)
class Innovation:
    """What a variable w differs from its location: w - m = S z."""

    value: Variable  # w, a value variable of the model
    location: Variable | None  # m, a function of value variables; None for zero
    steps: tuple[Step, ...]  # S
    family: Family = FAMILIES[NormalRV]  # Of z
    shape: Variable | None = None  # Its degrees of freedom, if the family has them
    # R = sum_k phi_k M_k, the precision of w, in the place of S; None for ones everywhere. phi_k are
    # functions of value variables.
    precision: tuple[tuple[Variable, Any], ...] = ()
    matched: NearlyNormal | None = None  # What z is where it is normal only nearly
    # Of w, in PyMC's words: the variable and its distribution. `Priors.rule` says them.
    variable: str = ""
    kind: str = ""

    @property
    def name(self) -> str:
        """Name of the value variable."""
        return str(self.value.name)

    @property
    def graph(self) -> Variable:
        """W - m."""
        return self.value if self.location is None else self.value - self.location


class Drawn(NamedTuple):
    """A variable whose prior is looked at."""

    value: Variable
    op: Any
    parameters: list[Variable]  # Of its distribution, functions of value variables
    node: Any
    typed: Callable[[Any], list[Variable]]  # Makes graphs of the model graphs of value variables


def _elements(drawn: Drawn) -> Innovation:
    """``w = m + s z``, element by element: normal, log-normal, Student's t, Cauchy, Laplace."""
    family = FAMILIES[type(drawn.op)]
    *shapes, location, scale = drawn.parameters
    shape = shapes[0] if shapes else pt.constant(family.degrees, dtype="float64")
    return Innovation(drawn.value, location, (Step("scale", scale),), family, shape)


def _log_gamma(drawn: Drawn) -> Innovation:
    """``v = log u`` of u ~ Gamma(a, b): a v - b exp(v), mean digamma(a) - log b, variance trigamma(a)."""
    a, scale = drawn.parameters
    constant = -pt.gammaln(a) - a * pt.log(scale)
    return _matched(drawn, 0, a, 1.0 / scale, constant, _digamma(a) + pt.log(scale), _trigamma(a))


def _log_exponential(drawn: Drawn) -> Innovation:
    """``v = log u`` of u ~ Exponential(1 / scale), as a gamma variable of shape 1."""
    (scale,) = drawn.parameters
    mean, variance = pt.log(scale) - np.euler_gamma, pt.constant(np.pi**2 / 6.0)
    return _matched(drawn, 0, pt.constant(1.0), 1.0 / scale, -pt.log(scale), mean, variance)


def _log_inverse_gamma(drawn: Drawn) -> Innovation:
    """``v = log u`` of u ~ InverseGamma(a, b): -a v - b exp(-v), mean log b - digamma(a)."""
    a, b = drawn.parameters
    constant = a * pt.log(b) - pt.gammaln(a)
    return _matched(drawn, 1, -a, b, constant, pt.log(b) - _digamma(a), _trigamma(a))


def _logit_beta(drawn: Drawn) -> Innovation:
    """``v = logit u`` of u ~ Beta(a, b): a v - (a + b) log(1 + exp(v)), mean digamma(a) - digamma(b)."""
    a, b = drawn.parameters
    constant = pt.gammaln(a + b) - pt.gammaln(a) - pt.gammaln(b)
    variance = _trigamma(a) + _trigamma(b)
    return _matched(drawn, 2, a, a + b, constant, _digamma(a) - _digamma(b), variance)


def _digamma(a: Variable) -> Variable:
    """Digamma to four digits, by its series: the excess has what a mean that is nearly right leaves."""
    x = a + 2.0
    return pt.log(x) - 0.5 / x - x**-2.0 / 12.0 + x**-4.0 / 120.0 - 1.0 / a - 1.0 / (a + 1.0)


def _trigamma(a: Variable) -> Variable:
    """Trigamma, the derivative of this, to four digits."""
    x = a + 2.0
    return a**-2.0 + (a + 1.0) ** -2.0 + 1.0 / x + 0.5 * x**-2.0 + x**-3.0 / 6.0 - x**-5.0 / 30.0


def _logistic(drawn: Drawn) -> Innovation:
    """``w = l + t v`` with the log density v - 2 log(1 + exp(v)) of v, whose variance is pi^2 / 3."""
    location, scale = drawn.parameters
    one, zero, variance = (pt.constant(x) for x in (1.0, 0.0, np.pi**2 / 3.0))
    own = NearlyNormal(2, one, 2.0 * one, zero, zero, variance, location, scale)
    step = Step("scale", scale * np.sqrt(np.pi**2 / 3.0))
    return Innovation(drawn.value, location, (step,), matched=own)


def _matched(drawn: Drawn, kind: int, *graphs: Variable) -> Innovation:
    """Effects that are normal only nearly, with the mean and the variance of v."""
    own = NearlyNormal(kind, *graphs)
    return Innovation(drawn.value, own.mean, (Step("scale", pt.sqrt(own.variance)),), matched=own)


def _vectors(drawn: Drawn) -> Innovation:
    """``w = m + z L'`` with the Cholesky factor L of the covariance of a row, ``cov = L L'``."""
    location, covariance = drawn.parameters
    if any(size != 1 for size in covariance.type.shape[:-2]):
        raise NoField(f"the elements of {drawn.value.name!r} have covariances that differ")
    return Innovation(drawn.value, location, (Step("right", _factor(covariance).T),))


def _zero_sum(drawn: Drawn) -> Innovation:
    """``v = s z``: PyMC samples n - 1 orthonormal coordinates of effects that sum to zero."""
    (scale, *_), value = drawn.typed(drawn.node.inputs[-2:-1] or drawn.node.inputs), drawn.value
    return Innovation(value, None, (Step("scale", scale),))


def _flat(drawn: Drawn) -> Innovation:
    """No prior: the precision is zero."""
    n = int(np.prod(drawn.value.type.shape))
    return Innovation(drawn.value, None, (), precision=((pt.constant(0.0), sparse.csr_array((n, n))),))


def _areas(drawn: Drawn) -> Innovation:
    """ICAR: exp(-w' L w / (2 s^2) - (sum w)^2 / (2 (n s_0)^2)) with the Laplacian L of the graph."""
    weights, scale, sum_sd = drawn.parameters
    w, degrees = _neighbours(drawn, weights)
    scale, sum_sd = (one.flatten()[0].astype("float64") for one in (scale, sum_sd))
    soft, laplacian = (sum_sd * w.shape[0]) ** -2.0, sparse.csr_array(degrees - w)
    return Innovation(drawn.value, None, (), precision=((scale**-2.0, laplacian), (soft, None)))


def _neighbours(drawn: Drawn, weights: Variable) -> tuple[Any, Any]:
    """The matrix W of weights of neighbours, and the diagonal one of their sums."""
    node = weights.owner
    while node is not None and len(node.inputs) == 1:
        weights, node = node.inputs[0], node.inputs[0].owner
    if not isinstance(weights, Constant):
        raise NoField(f"the neighbours of {drawn.value.name!r} are no fixed array, and have no rule")
    data = weights.data
    w = sparse.csr_array(data if sparse.issparse(data) else np.asarray(data, dtype=np.float64))
    return w, sparse.csr_array(sparse.diags_array(np.asarray(w.sum(axis=0)).ravel()))


def _conditional(drawn: Drawn) -> Innovation:
    """CAR: the precision t (D - a W) of w - m, of several series that of each."""
    location, weights, alpha, tau, _ = drawn.parameters
    w, degrees = _neighbours(drawn, weights)
    series = sparse.eye_array(int(np.prod(drawn.value.type.shape[:-1])))
    degrees, w = (sparse.csr_array(sparse.kron(series, one)) for one in (degrees, w))
    t, a = (one.flatten()[0].astype("float64") for one in (tau, alpha))
    return Innovation(drawn.value, location, (), precision=((t, degrees), (-t * a, w)))


def _autoregression(drawn: Drawn) -> Innovation:
    """``w_t = sum_k rho_k w_(t - k) + s z_t``, whose first elements are normal with scales of their own."""
    rhos, scale, first = drawn.node.inputs[:3]
    value, op = drawn.value, drawn.op
    if op.constant_term:
        raise NoField(f"the autoregression {value.name!r} has a constant term, which has no rule")
    if not isinstance(getattr(first.owner, "op", None), NormalRV):
        raise NoField(f"the autoregression {value.name!r} has a start that is not of pm.Normal")
    rho, own, mean, sd = drawn.typed([rhos, scale, *first.owner.op.dist_params(first.owner)])
    if not _is_zero(mean):
        raise NoField(f"the autoregression {value.name!r} has a start that is not at zero")
    p, n = op.ar_order, value.type.shape[-1]
    scales = pt.concatenate([_broadcast(sd, value, p), _broadcast(own, value, n - p)], axis=-1)
    return Innovation(value, None, (Step("scale", scales), Step("autoregression", rho)))


def _walk(drawn: Drawn) -> Innovation:
    """``w = cumsum(m + s z)``, where the first element of m and s is that of the initial distribution.

    Where w are vectors, s is the Cholesky factor of their covariance, from the right.
    """
    value, (first, steps, *_) = drawn.value, drawn.node.inputs
    ops = [type(getattr(one.owner, "op", None)) for one in (first, steps)]
    if ops not in ([NormalRV] * 2, [MvNormalRV] * 2):
        raise NoField(f"the random walk {value.name!r} has steps or a start that are not normal")
    own = drawn.typed([p for one in (first, steps) for p in one.owner.op.dist_params(one.owner)])
    is_zero = all(map(_is_zero, own[::2]))
    if ops[0] is MvNormalRV:
        return _walk_of_vectors(value, own, is_zero)
    n, last = value.type.shape[-1], value.type.ndim - 1
    start, first_scale, drift, scale = (_by_series(one, last) for one in own)
    if any(one.type.ndim and one.type.shape[-1] != 1 for one in (drift, scale)):
        raise NoField(f"the random walk {value.name!r} has steps whose distribution changes")
    location = None if is_zero else start + drift * np.arange(n)
    scales = [_broadcast(first_scale, value, 1), _broadcast(scale, value, n - 1)]
    step = Step("scale", pt.concatenate(scales, axis=-1))
    return Innovation(value, location, (step, Step("sum", axis=last)))


def _walk_of_vectors(value: Variable, own: list[Variable], is_zero: bool) -> Innovation:
    """A walk of vectors of q elements, (n, q): a matrix for its start, and one for all of its steps."""
    if value.type.ndim > 2 or any(set(one.type.shape[:-2]) - {1} for one in own[1::2]):
        raise NoField(f"the random walk {value.name!r} has several series of vectors")
    n, q = value.type.shape
    start, _, drift, _ = own
    if any(set(one.type.shape[:-1]) - {1} for one in (start, drift)):
        raise NoField(f"the random walk {value.name!r} has steps whose distribution changes")
    start, drift = (one.reshape((-1,)) for one in (start, drift))
    location = None if is_zero else start + drift * np.arange(n)[:, None]
    first, others = (_factor(one).T for one in own[1::2])
    matrices = pt.concatenate([first[None], pt.broadcast_to(others, (n - 1, q, q))])
    return Innovation(value, location, (Step("right", matrices), Step("sum", axis=0)))


def _by_series(graph: Variable, n: int) -> Variable:
    """A parameter of the steps of a random walk, (steps, *series) with n axes of series, with steps last."""
    if graph.type.ndim > n:
        return pt.moveaxis(graph, 0, -1)
    return graph[..., None] if graph.type.ndim else graph


def _is_zero(graph: Variable) -> bool:
    """Is a graph made of constants, and zero?"""
    is_fixed = all(isinstance(one, Constant) for one in graph_inputs([graph]))
    return is_fixed and not np.any(graph.eval(mode=INTERPRETED))


def _broadcast(graph: Variable, value: Variable, k: int) -> Variable:
    """A parameter of k elements of a series, which may be one number for all."""
    shape = (*value.type.shape[:-1], k)
    if graph.type.ndim == value.type.ndim - 1 and value.type.ndim > 1:
        graph = graph[..., None]
    return pt.broadcast_to(graph, shape)


def _without_fills(graphs: Iterable[Variable]) -> list[Variable]:
    """Graphs in which a value of known shape is not filled into that of another."""
    graphs = list(graphs)
    memo: dict[Variable, Variable] = {}
    for node in toposort(graphs):
        if is_elemwise(node.outputs[0], ps.Second):
            value, shape = memo.get(node.inputs[1], node.inputs[1]), node.outputs[0].type.shape
            if None not in shape:
                memo[node.outputs[0]] = value if value.type.shape == shape else value + pt.zeros(shape)
    return rebuild(graphs, memo)


def _without_writing(
    graphs: list[Variable],
    values: Iterable[Variable],
    lengths: frozenset[int],
    evaluate: Callable[[Variable], np.ndarray],
) -> list[Variable]:
    """Graphs in which ``x[i] = y`` is a look-up in x and y, one after the other.

    ``x[i] += y`` is x and the same of zeros. The index is data; what is as long as rows stays as it is.
    """
    memo: dict[Variable, Variable] = {}
    moving = depends_on(graphs, values)
    for node in toposort(graphs):
        out = node.outputs[0]
        if not isinstance(node.op, IncSubtensor | AdvancedIncSubtensor) or not moving[out]:
            continue
        x, y, *index = node.inputs
        shapes = x.type.shape, y.type.shape
        if None in (*shapes[0], *shapes[1]) or any(moving.get(v, False) for v in index):
            continue
        if not lengths.isdisjoint(shapes[0]):
            continue
        n, k = (int(np.prod(shape)) for shape in shapes)
        numbers = pt.arange(n).reshape(shapes[0]), (n + pt.arange(k)).reshape(shapes[1])
        places = evaluate(type(node.op)(node.op.idx_list, set_instead_of_inc=True)(*numbers, *index))
        x, y = memo.get(x, x), memo.get(y, y)
        is_set = node.op.set_instead_of_inc
        joined = pt.concatenate([x.flatten() if is_set else pt.zeros(n), y.flatten()])
        found = joined[places.ravel()].reshape(shapes[0])
        memo[out] = found if is_set else x + found
    return rebuild(graphs, memo)


def _factor(covariance: Variable) -> Variable:
    """The Cholesky factor of a covariance, whose leading axes have one element."""
    if covariance.type.ndim > 2:
        covariance = covariance[(0,) * (covariance.type.ndim - 2)]
    node = covariance.owner
    if node is not None and len(node.inputs) == 2:
        left, right = node.inputs
        if right.owner is not None and right.owner.inputs[:1] == [left]:
            return left
    return pt.linalg.cholesky(covariance)


def _without_labels(model: pm.Model, rv: Variable) -> Apply:
    """The operation that draws a variable; of one of `pymc.dims`, that which draws it without labels.

    Parameters of the latter are functions of the value variables of other variables. Vectors of several
    variates whose dims are in another order than those of the operation keep it.
    """
    node = rv.owner
    while isinstance(node.op, Transpose):
        node = node.inputs[0].owner
    if not isinstance(node.op, XRV):
        return rv.owner
    drawn = node.outputs[1]
    (plain,) = _unlabelled([node.op.make_node(*model.replace_rvs_by_values(list(node.inputs))).outputs[1]])
    op, n = plain.owner.op, drawn.type.ndim
    order = [drawn.type.dims.index(dim) for dim in rv.type.dims]
    if order == sorted(order) or isinstance(op, ZeroSumNormalRV):
        return plain.owner
    if op.ndim_supp:
        return node
    rng, _, *parameters = plain.owner.inputs
    full = [pt.shape_padleft(one, n - one.type.ndim).dimshuffle(order) for one in parameters]
    return op.make_node(rng, None, *full)


def _unlabelled(graphs: list[Variable]) -> list[Variable]:
    """Graphs in which only inputs have labels of `pymc.dims`."""
    if not any(isinstance(one.type, XTensorType) for one in ancestors(graphs)):
        return graphs
    plain = [one.values if isinstance(one.type, XTensorType) else one for one in graphs]
    return list(rewrite_graph(plain, include=("lower_xtensor",), clone=True))


RULES: dict[type, Callable[[Drawn], Innovation]] = {
    **dict.fromkeys(FAMILIES, _elements),
    MvNormalRV: _vectors,
    RandomWalkRV: _walk,
    AutoRegressiveRV: _autoregression,
    ICARRV: _areas,
    FlatRV: _flat,
    CARRV: _conditional,
    GammaRV: _log_gamma,
    ExponentialRV: _log_exponential,
    InvGammaRV: _log_inverse_gamma,
    BetaRV: _logit_beta,
    LogisticRV: _logistic,
    ZeroSumNormalRV: _zero_sum,
}
# What these are sampled as; all others as they are. Short ones of those that are nearly normal are numbers.
_LOGARITHMS = LogTransform, labelled.LogTransform
_TRANSFORMS: dict[type, tuple[type, ...]] = {
    LogNormalRV: _LOGARITHMS,
    GammaRV: _LOGARITHMS,
    ExponentialRV: _LOGARITHMS,
    InvGammaRV: _LOGARITHMS,
    BetaRV: (LogOddsTransform, labelled.LogOddsTransform),
    ZeroSumNormalRV: (ZeroSumTransform, labelled.ZeroSumTransform),
}
_NEARLY_NORMAL = (GammaRV, ExponentialRV, InvGammaRV, BetaRV, LogisticRV)


@dataclass(eq=False)
class Priors:
    """The variables of a model, and the rules that they have."""

    model: pm.Model
    factorisation: Factorisation
    given_up: frozenset[str] = frozenset()
    _found: dict[Variable, Innovation | None] = field(default_factory=dict)
    _carries: dict[Variable, bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.values = {var: name for name, var in self.factorisation.graph.values.items()}
        self._rvs = {str(value.name): rv for rv, value in self.model.rvs_to_values.items()}
        self._nodes = {name: _without_labels(self.model, self._rvs[name]) for name in self.values.values()}
        self._ruled = {
            var
            for var, name in self.values.items()
            if name not in self.given_up and self._has_rule(name, var)
        }
        sums = [
            (var, self._rvs[name])
            for var, name in self.values.items()
            if var in self._ruled and isinstance(self._nodes[name].op, ZeroSumNormalRV)
        ]
        graph = self.factorisation.graph
        # Numbers of rows: what has so many is data that differ by row.
        self.lengths = frozenset(graph.likelihood.values()) - {0, 1}
        terms = _without_fills(graph.terms.values())
        terms = _without_writing(terms, self.values, self.lengths, graph.evaluate)
        every = merged([*terms, *narrowed(self._typed([rv for _, rv in sums]))])
        self.terms = dict(zip(graph.terms, every, strict=False))
        # Functions of one variable that are tables, with what was done to it.
        self.images: dict[Variable, tuple[Variable, tuple[Step, ...]]] = {}
        for (var, rv), image in zip(sums, every[len(self.terms) :], strict=True):
            transform = self.model.rvs_to_transforms[rv]
            if isinstance(transform, labelled.ZeroSumTransform):
                axes = tuple(rv.type.dims.index(dim) - rv.type.ndim for dim in transform.dims)
            else:
                axes = transform.zerosum_axes
            self.images[image] = var, tuple(Step("zero_sum", axis=axis) for axis in axes)

    def _has_rule(self, name: str, value: Variable) -> bool:
        kind = type(self._nodes[name].op)
        if kind in _NEARLY_NORMAL and int(np.prod(value.type.shape)) < FEWEST_GROUPS:
            return False
        return kind in RULES and not self._is_moved_elsewhere(name, kind)

    def _is_moved_elsewhere(self, name: str, kind: type) -> bool:
        """Is a variable sampled on another scale than its rule is about?"""
        transform = self.model.rvs_to_transforms.get(self._rvs[name])
        return type(transform) not in _TRANSFORMS.get(kind, (type(None),))

    def carries(self, var: Variable) -> bool:
        """Does a value depend on a variable with a rule?"""
        if var not in self._carries:
            self._carries |= depends_on([var], self._ruled)
            self._carries.setdefault(var, var in self._ruled)
        return self._carries[var]

    def effects_in(self, graphs: Iterable[Variable]) -> set[Variable]:
        """Variables with a rule that these depend on."""
        return self._ruled & set(ancestors(list(graphs)))

    def numbers_in(self, graphs: Iterable[Variable]) -> list[Variable]:
        """Variables without a rule that these depend on."""
        own = set(ancestors(list(graphs)))
        return [var for var in self.values if var in own and var not in self._ruled]

    def kind(self, value: Variable) -> str:
        """The distribution of a variable, as PyMC calls it."""
        name = self.values[value]
        kind = type(self._nodes[name].op)
        if kind is XRV:
            kind = type(self._nodes[name].op.core_op)
            return f"{kind.__name__.removesuffix('RV')}, with its dims in another order"
        distribution = kind.__name__.removesuffix("RV")
        if kind in RULES and self._is_moved_elsewhere(name, kind):
            transform = type(self.model.rvs_to_transforms.get(self._rvs[name]))
            return f"{distribution}, transformed by {transform.__name__}"
        return distribution

    def moves(self, var: Variable) -> bool:
        """Does a value depend on any variable?"""
        return not set(self.values).isdisjoint(ancestors([var]))

    def named(self, variables: Iterable[Variable]) -> str:
        """The variables of the model that these depend on, in words."""
        own, names = set(ancestors(list(variables))), self.factorisation.graph.variables
        return " and ".join(repr(names[name]) for var, name in self.values.items() if var in own)

    def rule(self, value: Variable) -> Innovation | None:
        """The prior of a variable; None if it has no rule."""
        if value not in self._ruled:
            return None
        if value not in self._found:
            rv, node = self._rvs[self.values[value]], self._nodes[self.values[value]]
            op = node.op
            parameters = self._typed(op.dist_params(node)) if isinstance(op, RandomVariable) else []
            found = RULES[type(op)](Drawn(value, op, parameters, node, self._typed))
            self._found[value] = replace(
                found,
                location=self._known(found.location, value),
                variable=str(rv.name),
                kind=self.kind(value),
            )
        return self._found[value]

    def _known(self, location: Variable | None, value: Variable) -> Variable | None:
        """A location; numbers, if no variable moves it, and None for zeros."""
        if location is None or self.moves(location):
            return location
        numbers = self.factorisation.graph.evaluate(location)
        return pt.constant(np.broadcast_to(numbers, value.type.shape)) if np.any(numbers) else None

    def _typed(self, graphs: Any) -> list[Variable]:
        """Parameters of a distribution, in the value variables of the factorisation."""
        return _without_fills(in_values(self.model, self.factorisation.graph, graphs, _unlabelled))

    def give_up_shortest(self, variables: list[Variable]) -> None:
        """Take the shorter of two variables that multiply each other for a number, not for an effect."""
        own = self._ruled & set(ancestors(variables))
        shortest = min(own, key=lambda var: int(np.prod(var.type.shape)))
        raise GivenUp(self.values[shortest])
