"""A latent chain of a model, as the functions that a particle filter calls.

A state is proposed from the product of all terms that are quadratic in it: of the transition, which must be,
and of whatever else is, as a normal observation. So much less is left to the weights. What that product
integrates to depends on the state before, and is a weight of that state.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.graph.rewriting.utils import rewrite_graph

from pymc_austerity.exceptions import FactorisationError
from pymc_austerity.model.chains.found import FoundChain
from pymc_austerity.model.chains.site_terms import SiteGraphs, SiteTerm, data_leaf
from pymc_austerity.model.compile.backend import current_backend
from pymc_austerity.model.compile.native import interruptible
from pymc_austerity.model.compile.target import CompiledTarget
from pymc_austerity.model.graph.functions import function_of
from pymc_austerity.model.graph.leaves import Leaf, extract_given
from pymc_austerity.model.self_check import check_change, jittered

_SEED = 24
# Differences that are rounding errors, beside the numbers that they are differences of.
_ROUNDING = 1e-12


class LinearTable(NamedTuple):
    """Transitions to all sites, as `kernels.particle_gibbs.LinearMoves`; ones and zeros for first states."""

    mean: np.ndarray
    slope: np.ndarray
    root: np.ndarray
    weight: np.ndarray
    curvature: np.ndarray


class ChainModel(CompiledTarget):
    """All terms that contain the states of a chain, as functions of the states of a few sites.

    The functions of the target are those that `kernels.particle_gibbs` calls.
    """

    def __init__(self, found: FoundChain) -> None:
        normal, others = divide(found)
        self.backend = current_backend()
        self.found = found
        self.values = found.graph.values
        self._orders = []
        # Sites where there are weights besides those of transitions.
        self.weighted = np.zeros(found.layout.n_sites, dtype=bool)
        for term in others:
            self.weighted |= (term.rows >= 0).any(axis=1)
        self._q, self._index = pt.vector("states"), pt.vector("index", dtype="int64")
        tables: list[Leaf] = []
        graphs = [SiteGraphs(self._index, self.weighted, self._columns() * 2, tables).total(others)]
        n, first = found.layout.n_components, found.layout.is_first()
        graphs.append(self._at_zero(_only(normal, first), first, n, tables))
        later, transitions = ~first, _only(normal, ~first)
        # Whether the mean of each state is a linear function of the one before, and its variance the same for
        # all. All transitions are then known before the particles are.
        self.is_linear = self._is_linear(transitions, later)
        if self.is_linear:
            graphs.append(self._at_zero(transitions, later, 2 * n, tables))
        else:
            graphs.append(self._moves_graph(transitions, later, tables))
        moving = [self._q, self._index]
        # Simplified first, more of it turns out to be the same at all states.
        graphs = rewrite_graph(graphs, include=("canonicalize", "stabilize", "specialize"), clone=True)
        names = ["log_terms"] if self.is_linear else ["log_terms", "transitions"]
        called, whole = ([graphs[0]], graphs[1:]) if self.is_linear else ([graphs[0], graphs[2]], graphs[1:2])
        self.given, called = extract_given(called, moving, 0)
        placeholders = [leaf.placeholder for leaf in found.leaves]
        data = dict(zip(placeholders, found.leaf_values, strict=True))
        data |= {leaf.placeholder: leaf.source.data for leaf in tables}
        arguments = self._take_arguments([*called, *whole], data, ())
        self._outputs = dict(zip(names, called, strict=True))
        self._inputs = {name: [*moving, *arguments] for name in names}
        self._functions = {}
        # Arguments that are given are for what is called, and not among these.
        self._moves = interruptible(self.backend.entry(self.backend.function(self._args, whole)))

    def _columns(self) -> list[Variable]:
        """The components of the states of a function's argument."""
        n, m = self.found.layout.n_components, self._index.shape[0]
        return [self._q[a * m : (a + 1) * m] for a in range(n)] if n > 1 else [self._q]

    def _at_zero(self, terms: list[SiteTerm], among: np.ndarray, n: int, tables: list[Leaf]) -> Variable:
        """Gradients and Hessians at zero, in the first n numbers of a state and the one before."""
        sites = data_leaf(np.flatnonzero(among), tables)
        zeros = [pt.zeros_like(sites, dtype="float64")] * (2 * self.found.layout.n_components)
        _, gradient, hessian = SiteGraphs(sites, among, zeros, tables).expansion(terms, n)
        return pt.concatenate([*gradient, *hessian])

    def _is_linear(self, terms: list[SiteTerm], among: np.ndarray) -> bool:
        """Is the log density of a state and the one before quadratic in both together?"""
        n = 2 * self.found.layout.n_components
        states = [pt.vector(f"state{k}") for k in range(n)]
        return all(SiteGraphs(self._index, among, states, []).is_quadratic(term, n) for term in terms)

    def _moves_graph(self, terms: list[SiteTerm], among: np.ndarray, tables: list[Leaf]) -> Variable:
        """Log density, gradient and negative Hessian of the next state, where it is equal to this one."""
        graphs = SiteGraphs(self._index, among, self._columns() * 2, tables)
        start, gradient, hessian = graphs.expansion(terms, self.found.layout.n_components)
        return pt.concatenate([start, *gradient, *(-second for second in hessian)])

    @property
    def function_names(self) -> list[str]:
        """Functions of the target that are called."""
        return list(self._outputs)

    def moves(self, args: tuple[np.ndarray, ...]) -> tuple[tuple[np.ndarray, np.ndarray], LinearTable, bool]:
        """Distributions of first states; transitions, if they are linear, and whether these have weights.

        `FactorisationError` is raised if a state has no normal distribution.
        """
        values = self._moves(*args[: len(self._args)])
        first = first_moves(self.found, np.asarray(values[0]))
        if self.is_linear:
            return first, *linear_table(self.found, np.asarray(values[1]))
        n = self.found.layout.n_components
        vectors, matrices = np.empty((0, n)), np.empty((0, n, n))
        return first, LinearTable(vectors, matrices, matrices, vectors, matrices), True

    def interpreted_functions(self) -> dict[str, Any]:
        """The functions of the target, of states, sites and arguments; nothing is compiled."""
        return {name: function_of(self._inputs[name], [out]) for name, out in self._outputs.items()}


