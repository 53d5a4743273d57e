"""Modes that say little of the posterior: scales that vanish, and components that may change places."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import pymc as pm
from pymc.logprob.transforms import LogTransform
from pytensor.graph.basic import Variable

from pymc_austerity.exceptions import warn
from pymc_austerity.model.factorisation import Factorisation
from pymc_austerity.model.graph.rewrite import INTERPRETED
from pymc_austerity.target import Vector

# Shares of a scale at which the density is looked at: where it rises at each, it is taken to rise for ever.
_SHARES = (0.1, 0.01)
# A scale that has come down to this share of its first value is on its way to zero.
_TINY = 1e-4
# Log densities are equal, and points are different, up to these. Between two modes it is lower by more than
# the last: two points of one hill are not two modes.
_EQUAL, _DIFFERENT, _VALLEY = 1e-9, 1e-3, 0.1
# Components among which permutations are looked for.
_MOST_COMPONENTS = 20


def vanishing_scales(
    model: pm.Model,
    fact: Factorisation,
    log_density: Callable[[Vector], float],
    start: Vector,
    q: Vector,
    *,
    stalled: bool,
) -> list[str]:
    """Names of positive variables that were on their way to zero, with a log density that keeps rising.

    Parameters
    ----------
    model : pymc.Model
    fact : Factorisation
        Of whose block q is the vector.
    log_density : callable
        As a function of q.
    start, q : ndarray of shape (D,)
        Where the search for the mode started, and where it ended.
    stalled : bool
        Whether it ended without a maximum. Then the density need not rise in the scale alone: effects go to
        zero together with their scale.
    """
    here = log_density(q)
    found, variables = [], _variables(model)
    for name, places in _places(fact).items():
        variable = variables[name]
        if not isinstance(model.rvs_to_transforms[variable], LogTransform):
            continue
        fallen = [place for place in places if q[place] - start[place] < math.log(_TINY)]
        if fallen and (stalled or any(_rises(log_density, here, q, place) for place in fallen)):
            found.append(str(variable.name))
    return found


def _rises(log_density: Callable[[Vector], float], here: float, q: Vector, place: int) -> bool:
    """Does the log density, `here` at q, rise as the scale whose logarithm is q[place] goes to zero?"""
    heights = [here]
    for share in _SHARES:
        smaller = q.copy()
        smaller[place] += math.log(share)
        heights.append(log_density(smaller))
    return bool(np.all(np.diff(heights) > 0.0))


def warn_of_vanishing(names: list[str]) -> None:
    """Say that the log density has no maximum, and what to do."""
    warn(
        f"find_mode found no mode: the log density rises for ever as {' and '.join(names)} "
        f"{'goes' if len(names) == 1 else 'go'} to zero, as the joint density of a hierarchy does, far from "
        "the bulk of the posterior. Fix the scale (leave it out of vars), or write the hierarchy non-centred."
    )


def warn_of_permutations(
    model: pm.Model,
    fact: Factorisation,
    log_density: Callable[[Vector], float],
    q: Vector,
    values: Mapping[str, np.ndarray],
) -> None:
    """Warn if exchanging components of variables leads from the mode q to another one as high.

    Parameters
    ----------
    model : pymc.Model
    fact : Factorisation
        Of whose block q is the vector.
    log_density : callable
        As a function of q.
    q : ndarray of shape (D,)
    values : dict of str to ndarray
        Values of the random variables at q, by name.
    """
    height = log_density(q)
    for names in _with_components(model, fact, values):
        exchanged = dict(values)
        for name in names:
            exchanged[name] = values[name][..., _exchange(values[name].shape[-1])]
        other = _vector_of(model, fact, exchanged)
        apart = np.abs(other - q).max()
        tolerance = _EQUAL * (1.0 + abs(height))
        if apart <= _DIFFERENT or not abs(log_density(other) - height) <= tolerance:
            continue
        if log_density((q + other) / 2.0) < height - _VALLEY - tolerance:
            warn(
                f"The posterior has several modes of equal height: exchanging components of "
                f"{' and '.join(names)} leaves the log density as it is. find_mode returns one of them, and "
                "chains that start elsewhere may stay at others. Order the components "
                "(transform=pm.distributions.transforms.ordered)."
            )
            return


def _with_components(
    model: pm.Model, fact: Factorisation, values: Mapping[str, np.ndarray]
) -> Iterator[tuple[str, ...]]:
    """Variables whose components may have to change places together: all of one length, then each alone."""
    of_length: dict[int, list[str]] = {}
    variables = _variables(model)
    for name in fact.var_names:
        variable = variables[name].name
        if values[variable].ndim and 2 <= values[variable].shape[-1] <= _MOST_COMPONENTS:
            of_length.setdefault(values[variable].shape[-1], []).append(variable)
    for names in of_length.values():
        yield tuple(names)
        if len(names) > 1:
            yield from ((name,) for name in names)


def _exchange(length: int) -> list[int]:
    """The first two of some components in each other's place."""
    return [1, 0, *range(2, length)]


def _vector_of(model: pm.Model, fact: Factorisation, values: Mapping[str, np.ndarray]) -> Vector:
    """The vector q of a block at given values of the random variables."""
    variables, graphs = _variables(model), []
    for name in fact.var_names:
        variable = variables[name]
        transform = model.rvs_to_transforms[variable]
        graphs.append(variable if transform is None else transform.forward(variable, *variable.owner.inputs))
    function = pm.compile(model.free_RVs, graphs, mode=INTERPRETED, on_unused_input="ignore")
    with np.errstate(all="ignore"):  # values that a transform does not allow, as of ordered variables
        parts = function(*(values[variable.name] for variable in model.free_RVs))
    return np.concatenate([np.ravel(part) for part in parts]).astype(np.float64)


def _variables(model: pm.Model) -> dict[str, Variable]:
    """Free random variables by the names of their value variables."""
    return {model.rvs_to_values[variable].name: variable for variable in model.free_RVs}


def _places(fact: Factorisation) -> dict[str, range]:
    """Coordinates of q of each variable of the block."""
    result, first = {}, 0
    for name in fact.var_names:
        size = math.prod(fact.graph.values[name].type.shape)
        result[name] = range(first, first + size)
        first += size
    return result
