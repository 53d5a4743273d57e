"""Where a chain starts, and whether the log density is finite there."""

import logging
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pymc as pm
from pymc.initial_point import make_initial_point_expression
from pymc.pytensorf import replace_rng_nodes
from pytensor.compile.builders import OpFromGraph
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import toposort
from pytensor.scan.op import Scan

from pymc_austerity.distributions.uniform_stiefel import nearest_orthonormal
from pymc_austerity.exceptions import UnsuitableError, warn
from pymc_austerity.model.compile.backend import current_backend
from pymc_austerity.model.factorisation import Factorisation, point_of, some_rows
from pymc_austerity.model.graph.rewrite import INTERPRETED, INTERPRETED_STABLE

logger = logging.getLogger(__name__)

_NAMED_ROWS = 5
# Draws that are tried for a start, at most; and how far its log density may be below that at the center: so
# much, and more for each dimension.
_MOST_DRAWS, FAR_BELOW = 20, 50.0
# A series of this length takes longer to loop over in Python than to compile the loop.
_LONG = 10_000


def initial_point(model: pm.Model) -> dict[str, np.ndarray]:
    """Return what ``model.initial_point()`` does, without its loop in Python where a series is long.

    PyMC interprets the graph of the initial point. A `Scan` in it, as of `pm.AR`, then takes half a minute
    for a series of a million; compiled, it takes five seconds.
    """
    values = make_initial_point_expression(
        free_rvs=model.free_RVs,
        rvs_to_transforms=model.rvs_to_transforms,
        initval_strategies=model.rvs_to_initial_values,
        return_transformed=True,
    )
    pairs = zip(model.free_RVs, values, strict=True)
    if not any(_has_scan([value]) and _is_long(rv) for rv, value in pairs):
        return dict(model.initial_point())
    function = pm.compile([], replace_rng_nodes(values), mode=current_backend().mode)
    names = [model.rvs_to_values[rv].name for rv in model.free_RVs]
    return dict(zip(names, function(), strict=True))


def _has_scan(outputs: Sequence[Variable]) -> bool:
    inner = [node.op for node in toposort(outputs) if isinstance(node.op, Scan | OpFromGraph)]
    return any(isinstance(op, Scan) or _has_scan(op.fgraph.outputs) for op in inner)


def _is_long(rv: Variable) -> bool:
    known = getattr(rv.type, "shape", ())
    shape = rv.shape.eval(mode=INTERPRETED.including("ShapeOpt")) if None in known else known
    return max(shape, default=1) >= _LONG


@np.errstate(all="ignore")
def require_finite(factorisation: Factorisation, point: Mapping[str, Any], at_most: float = np.inf) -> float:
    """Raise `UnsuitableError` naming the term, and its first rows, that is not finite at `point`.

    Costs one evaluation of every term, on `at_most` rows of each; nothing is compiled. What is not finite is
    looked at again after PyTensor's rewrites for numerical stability, as PyMC would compute it. Returns the
    sum of the terms that were evaluated.
    """
    values, total = factorisation.point_values(point), 0.0
    leaves = factorisation.leaf_values
    for name, graph in factorisation.globals:
        for mode in (INTERPRETED, INTERPRETED_STABLE):
            value = factorisation.compile(graph.sum(), [], mode=mode)(*values, *leaves)
            if np.isfinite(value):
                total += float(value)
                break
        else:
            raise UnsuitableError(_message(name, float(value), ""))
    for term in factorisation.locals:
        quick = factorisation.compile(term.rows, [term.index], mode=INTERPRETED)
        stable = None
        for rows in some_rows(term.size, at_most):
            terms = quick(*values, rows, *leaves)
            sound = np.isfinite(terms)
            index, total = rows[~sound], total + float(terms[sound].sum())
            if not len(index):
                continue
            stable = stable or factorisation.compile(term.rows, [term.index], mode=INTERPRETED_STABLE)
            found = stable(*values, index, *leaves)
            bad = np.flatnonzero(~np.isfinite(found))
            if len(bad):
                first = index[bad[:_NAMED_ROWS]]
                first = (first if term.first is None else term.first[first]).tolist()
                where = f" in row {first[0]}" if len(bad) == 1 else f" in rows {first}"
                where += ", ..." if len(bad) > _NAMED_ROWS else ""
                raise UnsuitableError(_message(term.name, float(found[bad[0]]), where))
            total += float(found.sum())
    return total


def density_of_block(
    factorisation: Factorisation, point: Mapping[str, Any]
) -> Callable[[npt.NDArray[np.float64]], float]:
    """The log density of a state of the block, the others as at `point`; minus infinity if it is not finite.

    It reads all rows.
    """

    def log_density(q: npt.NDArray[np.float64]) -> float:
        try:
            return require_finite(factorisation, point_of(factorisation, q, point))
        except UnsuitableError:
            return -np.inf

    return log_density


