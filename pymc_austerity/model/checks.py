"""Is a model all right, and if not, what is wrong and where? Before its set-up, and where that fails.

- Before a set-up: `refuse_data` of what is empty, or observations that PyMC would change in silence;
  `warn_of_long_deterministics`.
- Before anything is computed from rows on disk: `require_sound_rows` in one pass, whether they are what they
  were, and finite. Where a later chain begins: `require_some_sound_rows`.
- Where a set-up or a first draw fails: `explained` asks whether an index of the data is to blame
  (`require_lookups`), or rows that no state makes possible, or the start (`require_start`).

Whether terms are finite where a chain starts is in `starting_point`.
"""

import logging
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pymc as pm
import pytensor
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.traversal import ancestors, graph_inputs
from pytensor.tensor.subtensor import AdvancedSubtensor, indices_from_subtensor
from pytensor.tensor.type import TensorType
from pytensor.xtensor.type import XTensorType

from pymc_austerity.distributions.uniform_stiefel import orthonormal_names
from pymc_austerity.exceptions import SelfCheckError, UnsuitableError
from pymc_austerity.model.bambi import ROWS_OF_BAMBI
from pymc_austerity.model.factorisation import CHUNK
from pymc_austerity.model.graph.checks import array_of, uncast
from pymc_austerity.model.graph.functions import function_of
from pymc_austerity.model.graph.log_density import LogDensityGraph, as_values, raw_terms
from pymc_austerity.model.graph.rewrite import INTERPRETED, INTERPRETED_STABLE, rebuild
from pymc_austerity.model.graph.rows_on_disk import on_disk
from pymc_austerity.model.starting_point import dispersed_points, jittered_point
from pymc_austerity.progress import stage

logger = logging.getLogger(__name__)

# What PyMC adds to the name of a variable whose missing observations it imputes.
IMPUTED = "_unobserved"
# PyMC takes whole numbers to be no larger; and what to do about larger ones.
_LARGEST = 2**31 - 1
_WIDER = "It keeps whole numbers in 32 bits: give counts above 2,147,483,647 as floats."
# A count below this is no code of somebody's.
_WRAPPED = -1000
# Rows that a message names.
_NAMED_ROWS = 5
# Recording a Deterministic of this length at every draw costs more than most draws.
_LONG_DETERMINISTIC = 10_000
# Chunks of each array on disk that are read again where a chain begins.
_CHUNKS = 16
# Points near the start: as often pm.sample tries. Draws from the prior.
_NEAR, _DRAWS = 10, 8
_SEED = 2017


# Before a set-up ----------------------------------------------------------------------------


def refuse_data(model: pm.Model) -> None:
    """Raise `ValueError` naming what is empty, or observations that PyMC would change in silence."""
    for rv in model.free_RVs:
        if 0 in rv.type.shape:
            raise ValueError(
                f"{rv.name!r} has no elements (shape {rv.type.shape}). Leave it out of the model."
            )
    for rv in model.observed_RVs:
        given = _as_given(model.rvs_to_values[rv])
        if not given.size:
            raise ValueError(
                f"{rv.name!r} has no observations (shape {given.shape}): there is nothing to sample from. "
                "Give data, or leave the variable out."
            )
        if np.dtype(rv.type.dtype).kind in "iu":
            _refuse_changed_counts(str(rv.name), given)


def _refuse_changed_counts(name: str, given: np.ndarray) -> None:
    """Fractions of shared data are cut off, and whole numbers wrapped. Those of an array are gone already."""

    def changed(numbers: np.ndarray) -> npt.NDArray[np.bool_]:
        if given.dtype.kind in "iub":
            return (numbers > _LARGEST) | (numbers < -_LARGEST - 1)
        return np.isfinite(numbers) & (numbers != np.trunc(numbers))

    parts = [given] if not given.ndim else (given[a : a + CHUNK] for a in range(0, len(given), CHUNK))
    if not any(changed(part).any() for part in parts):
        return
    rows = changed(given)
    one = given[_positions(rows)[0]]
    where = f"The observation of {name!r} in {_listed(rows)}"
    if given.dtype.kind in "iub":
        raise ValueError(f"{where} is {one:,}: PyMC would take {one.astype(np.int32)} for it. {_WIDER}")
    raise ValueError(
        f"{where} is {one}, and {name!r} is discrete: PyMC would take {int(one)} for it. Correct the data, "
        "or use a continuous distribution."
    )


