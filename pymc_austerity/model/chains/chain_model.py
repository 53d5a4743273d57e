"""A latent chain of a model, as the functions that a particle filter calls.

A state is proposed from the product of all terms that are quadratic in it: of the transition, which must be,
and of whatever else is, as a normal observation. So much less is left to the weights. What that product
integrates to depends on the state before, and is a weight of that state.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.gradient import grad
from pytensor.graph.basic import Variable
from pytensor.graph.rewriting.utils import rewrite_graph
from pytensor.tensor.type import TensorType

from pymc_austerity.exceptions import FactorisationError
from pymc_austerity.model.chains.found import FoundChain, SiteTerm, replaced
from pymc_austerity.model.compile.backend import current_backend
from pymc_austerity.model.compile.native import interruptible
from pymc_austerity.model.compile.target import CompiledTarget
from pymc_austerity.model.graph.functions import function_of
from pymc_austerity.model.graph.leaves import extract_given
from pymc_austerity.model.graph.rewrite import depends_on, rebuild
from pymc_austerity.model.refusal import NO_GRADIENT
from pymc_austerity.model.self_check import check_change, jittered
from pymc_austerity.target import Index

_SEED = 24
# Differences that are rounding errors, beside the numbers that they are differences of.
_ROUNDING = 1e-12


# Transitions to all sites, the fields of `kernels.particle_gibbs.LinearMoves` in their order: mean, slope,
# root, weight, curvature. Ones and zeros for first states.
type LinearTable = tuple[np.ndarray, ...]


class ChainModel(CompiledTarget):
    """All terms that contain the states of a chain, as functions of the states of a few sites.

    The functions of the target are those that `kernels.particle_gibbs` calls.
    """

    def __init__(self, found: FoundChain) -> None:
        normal, others = divide(found)
        self.backend = current_backend()
        self.found = found
        self.values = found.graph.values
        # Sites where there are weights besides those of transitions.
        self.weighted = np.zeros(found.layout.n_sites, dtype=bool)
        for term in others:
            self.weighted |= (term.rows >= 0).any(axis=1)
        n, first = found.layout.n_components, found.layout.is_first()
        tables: dict[Variable, np.ndarray] = {}
        q, index = pt.vector("states"), pt.vector("index", dtype="int64")
        m = index.shape[0]
        # The components of the states, and of the states before: where these are alike.
        columns = [q[a * m : (a + 1) * m] for a in range(n)] * 2 if n > 1 else [q, q]
        called = {"log_terms": SiteGraphs(index, self.weighted, columns, tables).expansion(others, 0)[0]}
        whole = [_at_zero(_only(normal, first), first, n, n, tables)]
        transitions, of_later = _only(normal, ~first), SiteGraphs(index, ~first, columns, tables)
        # Whether the mean of each state is a linear function of the one before, and its variance the same for
        # all: the log density is quadratic in both. All transitions are then known before the particles are.
        self.is_linear = all(of_later.is_quadratic(term, 2 * n) for term in transitions)
        if self.is_linear:
            whole.append(_at_zero(transitions, ~first, 2 * n, n, tables))
        else:  # log density, gradient and negative Hessian of the next state, where it is equal to this one
            start, gradient, hessian = of_later.expansion(transitions, n)
            called["transitions"] = pt.concatenate([start, *gradient, *(-second for second in hessian)])
        # Simplified first, more of it turns out to be the same at all states.
        simple = rewrite_graph(
            [*called.values(), *whole], include=("canonicalize", "stabilize", "specialize"), clone=True
        )
        self.given, outputs = extract_given(simple[: len(called)], [q, index], 0)
        whole = simple[len(called) :]
        arguments = self._take_arguments([*outputs, *whole], found.data | tables, ())
        self._outputs = dict(zip(called, outputs, strict=True))
        self._inputs = {name: [q, index, *arguments] for name in called}
        self._functions = {}
        # Arguments that are given are for what is called, and not among these.
        self._moves = interruptible(self.backend.entry(self.backend.function(self._args, whole)))

    def moves(self, args: tuple[np.ndarray, ...]) -> tuple[tuple[np.ndarray, np.ndarray], LinearTable, bool]:
        """Distributions of first states; transitions, if they are linear, and whether these have weights.

        `FactorisationError` is raised if a state has no normal distribution.
        """
        values = self._moves(*args[: len(self._args)])
        layout = self.found.layout
        n = layout.n_components
        gradient, hessian = as_tables(np.asarray(values[0]), len(layout.starts) - 1, n)
        root = _roots(self.found, layout.starts[:-1], -hessian)
        mean = np.linalg.solve(-hessian, gradient[..., None])[..., 0]
        first = np.ascontiguousarray(mean), np.ascontiguousarray(root)
        if self.is_linear:
            return first, *linear_table(self.found, np.asarray(values[1]))
        vectors, matrices = np.empty((0, n)), np.empty((0, n, n))
        return first, (vectors, matrices, matrices, vectors, matrices), True


def _at_zero(
    terms: list[SiteTerm], among: np.ndarray, k: int, n: int, tables: dict[Variable, np.ndarray]
) -> Variable:
    """Gradients and Hessians at zero, in the first k of the 2 n numbers of a state and the one before."""
    sites = data_leaf(np.flatnonzero(among), tables)
    zeros = [pt.zeros_like(sites, dtype="float64")] * (2 * n)
    _, gradient, hessian = SiteGraphs(sites, among, zeros, tables).expansion(terms, k)
    return pt.concatenate([*gradient, *hessian])


def _only(terms: list[SiteTerm], among: np.ndarray) -> list[SiteTerm]:
    """The parts of terms that belong to some sites, given as a mask."""
    found = (replace(term, rows=np.where(among[:, None], term.rows, -1)) for term in terms)
    return [term for term in found if (term.rows >= 0).any()]


# Terms as functions of the states of two neighbouring sites -------------------------------------------------


class SiteGraphs:
    """Sums of terms at some sites, and their derivatives in the states.

    `sites` are numbers of sites, an integer vector of any length m. `among`, of shape (n_sites,), says which
    sites are asked for: only for these it matters whether rows are missing. `states` has m numbers for each
    component: the states there, and after all components those at the sites before. Data that the graphs
    read are added to `tables`, by the inputs that stand for them.
    """

    def __init__(
        self,
        sites: Variable,
        among: np.ndarray,
        states: Sequence[Variable],
        tables: dict[Variable, np.ndarray],
    ) -> None:
        self._sites, self._among = sites, among
        self._states, self._tables = list(states), tables

    def expansion(self, terms: Sequence[SiteTerm], n: int) -> tuple[Variable, list[Variable], list[Variable]]:
        """Sums at each site with gradient and Hessian in the first n numbers of the states, by entry.

        One of `NO_GRADIENT` is raised if a term has no derivatives.
        """
        entries = [self._entries(term, n) for term in terms]
        sums = [self._sum([own[k] for own in entries]) for k in range(1 + n + n * n)]
        return sums[0], sums[1 : 1 + n], sums[1 + n :]

    def is_quadratic(self, term: SiteTerm, n: int) -> bool:
        """Is each row a quadratic function of the first n numbers, as the graph of its Hessian shows?"""
        rows, _, unknown = self._rows(term)
        try:
            _, hessian = _derivatives(rows, unknown[:n])
        except NO_GRADIENT:
            return False
        simple = rewrite_graph(hessian, include=("canonicalize", "stabilize", "specialize"), clone=True)
        depends = depends_on(simple, unknown[:n])
        return not any(depends.get(second, False) for second in simple)

    def _sum(self, parts: list[Variable]) -> Variable:
        if len(parts) == 1:
            return parts[0]
        return pt.add(*parts) if parts else pt.zeros_like(self._sites, dtype="float64")

    def _entries(self, term: SiteTerm, n: int) -> list[Variable]:
        """A term at each site, and its derivatives in the first n numbers of the states."""
        rows, number, unknown = self._rows(term)
        entries = [rows]
        if n:
            gradient, hessian = _derivatives(rows, unknown[:n])
            entries += [*gradient, *hessian]
        n_rows = term.rows.shape[1]
        columns = [pt.repeat(column, n_rows) for column in self._states] if n_rows > 1 else self._states
        entries = rebuild(entries, dict(zip(unknown, columns, strict=True)))
        if bool((term.rows[self._among] < 0).any()):
            there = pt.ge(number, 0)
            entries = [pt.switch(there, entry, 0.0) for entry in entries]
        return [e.reshape((-1, n_rows)).sum(axis=1) for e in entries] if n_rows > 1 else entries

    def _rows(self, term: SiteTerm) -> tuple[Variable, Variable, list[Variable]]:
        """The rows of a term at the sites, one after the other; their numbers; the states that they take."""
        number = self._row_numbers(term.rows)
        index = pt.maximum(number, 0) if bool((term.rows[self._among] < 0).any()) else number
        unknown = [pt.vector(f"state{k}") for k in range(len(self._states))]
        values = [self._by_role(roles, index, unknown) for roles in term.roles.T]
        (rows,) = rebuild([replaced(term.reading, values)], {term.reading.term.index: index})
        return rows, number, unknown

    def _row_numbers(self, rows: Index) -> Variable:
        """Numbers of rows of the sites, one site after the other; -1 where there is none."""
        if rows.shape[1] > 1:
            return data_leaf(rows, self._tables)[self._sites].flatten()
        numbers = np.flatnonzero(self._among)
        shift = rows[numbers, 0] - numbers
        if (shift == shift[0]).all():  # they are in the same order
            return self._sites + int(shift[0]) if shift[0] else self._sites
        return data_leaf(rows[:, 0], self._tables)[self._sites]

    def _by_role(self, roles: Index, index: Variable, columns: list[Variable]) -> Variable:
        """The number that each row takes in one of its places."""
        different = np.unique(roles)
        result = columns[different[0]]
        if len(different) > 1:
            role = data_leaf(roles, self._tables)[index]
            for number in different[1:]:
                result = pt.switch(pt.eq(role, int(number)), columns[number], result)
        return result


def data_leaf(values: np.ndarray, tables: dict[Variable, np.ndarray]) -> Variable:
    """Whole numbers as an argument of functions; added to `tables`."""
    leaf = TensorType("int64", (None,) * values.ndim)(name=f"table{len(tables)}")
    tables[leaf] = np.ascontiguousarray(values, dtype=np.int64)
    return leaf


def _derivatives(rows: Variable, columns: Sequence[Variable]) -> tuple[list[Variable], list[Variable]]:
    """Gradient and Hessian of each row in its own numbers: n and n * n entries, (m,) each.

    Row i of `rows` (m,) depends on number i of each of `columns`, n vectors (m,). One of `NO_GRADIENT` is
    raised if an operation has no gradient.
    """
    gradient = _slopes(rows, columns)
    n = len(columns)
    upper = {
        (a, b): second for a in range(n) for b, second in enumerate(_slopes(gradient[a], columns[a:]), a)
    }
    return gradient, [upper[min(a, b), max(a, b)] for a in range(n) for b in range(n)]


def _slopes(rows: Variable, columns: Sequence[Variable]) -> list[Variable]:
    return [pt.as_tensor(x) for x in grad(rows.sum(), list(columns), disconnected_inputs="ignore")]


# Normal proposals of states: which terms are part of them, and which are weights ----------------------------


def divide(found: FoundChain) -> tuple[list[SiteTerm], list[SiteTerm]]:
    """Terms that are quadratic in the present state, and all others, which do not contain the one before.

    `FactorisationError` is raised if a transition is not normal.
    """
    normal, weights = [], []
    for term in found.terms:
        if _is_normal(found, term):
            normal.append(term)
        elif term.links:
            raise FactorisationError(
                f"The transitions of {found.name!r} in the term {term.reading.name!r} cannot be drawn: the "
                "log density of a state given the one before is no quadratic function of it, as that of a "
                "normal distribution is. Write them with pm.Normal, pm.AR or pm.GaussianRandomWalk, or use "
                "pm.NUTS."
            )
        else:
            weights.append(term)
    return normal, weights


def _is_normal(found: FoundChain, term: SiteTerm) -> bool:
    """Is a term a quadratic function of the present state, with a maximum?

    A transition has one. Of others, the diagonal of the Hessian says so, near the initial point.
    """
    n = found.layout.n_components
    mine = (term.rows >= 0).any(axis=1)
    states = [pt.vector(f"state{k}") for k in range(2 * n)]
    sites = pt.vector("sites", dtype="int64")
    tables: dict[Variable, np.ndarray] = {}
    graphs = SiteGraphs(sites, mine, states, tables)
    if not graphs.is_quadratic(term, n):
        return False
    if term.links:
        return True
    _, _, hessian = graphs.expansion([term], n)
    data = found.data | tables
    function = function_of([sites, *states, *found.graph.values.values(), *data], hessian[:: n + 1])
    where = np.flatnonzero(mine)
    at = np.random.default_rng(_SEED).normal(size=(len(states), len(where)))
    found_curvature = function(where, *at, *jittered(found.graph), *data.values())
    curvature = np.stack([np.broadcast_to(c, len(where)) for c in found_curvature])
    return bool((curvature <= 0.0).all() and (curvature < 0.0).any())


def linear_table(found: FoundChain, values: np.ndarray) -> tuple[LinearTable, bool]:
    """Transitions to all sites but the first of each series, and whether they come with weights.

    `values` are gradients at zero and Hessians of the log density in a state and the one before, entry by
    entry, for all sites each.
    `FactorisationError` is raised if a state has no normal distribution given the one before.
    """
    layout = found.layout
    n, later = layout.n_components, np.flatnonzero(~layout.is_first())
    gradient, hessian = as_tables(values, len(later), 2 * n)
    precision, cross = -hessian[:, :n, :n], hessian[:, :n, n:]
    root = _roots(found, later, precision)
    if n == 1:
        solved = np.concatenate([gradient[:, :1, None], cross], axis=2) / precision
    else:
        solved = np.linalg.solve(precision, np.concatenate([gradient[:, :n, None], cross], axis=2))
    mean, slope = solved[..., 0], solved[..., 1:]
    from_mean = np.einsum("mba,mb->ma", cross, mean)
    from_slope = np.einsum("mba,mbc->mac", cross, slope)
    weight, curvature = gradient[:, n:] + from_mean, hessian[:, n:, n:] + from_slope
    has_weights = not (_is_rounding(weight, from_mean) and _is_rounding(curvature, from_slope))
    parts = mean, slope, root, weight, 0.5 * curvature
    table = tuple(np.zeros((layout.n_sites, *part.shape[1:])) for part in parts)
    table[2][:] = np.eye(n)
    for whole, part in zip(table, parts, strict=True):
        whole[later] = part
    return table, has_weights


def _is_rounding(difference: np.ndarray, part: np.ndarray) -> bool:
    return bool((np.abs(difference) <= _ROUNDING * np.abs(part)).all())


def as_tables(values: np.ndarray, m: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Gradients (m, n) and Hessians (m, n, n), of entries that are m numbers each."""
    return values[: m * n].reshape(n, m).T, values[m * n :].reshape(n, n, m).transpose(2, 0, 1)