def _only(terms: list[SiteTerm], among: np.ndarray) -> list[SiteTerm]:
    """The parts of terms that belong to some sites."""
    return [part for term in terms if (part := term.only(among)) is not None]


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
                f"The transitions of {found.name!r} in the term {term.name!r} cannot be drawn: the log "
                "density of a state given the one before is no quadratic function of it, as that of a normal "
                "distribution is. Write them with pm.Normal, pm.AR or pm.GaussianRandomWalk, or use pm.NUTS."
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
    tables: list[Leaf] = []
    graphs = SiteGraphs(sites, mine, states, tables)
    if not graphs.is_quadratic(term, n):
        return False
    if term.links:
        return True
    _, _, hessian = graphs.expansion([term], n)
    placeholders = [leaf.placeholder for leaf in (*found.leaves, *tables)]
    inputs = [sites, *states, *found.graph.values.values(), *placeholders]
    function = function_of(inputs, hessian[:: n + 1])
    where = np.flatnonzero(mine)
    at = np.random.default_rng(_SEED).normal(size=(len(states), len(where)))
    data = [*found.leaf_values, *(np.asarray(leaf.source.data) for leaf in tables)]
    curvature = np.stack(
        [np.broadcast_to(c, len(where)) for c in function(where, *at, *jittered(found.graph), *data)]
    )
    return bool((curvature <= 0.0).all() and (curvature < 0.0).any())