def _as_given(value: Variable) -> np.ndarray:
    """Observations as they were given, before they were made whole numbers."""
    value = uncast(value)
    if value in (rows := on_disk([value])):
        return np.asarray(rows[value].rows)
    return np.asarray(function_of([], value)())


def warn_of_long_deterministics(model: pm.Model, point: Mapping[str, Any]) -> None:
    """Tell of Deterministics that take longer to record than a draw, but for rows and effects of Bambi.

    A length that the graph does not tell is measured at `point`.
    """
    dims = model.named_vars_to_dims
    recorded = [
        det
        for det in model.deterministics
        if ROWS_OF_BAMBI not in dims.get(det.name, ()) and f"{det.name}_offset" not in model.named_vars
    ]
    shapes: dict[Variable, Any] = {det: getattr(det.type, "shape", (None,)) for det in recorded}
    sizes = {str(det.name): math.prod(shape) for det, shape in shapes.items() if None not in shape}
    if unknown := [det for det, shape in shapes.items() if None in shape]:
        graphs = model.replace_rvs_by_values([det + 0 for det in unknown])
        measure = function_of(model.value_vars, [graph.size for graph in graphs], mode=INTERPRETED)
        found = measure(*(np.asarray(point[v.name], dtype=v.type.dtype) for v in model.value_vars))
        sizes |= {str(det.name): int(size) for det, size in zip(unknown, found, strict=True)}
    for name, size in sizes.items():
        if size >= _LONG_DETERMINISTIC:
            logger.warning(
                "The Deterministic %r has %d elements and is computed at every draw; leave it out with "
                "pm.sample(var_names=...), and compute it afterwards with pm.compute_deterministics.",
                name,
                size,
            )


# Rows on disk -------------------------------------------------------------------------------


def require_sound_rows(graph: LogDensityGraph) -> None:
    """Compare every chunk with its checksum, and look for NaN and infinity.

    `ValueError` names the term, the column, the row and the chunk; or the file and chunk that have changed.
    """
    read = {name: set(ancestors([term])) for name, term in graph.terms.items()}
    for typed, rows in graph.on_disk.items():
        names = " and ".join(repr(name) for name, those in read.items() if typed in those)
        stage("checksums", f" of {len(rows):,} rows of {rows.name!r}")
        for number in range(rows.n_chunks):
            rows.chunk(number)
            try:
                rows.require_finite(number)
            except ValueError as error:
                raise ValueError(
                    f"The term {names} cannot be computed: {error} Leave such rows out, or write what is to "
                    "stand in their place."
                ) from None


def require_some_sound_rows(graph: LogDensityGraph) -> None:
    """Compare some chunks at random with their checksums; the error names the file and chunk."""
    rng = np.random.default_rng()  # others for every chain, whatever its seed
    for rows in graph.on_disk.values():
        rows.spot_check(rng, _CHUNKS)


# Where a set-up fails -----------------------------------------------------------------------


class ImpossibleDataError(ValueError):
    """Rows of the data are in the way, and not where the chain starts."""


@contextmanager
def explained(
    model: pm.Model, point: Mapping[str, Any] | None = None, *, by_start: bool = True
) -> Iterator[None]:
    """Within it, an error that is due to the data, or to the start, says so.

    The chain starts at `point`; without it only lookups are explained. The start may be to blame if
    `by_start`, else the data alone.
    """
    try:
        try:
            yield
        except (UnsuitableError, SelfCheckError):
            if point is not None:
                try:
                    require_start(model, point)
                except ValueError as why:
                    if by_start or isinstance(why, ImpossibleDataError):
                        raise why from None
            raise
    except IndexError:
        try:
            require_lookups(model)
        except ValueError as why:
            raise why from None
        raise