def _roots(found: FoundChain, sites: np.ndarray, precision: np.ndarray) -> np.ndarray:
    """Cholesky factors; a site that has none is named."""
    if precision.shape[1] == 1:  # LAPACK takes long for many small matrices
        is_sound = ((precision > 0.0) & (precision < np.inf))[:, 0, 0]
        if is_sound.all():
            return np.sqrt(precision)
    else:
        try:
            root = np.linalg.cholesky(precision)
        except np.linalg.LinAlgError:
            root = np.full(1, np.nan)
        if np.isfinite(root).all():
            return root
        is_finite = np.isfinite(precision).all(axis=(1, 2), keepdims=True)
        is_sound = np.linalg.eigvalsh(np.where(is_finite, precision, -1.0))[:, 0] > 0.0
    site = int(sites[np.argmin(is_sound)])
    state, terms = found.layout.label(found.name, site), found.names_at(site)
    if found.layout.is_first()[site]:
        raise FactorisationError(
            f"The first state {state} cannot be drawn: the terms that contain it ({terms}) give it no normal "
            "distribution. Give the chain a normal start, as in init_dist=pm.Normal.dist(0, 1), or use "
            "pm.NUTS."
        )
    raise FactorisationError(
        f"The state {state} cannot be drawn given the one before: the terms that contain it ({terms}) give "
        "it no normal distribution with a finite, positive variance. Check the parameters of the "
        "transitions, or use pm.NUTS."
    )


