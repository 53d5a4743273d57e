"""Why no chain could start: rows of the data that no state makes possible, or the start itself.

A log density that is not finite at the start may be finite nearby, where `pm.sample` lets chains start. If it
is not, the rows that are in the way are looked at: their data may be missing or infinite, or outside of the
support of the likelihood. Else the start is to blame.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pymc as pm
import pytensor
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import ancestors, graph_inputs
from pytensor.tensor.type import TensorType
from pytensor.xtensor.type import XTensorType

from pymc_austerity.distributions.orthonormal_density import nearest_orthonormal, orthonormal_names
from pymc_austerity.exceptions import SelfCheckError, UnsuitableError
from pymc_austerity.model.graph.functions import function_of
from pymc_austerity.model.graph.log_density import as_values, raw_terms
from pymc_austerity.model.graph.rewrite import INTERPRETED, INTERPRETED_STABLE, rebuild
from pymc_austerity.model.observations import WIDER, Position, as_given, listed, positions
from pymc_austerity.model.starting_point import dispersed_points

# Points near the start: as often pm.sample tries. Draws from the prior.
_NEAR, _DRAWS = 10, 8
_SEED = 2017
# A count below this is no code of somebody's.
_WRAPPED = -1000


class ImpossibleDataError(ValueError):
    """Rows of the data are in the way, and not where the chain starts."""


class _Bad(NamedTuple):
    """Rows of a term whose log density is finite nowhere.

    Attributes
    ----------
    name : str
    rows : ndarray of bool
        Which, in the shape of the log densities.
    value : float
        What the first of them is at the first point.
    """

    name: str
    rows: npt.NDArray[np.bool_]
    value: float

    @property
    def first(self) -> Position:
        """The first of them; an empty tuple, if the term is one number."""
        return positions(self.rows)[0]

    @property
    def is_everywhere(self) -> bool:
        """All rows of several?"""
        return self.rows.size > 1 and bool(self.rows.all())

    def __str__(self) -> str:
        where = f" in {listed(self.rows)}" if self.rows.ndim else ""
        if self.is_everywhere:
            where = f" in all {self.rows.size:,} rows"
        return f"{self.without_rows}{where}"

    @property
    def without_rows(self) -> str:
        """What is said where one number of the data spoils all rows, as in a check of parameters."""
        return f"The log density of the term {self.name!r} is {self.value}"


@np.errstate(all="ignore")
def require_start(model: pm.Model, point: Mapping[str, Any]) -> None:
    """Raise `ValueError` if no chain could start at `point` or near it, and say why.

    That is, if rows of the data are possible nowhere near it, if rows that are not possible at `point` have
    data that are not finite, or if the log density is finite neither there nor near it. Nothing is compiled.
    Where chains can start all terms are evaluated once or a few times.
    """
    for name, value in point.items():
        if not np.all(np.isfinite(value)):
            raise ValueError(
                f"{name} starts at {np.asarray(value)}, which is not finite: its initval is outside of its "
                "support. Give one inside."
            )
    terms, rng = _Terms(model), np.random.default_rng(_SEED)
    orthonormal = orthonormal_names(terms.graphs.values())
    near = [_jittered(point, rng, orthonormal) for _ in range(_NEAR)]
    observed = {rv.name: model.rvs_to_values[rv] for rv in model.observed_RVs}
    if not all(terms.not_finite(each) for each in near):
        for bad in terms.nowhere_finite([point]):  # half of the line may do with an infinite covariate
            if bad.name in observed and (why := _in_data(observed[bad.name], terms.graphs[bad.name], bad)):
                raise ImpossibleDataError(f"{_spoilt(bad)} at the start: {why}")
        return
    draws = dispersed_points(model, point, [v.name for v in model.value_vars], _DRAWS, rng)
    for bad in terms.nowhere_finite(near):
        if bad.name in observed:
            value = observed[bad.name]
            if why := _in_data(value, terms.graphs[bad.name], bad):
                raise ImpossibleDataError(f"{_spoilt(bad)} wherever a chain may start: {why}")
            if why := _outside(value, terms, bad, [*near, *draws]):
                raise ImpossibleDataError(f"{bad} wherever a chain may start: {why}")
    for bad in terms.nowhere_finite([point]):
        there = ""
        if bad.name in observed:
            there = f" The observation is {_at(as_given(observed[bad.name]), bad.first)}."
        raise ValueError(
            f"{bad} at the start.{there} No point was found near it where the log density of the model is "
            "finite. Start where it is, by initval= of the variables; or no parameters make the data "
            "possible."
        )


@contextmanager
def impossible_explained(
    model: pm.Model, point: Mapping[str, Any], *, by_start: bool = True
) -> Iterator[None]:
    """Within it, an error that is due to data that are impossible, or to the start, says so."""
    try:
        yield
    except (UnsuitableError, SelfCheckError):
        try:
            require_start(model, point)
        except ValueError as why:
            if by_start or isinstance(why, ImpossibleDataError):
                raise why from None
        raise


class _Terms:
    """The terms of a model as PyMC computes them, one number for each row."""

    def __init__(self, model: pm.Model) -> None:
        self._model = model
        self.graphs = raw_terms(model, None)
        # Labels of dims say nothing about numbers, and are taken off.
        self._plain = {v: _plain(v) for v in graph_inputs(self.graphs.values()) if _is_labelled(v)}
        # Operations that hide others are opened: PyTensor would compile these, whatever the mode.
        self._opened = self.rebuilt(self.graphs.values(), {})
        self._quick = self.compiled(self._opened, [], INTERPRETED)
        self._stable: Any = None

    def rebuilt(self, graphs: Iterable[Variable], instead: dict[Variable, Variable]) -> list[Variable]:
        return rebuild(graphs, {**self._plain, **instead})

    def compiled(self, graphs: list[Variable], inputs: list[Variable], mode: Any) -> Any:
        values = [self._plain.get(v, v) for v in self._model.value_vars]
        return function_of([*values, *inputs], graphs, mode=mode)

    def values(self, point: Mapping[str, Any]) -> list[np.ndarray]:
        return list(as_values(self._model.value_vars, point).values())

    def not_finite(self, point: Mapping[str, Any]) -> dict[str, npt.NDArray[np.float64]]:
        """Terms that are not finite everywhere, after PyTensor's rewrites for numerical stability."""
        found = self._quick(*self.values(point))
        if all(np.all(np.isfinite(each)) for each in found):
            return {}
        if self._stable is None:
            self._stable = self.compiled(self._opened, [], INTERPRETED_STABLE)
        found = map(np.asarray, self._stable(*self.values(point)))
        return {n: each for n, each in zip(self.graphs, found, strict=True) if not np.all(np.isfinite(each))}

    def nowhere_finite(self, points: Sequence[Mapping[str, Any]]) -> list[_Bad]:
        """Terms with rows that are finite at none of some points."""
        first, *others = (self.not_finite(point) for point in points)
        result = []
        for name, value in first.items():
            bad = ~np.isfinite(value)
            for other in others:
                bad &= ~np.isfinite(other[name]) if name in other else False
            if bad.any():
                result.append(_Bad(name, bad, float(value[positions(bad)[0]])))
        return result