def require_lookups(model: pm.Model) -> None:
    """Raise `ValueError` naming term, value and row of an index of data outside of what it indexes."""
    for name, term in raw_terms(model, None).items():
        for node in dict.fromkeys(var.owner for var in ancestors([term]) if var.owner is not None):
            if isinstance(node.op, AdvancedSubtensor):
                _require_elements(model, name, node)


def _require_elements(model: pm.Model, term: str, node: Apply) -> None:
    looked_up, *given = node.inputs
    for size, index in zip(
        looked_up.type.shape, indices_from_subtensor(given, node.op.idx_list), strict=False
    ):
        if not isinstance(index, Variable) or index.type.dtype == "bool" or size is None:
            continue
        inputs = list(graph_inputs([index]))
        if not all(isinstance(one, Constant | SharedVariable) for one in inputs):
            continue
        values = np.asarray(function_of([], index)())
        wrong = _positions((values < -size) | (values >= size))
        if not wrong:
            continue
        row = wrong[0]
        called = next((f"{one.name!r} " for one in inputs if one.name), "")
        more = f" ({len(wrong):,} of {values.size:,} rows)" if len(wrong) > 1 else ""
        raise ValueError(
            f"The index {called}in row {row[0] if len(row) == 1 else row}{more} of the term {term!r} is "
            f"{values[row]}, and {_looked_up(model, looked_up)} has {size:,} elements (0, ..., {size - 1}). "
            "Correct the index, or the shape of the variable."
        )


def _looked_up(model: pm.Model, var: Variable) -> str:
    """The variable of the model that elements are looked up of, or the nearest of its length."""
    names = {value: str(rv.name) for rv, value in model.rvs_to_values.items()}
    if var in names:
        return repr(names[var])
    for used in ancestors([var]):
        if used in names and used.type.shape[:1] == var.type.shape[:1]:
            return f"what is looked up of {names[used]!r}"
    return "what is looked up"


@np.errstate(all="ignore")
def require_start(model: pm.Model, point: Mapping[str, Any]) -> None:
    """Raise `ValueError` if no chain could start at `point` or near it, and say why.

    A log density that is not finite at the start may be finite nearby, where `pm.sample` lets chains start.
    If it is not, the rows that are in the way are looked at: their data may be missing or infinite, or
    outside of the support of the likelihood. Else the start is to blame. Rows that are not possible at
    `point`, with data that are not finite, are refused even if other points make them possible.

    Nothing is compiled. Where chains can start all terms are evaluated once or a few times.
    """
    for name, value in point.items():
        if not np.all(np.isfinite(value)):
            _require_numbers(model, name)
            raise ValueError(
                f"{name} starts at {np.asarray(value)}, which is not finite: its initval is outside of its "
                "support. Give one inside."
            )
    terms, rng = _Terms(model), np.random.default_rng(_SEED)
    orthonormal = orthonormal_names(terms.graphs.values())
    near = [jittered_point(point, rng, 1.0, orthonormal) for _ in range(_NEAR)]
    observed = {rv.name: model.rvs_to_values[rv] for rv in model.observed_RVs}
    if not all(terms.not_finite(each) for each in near):
        for bad in terms.nowhere_finite([point]):  # half of the line may do with an infinite covariate
            if bad.name in observed and (why := _in_data(observed[bad.name], terms.graphs[bad.name], bad)):
                raise ImpossibleDataError(f"{bad.spoilt} at the start: {why}")
        return
    draws = dispersed_points(model, point, [v.name for v in model.value_vars], _DRAWS, rng)
    for bad in terms.nowhere_finite(near):
        if bad.name in observed:
            value = observed[bad.name]
            if why := _in_data(value, terms.graphs[bad.name], bad):
                raise ImpossibleDataError(f"{bad.spoilt} wherever a chain may start: {why}")
            if why := _outside(value, terms, bad, [*near, *draws]):
                raise ImpossibleDataError(f"{bad} wherever a chain may start: {why}")
    for bad in terms.nowhere_finite([point]):
        there = ""
        if bad.name in observed:
            value = _as_given(observed[bad.name])
            one = value[bad.first[: value.ndim]]
            there = f" The observation is {np.array2string(one, threshold=6)}.{_of_larger(one)}"
        raise ValueError(
            f"{bad} at the start.{there} No point was found near it where the log density of the model is "
            "finite. Start where it is, by initval= of the variables; or no parameters make the data "
            "possible."
        )