# Compared with the model, once ------------------------------------------------------------------------------


def _log_density_of_path(chain: ChainModel, point: Mapping[str, np.ndarray], states: np.ndarray) -> float:
    """Log density of all states (n_sites, D), up to one number, as the sum of what a particle filter calls.

    `point` has the values of the other variables. `FactorisationError` is raised if a state has no normal
    distribution.
    """
    layout = chain.found.layout
    args = chain.args(point)
    first, linear, _ = chain.moves(args)
    weighted, later = np.flatnonzero(chain.weighted), np.flatnonzero(~layout.is_first())
    total = _log_normal(states[layout.starts[:-1]], *first).sum()
    with np.errstate(all="ignore"):
        if len(weighted):
            total += chain.evaluated("log_terms", states[weighted].T.ravel(), weighted, *args).sum()
        before = states[later - 1]
        if chain.is_linear:
            mean, slope, root, weight, curvature = (part[later] for part in linear)
            mean = mean + np.einsum("mab,mb->ma", slope, before)
            gains = (weight + np.einsum("mab,mb->ma", curvature, before)) * before
        else:
            found, m = chain.evaluated("transitions", before.T.ravel(), later, *args), len(later)
            gradient, precision = as_tables(found[m:], m, layout.n_components)
            root = np.linalg.cholesky(precision)
            mean = before + np.linalg.solve(precision, gradient[..., None])[..., 0]
            gains = found[:m] - _log_normal(before, mean, root)
    return float(total + gains.sum() + _log_normal(states[later], mean, root).sum())


def _log_normal(states: np.ndarray, mean: np.ndarray, root: np.ndarray) -> np.ndarray:
    """Log densities, up to a constant."""
    log_det = np.log(np.diagonal(root, axis1=1, axis2=2)).sum(axis=1)
    return np.asarray(log_det - 0.5 * (np.einsum("mba,mb->ma", root, states - mean) ** 2).sum(axis=1))


def check_chain(chain: ChainModel, model: pm.Model) -> None:
    """Exchange a path for another: the log density must change as the model says.

    `FactorisationError` is raised if a state has no normal distribution.
    """
    graph, layout, name = chain.found.graph, chain.found.layout, str(chain.found.states.name)
    point = dict(zip(graph.values, jittered(graph), strict=True))
    rng = np.random.default_rng(_SEED)
    ours, points = [], []
    for _ in range(2):
        states = point[name].ravel()[layout.elements] + rng.normal(size=layout.elements.shape)
        ours.append(_log_density_of_path(chain, point, states))
        h = np.empty(layout.elements.size)
        h[layout.elements] = states
        points.append({**point, name: h.reshape(layout.shape)})
    what = f"the states {chain.found.name!r}", "another path changes", "its states"
    check_change(graph, model, points, ours, what)