def _spoilt(bad: _Bad) -> str:
    return bad.without_rows if bad.is_everywhere else str(bad)


def _in_data(value: Variable, graph: Variable, bad: _Bad) -> str:
    """What is missing or infinite in the data of these rows; empty if nothing is.

    What is so in other rows too does no harm.
    """
    sources = [("the observation", as_given(value))]
    sources += [
        (f"the data {var.name!r}" if var.name else f"a covariate (array of shape {found.shape})", found)
        for var in ancestors([graph])
        if var is not value and (found := _data(var)) is not None
    ]
    for what, found in sources:
        if found.dtype.kind != "f":
            continue
        wrong = ~np.isfinite(found)
        if bad.rows.ndim and found.shape[:1] == bad.rows.shape[:1]:
            of_rows = wrong.reshape(len(wrong), -1).any(axis=1)
            guilty = bool(np.all(bad.rows.reshape(len(wrong), -1).any(axis=1)[of_rows]))
        else:  # of groups, say: infinite numbers may be meant as bounds
            wrong, guilty = np.isnan(found), True
        if wrong.any() and guilty:
            first = positions(wrong)[0]
            of_pymc = "PyMC does, where observations are a plain array and hold NaN"
            if found is not sources[0][1]:
                of_pymc = "PyMC imputes observations only"
            return (
                f"{what} is {found[first]} in {listed(wrong)}. Leave such rows out, or impute what is "
                f"missing: {of_pymc}."
            )
    return ""