def _require_numbers(model: pm.Model, name: str) -> None:
    """Raise `ValueError` if the prior of the variable with this value has a parameter that is NaN."""
    rv = next(rv for rv, value in model.rvs_to_values.items() if value.name == name)
    for parameter in rv.owner.inputs:
        is_known = all(isinstance(one, Constant) for one in graph_inputs([parameter]))
        is_float = getattr(parameter.type, "dtype", "") in ("float32", "float64")
        if is_float and is_known and np.isnan(function_of([], parameter)()).any():
            raise ImpossibleDataError(
                f"The prior of {rv.name!r} has a parameter that is nan. Give it a number. Where priors are "
                "scaled by data, as Bambi scales them, some covariate or response is infinite or missing: "
                "leave such rows out, or impute what is missing."
            )


class _Bad(NamedTuple):
    """Rows of a term whose log density is finite nowhere."""

    name: str
    rows: npt.NDArray[np.bool_]  # which, in the shape of the log densities
    value: float  # of the first of them, at the first point

    @property
    def first(self) -> tuple[int, ...]:
        """The first of them; an empty tuple, if the term is one number."""
        return _positions(self.rows)[0]

    def __str__(self) -> str:
        where = f" in {_listed(self.rows)}" if self.rows.ndim else ""
        if self.rows.size > 1 and self.rows.all():
            where = f" in all {self.rows.size:,} rows"
        return f"The log density of the term {self.name!r} is {self.value}{where}"

    @property
    def spoilt(self) -> str:
        """Text of the bad rows, without their number if that is all: one number of the data spoils them."""
        return str(self).removesuffix(f" in all {self.rows.size:,} rows")


class _Terms:
    """The terms of a model as PyMC computes them, one number for each row."""

    def __init__(self, model: pm.Model) -> None:
        self._model = model
        self.graphs = raw_terms(model, None)
        # Labels of dims say nothing about numbers, and are taken off.
        inputs = graph_inputs(self.graphs.values())
        labelled = [v for v in inputs if isinstance(v.type, XTensorType) and not isinstance(v, Constant)]
        self._plain = {v: _plain(v) for v in labelled}
        self._quick = self.function(self.graphs.values(), INTERPRETED, {})

    def function(self, graphs: Iterable[Variable], mode: Any, given: Mapping[Variable, Variable]) -> Any:
        """Graphs as a function of the value variables, and of what is given in place of other variables.

        Operations that hide others are opened: PyTensor would compile these, whatever the mode.
        """
        values = [self._plain.get(v, v) for v in self._model.value_vars]
        opened = rebuild(graphs, {**self._plain, **given})
        return function_of([*values, *given.values()], opened, mode=mode)

    def values(self, point: Mapping[str, Any]) -> list[np.ndarray]:
        return list(as_values(self._model.value_vars, point).values())

    @cached_property
    def _stable(self) -> Any:
        return self.function(self.graphs.values(), INTERPRETED_STABLE, {})

    def not_finite(self, point: Mapping[str, Any]) -> dict[str, npt.NDArray[np.float64]]:
        """Terms that are not finite everywhere, after PyTensor's rewrites for numerical stability."""
        values = self.values(point)
        if all(np.all(np.isfinite(each)) for each in self._quick(*values)):
            return {}
        found = zip(self.graphs, map(np.asarray, self._stable(*values)), strict=True)
        return {name: each for name, each in found if not np.all(np.isfinite(each))}

    def nowhere_finite(self, points: Sequence[Mapping[str, Any]]) -> list[_Bad]:
        """Terms with rows that are finite at none of some points."""
        first, *others = (self.not_finite(point) for point in points)
        result = []
        for name, value in first.items():
            bad = ~np.isfinite(value)
            for other in others:
                bad &= ~np.isfinite(other[name]) if name in other else False
            if bad.any():
                result.append(_Bad(name, bad, float(value[_positions(bad)[0]])))
        return result