def likely_draw(
    draw: Callable[[], tuple[npt.NDArray[np.float64], float]], lowest: float, names: str
) -> npt.NDArray[np.float64]:
    """A draw of a fitted distribution as a first state, drawn again where it is far less likely than others.

    `draw` returns a state of the block, and its log density in coordinates in which that varies little;
    `lowest` is the log density below which the posterior is not; `names` are for the warning.
    """
    best, highest = draw()
    for _ in range(_MOST_DRAWS - 1):
        if highest >= lowest:
            return best
        q, height = draw()
        if height > highest:
            best, highest = q, height
    if highest < lowest:
        warn(
            f"Of {_MOST_DRAWS} draws of the distribution that was fitted to {names} all are far less likely "
            f"than its center: the best by more than {lowest - highest:,.0f} in log density. The chain "
            "starts there, and may be on its way for long: tune for longer, or use pm.NUTS."
        )
    return best


def _message(name: str, value: float, where: str) -> str:
    return (
        f"The log density of the term {name!r} is {value}{where} at the start of the chain. Start from a "
        "point where the density is positive, by initval= of the variables or initvals= of pm.sample, "
        "and check the data and the support of the likelihood."
    )


def jittered_point(
    point: Mapping[str, Any], rng: np.random.Generator, width: float, orthonormal: Container[str]
) -> dict[str, np.ndarray]:
    """`point` with continuous variables moved by up to `width`; those that are orthonormal remain so."""
    result = {}
    for name, given in point.items():
        value = np.asarray(given)
        if value.dtype.kind == "f":
            value = value + rng.uniform(-width, width, value.shape)
        result[name] = nearest_orthonormal(value) if name in orthonormal else value
    return result


def dispersed_points(
    model: pm.Model, point: Mapping[str, np.ndarray], names: Sequence[str], n: int, rng: np.random.Generator
) -> list[dict[str, np.ndarray]]:
    """Points that differ from `point` in some value variables, which are drawn from the prior.

    Where the prior cannot be drawn from (pm.Flat, pm.CustomDist without a random function) they are
    `point` plus numbers between -1 and 1; 0 or 1 for discrete variables.
    """
    chosen = {model.rvs_to_values[rv].name: rv for rv in model.free_RVs}
    graphs = transformed(model, [chosen[name] for name in names])
    draws = None
    try:
        draws = pm.draw(graphs, draws=n, random_seed=int(rng.integers(2**31)), mode=INTERPRETED)
    # A flat prior has no draws, and draws of parents may be no parameters of a distribution.
    except (NotImplementedError, ValueError) as error:
        logger.debug("The prior of %s cannot be drawn from: %s", ", ".join(names), error)
    except Exception as error:  # random functions of users may raise anything, and nothing depends on them
        warn(
            f"The prior of {', '.join(names)} cannot be drawn from ({type(error).__name__}: {error}). Points "
            "near the start are used instead."
        )
    if draws is None:
        draws = []
        for value in (np.asarray(point[name]) for name in names):
            shape = (n, *value.shape)
            moves = rng.uniform(-1.0, 1.0, shape) if value.dtype.kind == "f" else rng.integers(0, 2, shape)
            draws.append((value + moves).astype(value.dtype))
    return [
        {**point, **{name: np.asarray(draw[k]) for name, draw in zip(names, draws, strict=True)}}
        for k in range(n)
    ]


def transformed(model: pm.Model, rvs: Sequence[Variable]) -> list[Variable]:
    """Values of random variables on the scale of their value variables."""
    transforms = [model.rvs_to_transforms[rv] for rv in rvs]
    return [
        rv if transform is None else transform.forward(rv, *rv.owner.inputs)
        for rv, transform in zip(rvs, transforms, strict=True)
    ]


def vectors(
    model: pm.Model, fact: Factorisation
) -> Callable[[Mapping[str, npt.NDArray[Any]]], npt.NDArray[np.float64]]:
    """The vector q of a block as a function of values of the free random variables, by name."""
    graphs = transformed(model, [model[fact.graph.variables[name]] for name in fact.var_names])
    function = pm.compile(model.free_RVs, graphs, mode=INTERPRETED, on_unused_input="ignore")

    @np.errstate(all="ignore")  # values that a transform does not allow, as of ordered variables
    def vector(values: Mapping[str, npt.NDArray[Any]]) -> npt.NDArray[np.float64]:
        parts = function(*(values[variable.name] for variable in model.free_RVs))
        return np.concatenate([np.ravel(part) for part in parts]).astype(np.float64)

    return vector
