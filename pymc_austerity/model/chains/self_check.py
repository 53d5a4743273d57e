"""Compare what a particle filter is made of with the model, once."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import pymc as pm

from pymc_austerity.exceptions import SelfCheckError
from pymc_austerity.model.chains.chain_model import ChainModel
from pymc_austerity.model.chains.moves import as_tables
from pymc_austerity.model.graph.functions import function_of
from pymc_austerity.model.graph.rewrite import INTERPRETED
from pymc_austerity.model.self_check import jittered

_SEED = 24


def log_density_of_path(chain: ChainModel, point: Mapping[str, np.ndarray], states: np.ndarray) -> float:
    """Log density of all states, up to one number, as the sum of what a particle filter calls.

    Parameters
    ----------
    chain : ChainModel
    point : dict
        Values of the other variables.
    states : ndarray, shape (n_sites, D)

    Raises
    ------
    FactorisationError
        If a state has no normal distribution.
    """
    layout = chain.found.layout
    args = chain.args(point)
    first, linear, _ = chain.moves(args)
    weighted, later = np.flatnonzero(chain.weighted), np.flatnonzero(~layout.is_first())
    total = _log_normal(states[layout.starts[:-1]], first.mean, first.root).sum()
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
    z = np.einsum("mba,mb->ma", root, states - mean)
    result: np.ndarray = (
        _log_det(root) - 0.5 * (z**2).sum(axis=1) - 0.5 * states.shape[1] * math.log(2.0 * math.pi)
    )
    return result


def _log_det(root: np.ndarray) -> np.ndarray:
    result: np.ndarray = np.log(np.diagonal(root, axis1=1, axis2=2)).sum(axis=1)
    return result


def check_chain(chain: ChainModel, model: pm.Model) -> None:
    """Exchange a path for another: the log density must change as the model says.

    The model's own terms need all states, and know nothing of what was done here.

    Raises
    ------
    SelfCheckError
        If it does not.
    FactorisationError
        If a state has no normal distribution.
    """
    graph, layout, name = chain.found.graph, chain.found.layout, str(chain.found.states.name)
    point = dict(zip(graph.values, jittered(graph), strict=True))
    full = function_of(model.value_vars, [t.sum() for t in graph.raw.values()], mode=INTERPRETED)
    rng = np.random.default_rng(_SEED)
    ours, theirs = [], []
    for _ in range(2):
        states = point[name].ravel()[layout.elements] + rng.normal(size=layout.elements.shape)
        ours.append(log_density_of_path(chain, point, states))
        h = np.empty(layout.elements.size)
        h[layout.elements] = states
        at = {**point, name: h.reshape(layout.shape)}
        with np.errstate(all="ignore"):
            theirs.append(float(np.sum(full(*(at[v.name] for v in model.value_vars)))))
    change, expected = ours[0] - ours[1], theirs[0] - theirs[1]
    # Differences of sums of many terms have the rounding errors of these sums.
    error = 1e-8 * (1.0 + max(map(abs, theirs)))
    if np.isfinite(change) and np.isfinite(expected) and abs(change - expected) > error:
        raise SelfCheckError(
            f"Self-check failed for the states {chain.found.name!r}: another path changes the log density "
            f"by {expected!r}, and the terms of its states by {change!r} (terms {', '.join(graph.raw)}). "
            "This is a defect of pymc_austerity: please report the model."
        )