def first_moves(found: FoundChain, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Means, and Cholesky factors of precisions, of first states; `FactorisationError` if a series has none.

    `values` are gradients at zero and Hessians of the log density, entry by entry, for all series each.
    """
    layout = found.layout
    gradient, hessian = as_tables(values, len(layout.starts) - 1, layout.n_components)
    root = _roots(found, layout.starts[:-1], -hessian)
    mean = np.linalg.solve(-hessian, gradient[..., None])[..., 0]
    return np.ascontiguousarray(mean), np.ascontiguousarray(root)


def linear_table(found: FoundChain, values: np.ndarray) -> tuple[LinearTable, bool]:
    """Transitions to all sites but the first of each series, and whether they come with weights.

    `values` are those of `first_moves`, of the log density in a state and the one before, for all sites each.
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
    table = LinearTable(
        np.zeros((layout.n_sites, n)),
        np.zeros((layout.n_sites, n, n)),
        np.broadcast_to(np.eye(n), (layout.n_sites, n, n)).copy(),
        np.zeros((layout.n_sites, n)),
        np.zeros((layout.n_sites, n, n)),
    )
    for whole, part in zip(table, (mean, slope, root, weight, 0.5 * curvature), strict=True):
        whole[later] = part
    return table, has_weights


def _is_rounding(difference: np.ndarray, part: np.ndarray) -> bool:
    return bool((np.abs(difference) <= _ROUNDING * np.abs(part)).all())


def as_tables(values: np.ndarray, m: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Gradients (m, n) and Hessians (m, n, n), of entries that are m numbers each."""
    return values[: m * n].reshape(n, m).T, values[m * n :].reshape(n, n, m).transpose(2, 0, 1)


def _roots(found: FoundChain, sites: np.ndarray, precision: np.ndarray) -> np.ndarray:
    """Cholesky factors; a site that has none is named."""
    if precision.shape[1] == 1:
        is_fine = (precision > 0.0) & (precision < np.inf)
        if is_fine.all():
            return np.sqrt(precision)
        raise _no_proposal(found, int(sites[np.flatnonzero(~is_fine)[0]]))
    try:
        root = np.linalg.cholesky(precision)
    except np.linalg.LinAlgError:
        root = np.full(1, np.nan)
    if np.isfinite(root).all():
        return root
    for site, matrix in zip(sites, precision, strict=True):
        if not (np.isfinite(matrix).all() and np.linalg.eigvalsh(matrix)[0] > 0.0):
            raise _no_proposal(found, int(site))
    raise _no_proposal(found, int(sites[0]))


def _no_proposal(found: FoundChain, site: int) -> FactorisationError:
    """The error that names a state which has no normal distribution."""
    state, terms = found.layout.label(found.name, site), found.names_at(site)
    if found.layout.is_first()[site]:
        return FactorisationError(
            f"The first state {state} cannot be drawn: the terms that contain it ({terms}) give it no normal "
            "distribution. Give the chain a normal start, as in init_dist=pm.Normal.dist(0, 1), or use "
            "pm.NUTS."
        )
    return FactorisationError(
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
    target = chain.interpreted_functions()
    with np.errstate(all="ignore"):
        if len(weighted):
            total += target["log_terms"](states[weighted].T.ravel(), weighted, *args)[0].sum()
        before = states[later - 1]
        if chain.is_linear:
            mean = linear.mean[later] + np.einsum("mab,mb->ma", linear.slope[later], before)
            curved = np.einsum("mab,mb->ma", linear.curvature[later], before)
            total += ((linear.weight[later] + curved) * before).sum()
            return float(total + _log_normal(states[later], mean, linear.root[later]).sum())
        found = target["transitions"](before.T.ravel(), later, *args)[0]
    m = len(later)
    gradient, precision = as_tables(found[m:], m, layout.n_components)
    root = np.linalg.cholesky(precision)
    shift = np.linalg.solve(precision, gradient[..., None])[..., 0]
    gain = found[:m] + 0.5 * (gradient * shift).sum(axis=1) - _log_det(root)
    gain += 0.5 * layout.n_components * math.log(2.0 * math.pi)
    return float(total + gain.sum() + _log_normal(states[later], before + shift, root).sum())


def _log_normal(states: np.ndarray, mean: np.ndarray, root: np.ndarray) -> np.ndarray:
    z, n = np.einsum("mba,mb->ma", root, states - mean), states.shape[1]
    return _log_det(root) - 0.5 * (z**2).sum(axis=1) - 0.5 * n * math.log(2.0 * math.pi)


def _log_det(root: np.ndarray) -> np.ndarray:
    return np.asarray(np.log(np.diagonal(root, axis1=1, axis2=2)).sum(axis=1))


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