def _in_data(value: Variable, graph: Variable, bad: _Bad) -> str:
    """What is missing or infinite in the data of these rows; empty if nothing is.

    What is so in other rows too does no harm.
    """
    observed = _as_given(value)
    sources = [("the observation", observed)]
    sources += [
        (f"the data {var.name!r}" if var.name else f"a covariate (array of shape {found.shape})", found)
        for var in ancestors([graph])
        if var is not value and (found := array_of(var)) is not None
    ]
    for what, found in sources:
        if found.dtype.kind != "f":
            continue
        wrong = ~np.isfinite(found)
        if bad.rows.ndim and found.shape[:1] == bad.rows.shape[:1]:
            of_rows = wrong.reshape(len(wrong), -1).any(axis=1)
            if not np.all(bad.rows.reshape(len(wrong), -1).any(axis=1)[of_rows]):
                continue
        else:  # of groups, say: infinite numbers may be meant as bounds
            wrong = np.isnan(found)
        if wrong.any():
            of_pymc = "PyMC does, where observations are a plain array and hold NaN"
            if found is not observed:
                of_pymc = "PyMC imputes observations only"
            return (
                f"{what} is {found[_positions(wrong)[0]]} in {_listed(wrong)}. Leave such rows out, or "
                f"impute what is missing: {of_pymc}."
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
    observed = _as_given(value)
    if not possible or observed.shape != bad.rows.shape or value not in set(ancestors([graph])):
        return ""
    one = observed[bad.first]
    given = TensorType(value.type.dtype, value.type.shape)("given")
    log_density = terms.function([graph], INTERPRETED_STABLE, {value: given})
    same = np.full(observed.shape, one).astype(value.type.dtype)
    if any(np.any(np.isfinite(log_density(*terms.values(point), same)[0])) for point in points):
        return ""
    if larger := _of_larger(one):
        return f"the observation is {one}.{larger}"
    negative = " (a negative count)" if observed.dtype.kind in "iu" and one < 0 else ""
    return (
        f"the observation is {one}{negative}, which is outside of the support of the likelihood: it has no "
        f"density at {len(points)} points, draws from the prior among them. Correct the data, or use another "
        "distribution. Where the support depends on parameters, start inside, by initval= of the variables."
    )


def _of_larger(one: np.ndarray) -> str:
    """What is said of whole numbers that are so negative that larger ones may have been wrapped."""
    if one.dtype.kind not in "iu" or np.min(one) >= _WRAPPED:
        return ""
    return f" PyMC may have made it of a larger number. {_WIDER}"


def _plain(var: Variable) -> Variable:
    """A variable of the same numbers without labels."""
    if isinstance(var, SharedVariable):
        return pytensor.shared(var.get_value(borrow=True), name=var.name, borrow=True)
    return TensorType(var.type.dtype, var.type.shape)(var.name)


# Rows in messages ---------------------------------------------------------------------------


def _positions(bad: npt.NDArray[np.bool_]) -> list[tuple[int, ...]]:
    """Places of some numbers."""
    return [tuple(int(k) for k in each) for each in np.argwhere(bad)]


def _listed(rows: npt.NDArray[np.bool_]) -> str:
    """The first few of some rows, and how many there are."""
    found = _positions(rows)
    if len(found) == 1 and rows.ndim == 2:
        return "row {}, column {}".format(*found[0])
    named = ", ".join(str(p[0] if len(p) == 1 else p) for p in found[:_NAMED_ROWS])
    if len(found) == 1:
        return f"row {named}"
    return f"rows {named}{', ...' if len(found) > _NAMED_ROWS else ''} ({len(found):,} of {rows.size:,})"