def _outside(value: Variable, terms: _Terms, bad: _Bad, points: Sequence[Mapping[str, Any]]) -> str:
    """Is the observation outside of the support? Nowhere, and in no row, is the log density finite with it.

    All points are random: a Beta density is finite at 0 where a parameter is 1, and nowhere else.

    Other observations must be possible: else it is the points that are not.
    """
    graph = terms.graphs[bad.name]
    others = [terms.not_finite(point).get(bad.name) for point in points]
    possible = any(each is None or np.any(np.isfinite(each)) for each in others)
    observed = as_given(value)
    if not possible or observed.shape != bad.rows.shape or value not in set(ancestors([graph])):
        return ""
    one = observed[bad.first]
    given = TensorType(value.type.dtype, value.type.shape)("given")
    log_density = terms.compiled(terms.rebuilt([graph], {value: given}), [given], INTERPRETED_STABLE)
    same = np.full(observed.shape, one).astype(value.type.dtype)
    if any(np.any(np.isfinite(log_density(*terms.values(point), same)[0])) for point in points):
        return ""
    if observed.dtype.kind in "iu" and one < _WRAPPED:
        return f"the observation is {one}. PyMC may have made it of a larger number. {WIDER}"
    return (
        f"the observation is {one}, which has no density at {len(points)} points, draws from the prior among "
        "them: it is outside of the support of the likelihood. Correct the data, or use another "
        "distribution. Where the support depends on parameters, start inside, by initval= of the variables."
    )


def _is_labelled(var: Variable) -> bool:
    return isinstance(var.type, XTensorType) and not isinstance(var, Constant)


def _plain(var: Variable) -> Variable:
    """The same numbers without labels."""
    if isinstance(var, SharedVariable):
        return pytensor.shared(var.get_value(borrow=True), name=var.name, borrow=True)
    return TensorType(var.type.dtype, var.type.shape)(var.name)


def _data(var: Variable) -> np.ndarray | None:
    """A vector or more of data; None for all else."""
    value: Any = None
    if isinstance(var, SharedVariable):
        value = var.get_value(borrow=True)
    elif isinstance(var, Constant):
        value = var.data
    # pm.set_data makes masked arrays of those with NaN.
    return np.asarray(value) if isinstance(value, np.ndarray) and value.ndim else None


def _jittered(
    point: Mapping[str, Any], rng: np.random.Generator, orthonormal: set[str]
) -> dict[str, np.ndarray]:
    """Continuous variables moved by up to 1, as pm.sample does; orthonormal columns remain so."""
    values = {name: np.asarray(value) for name, value in point.items()}
    moved = {
        name: value + rng.uniform(-1.0, 1.0, value.shape) if value.dtype.kind == "f" else value
        for name, value in values.items()
    }
    return moved | {name: nearest_orthonormal(moved[name]) for name in orthonormal}


def _at(observed: np.ndarray, position: Position) -> str:
    return np.array2string(observed[position[: observed.ndim]], threshold=6)
