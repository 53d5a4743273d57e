"""The life of a step: built where it is made, again in workers, and anew for other data."""

import inspect
import math
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar, Self, Unpack, get_args, get_origin, get_type_hints

import numpy as np
import pymc as pm
from pymc.initial_point import PointType
from pymc.step_methods.compound import BlockedStep, Competence
from pymc.util import RandomGenerator, get_random_generator
from pytensor.graph.basic import Variable
from rich.progress import TextColumn
from rich.table import Column

from pymc_austerity.exceptions import warn
from pymc_austerity.model.bambi import is_of_bambi
from pymc_austerity.model.checks import (
    explained,
    refuse_data,
    require_some_sound_rows,
    warn_of_long_deterministics,
)
from pymc_austerity.model.factorise import model_of, value_variables
from pymc_austerity.model.graph.log_density import Fingerprint, LogDensityGraph, fingerprint
from pymc_austerity.model.graph.many import many_graphs
from pymc_austerity.model.starting_point import initial_point as default_point
from pymc_austerity.model.stored_data import files_of, refuse_on_disk
from pymc_austerity.progress import stage, watched
from pymc_austerity.step_methods.messages import text
from pymc_austerity.validation import is_real, is_whole, nearest

_PACKAGE = __name__.partition(".")[0]
# A column of the progress bar: the statistic that it shows, its digits and title, by the name of the field.
ROWS = {"n_used": ("n_used", ",.0f", "Rows")}


def floats(*names: str) -> dict[str, tuple[type, list[int]]]:
    """Types and shapes of sample statistics that are one number each."""
    return {name: (np.float64, []) for name in names}


class _Signature:
    """Parameters of a step, with the keywords that it hands on, for `inspect.signature` and completion."""

    def __get__(self, step: Any, owner: type) -> inspect.Signature:
        return inspect.Signature(parameters_of(owner))


class RebuiltStep(BlockedStep):
    """A step whose pickles and copies leave out what has size N or is compiled.

    1. Where it is made, `_build` finds out all that it needs to know of the model, and compiles.
    2. A pickle leaves out the attributes that are named in `_rebuilt`; they are None afterwards.
    3. Where it is first stepped elsewhere, `_rebuild` compiles for what was found out before.
    4. Where a chain begins and data were replaced since (`pm.set_data`), it is built anew.
    5. So it is where data are replaced between two draws, with a warning. PyMC's own steps have the new data
       in the next draw, and steps of one chain must not differ in their data. It takes a set-up each time.

    Before each draw a step looks only at which arrays the shared data are. What is written into an array in
    place (``get_value(borrow=True)[0] = 1``) is noticed where a chain begins, and not within a chain.
    """

    default_blocked = True
    # Attributes that are made again in every process; the last of them tells whether the step is built.
    _rebuilt: ClassVar[tuple[str, ...]]
    # Columns of the progress bar.
    _columns: ClassVar[dict[str, tuple[str, str, str]]] = {}
    # Whether it reads single rows of data on disk.
    _reads_disk: ClassVar[bool] = False
    # Fingerprints of the data that the step was built for.
    _data_seen: list[Fingerprint] | None = None
    # Where the last draw of a chain of `pymc.sample`, whose generators are spawned, left the variables.
    _left: PointType | None = None
    _to_make = 0  # draws of this chain that are not made yet
    # Whether this chain has told that data were replaced while it ran.
    _told_of_data = False
    # Defaults of keywords that a step hands on, if they are not None.
    _defaults: ClassVar[dict[str, Any]] = {"blocked": True, "progressbar": True}
    # What a step shows of itself to those who look at its attributes: all else is for other rooms, and PyMC.
    _shown: ClassVar[tuple[str, ...]] = ("configuration", "model", "step", "vars")
    __signature__ = _Signature()
    _model: Any
    _vars: list[Variable]

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if name.startswith("__") or name in self._shown]

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """PyMC's, for keywords that the step has. With ``blocked=False`` these are several steps."""
        refuse_unknown(cls, kwargs)
        if args and (isinstance(args[0], pm.Model) or is_of_bambi(args[0])):
            raise TypeError(
                f"The first argument of {cls.__name__} are its variables, not the model: write model=model."
            )
        step: Self = super().__new__(cls, *args, **{**kwargs, "model": model_of(kwargs.get("model"))})
        return step

    # What a subclass does -------------------------------------------------------------------

    def _build(self, point: PointType) -> None:
        """Find out what the step needs to know of the model, and compile."""
        raise NotImplementedError

    def _rebuild(self, point: PointType) -> bool:
        """Compile for what was found out in another process; False if the data in this one are others."""
        raise NotImplementedError

    def _graphs(self) -> Iterable[LogDensityGraph]:
        """Graphs of the log density that this process has built from."""
        raise NotImplementedError

    def _step(self, point: PointType) -> tuple[PointType, list[dict[str, Any]]]:
        """A draw from `point`, and its statistics."""
        raise NotImplementedError

    def _begin_chain(self, n_tune: int) -> None:
        """Forget what earlier chains have left."""

    def _point_for_other_data(self) -> PointType:
        """Values of all variables for data whose shapes may be others."""
        return default_point(self._model)

    def _own(self, memo: dict[int, Any]) -> dict[str, Any]:
        """Attributes that a copy must not share, besides the sampling state."""
        return {}

    def _settings(self) -> dict[str, Any]:
        """What `configuration` has besides the class and the variables."""
        raise NotImplementedError

    # The life of a step ---------------------------------------------------------------------

    @property
    def is_built(self) -> bool:
        """Whether this process has built the step."""
        return getattr(self, self._rebuilt[-1]) is not None

    @property
    def model(self) -> Any:
        """The model that the step was made for."""
        return self._model

    @property
    def own_vars(self) -> list[Variable]:
        """`vars`, whatever the context."""
        return self._vars

    @property
    def vars(self) -> list[Variable]:
        """Value variables that the step updates.

        `pymc.sample` looks at them first, in the context of its model: another one is refused here.
        """
        context = pm.Model.get_context(error_if_none=False, allow_block_model_access=True)
        if context is not None and not set(self._vars).issubset(context.value_vars):
            names = ", ".join(str(value.name) for value in self._vars)
            known = ", ".join(rv.name for rv in context.free_RVs)
            raise ValueError(
                f"This {type(self).__name__} was made for {names} of another model than the one of the "
                f"context, whose free variables are {known}. Make the step within `with model:`, for the "
                "model that is sampled."
            )
        return self._vars

    @vars.setter
    def vars(self, given: list[Variable]) -> None:
        self._vars = given

    def _made_for(self, vars: Any, model: Any, rng: Any, compile_kwargs: dict[str, Any] | None) -> None:
        """Take the keywords of all steps."""
        warn_of_compile_kwargs(self, compile_kwargs)
        self._model = model_of(model)
        self.vars = value_variables(self._model, vars)
        self.rng = get_random_generator(rng)

    def _build_first(self, initial_point: PointType | None, progressbar: bool) -> PointType:
        """Build at a given point, or where chains begin, and show how far that is; returns the point."""
        with watched(type(self).__name__, progressbar):
            stage("reading the model")
            point = default_point(self._model) if initial_point is None else initial_point
            warn_of_long_deterministics(self._model, point)
            self._build_anew(point)
        return point

    def _fingerprints(self) -> list[Fingerprint]:
        return [fingerprint(graph) for graph in self._graphs()]

    def _check_rows(self) -> None:
        """Compare some chunks of data on disk with their checksums."""
        for graph in self._graphs():
            require_some_sound_rows(graph)

    def _build_anew(self, point: PointType) -> None:
        """Build; if that fails, nothing of older data is left to be used."""
        self._data_seen = None
        self.__dict__.update(dict.fromkeys(self._rebuilt))
        if not self._reads_disk:
            refuse_on_disk(self._model, type(self).__name__)
        refuse_data(self._model)
        with many_graphs(), explained(self._model, point):
            self._build(point)
        self._data_seen = self._fingerprints()

    def require_built(self, point: PointType) -> bool:
        """Build the step if this process has not; were the data others than where it was made?

        If it has, build anew for data that were replaced since.
        """
        if self.is_built:
            for graph in self._graphs():
                for storage, value in graph.seen:  # takes a tenth of the time of `get_value`
                    if storage[0] is not value:
                        return self._follow_data(graph.replaced_data(), point)
            return False
        if self._data_seen is not None:
            with many_graphs():
                if self._rebuild(point):
                    self._check_rows()
                    return False
        self._build_anew(point)
        return True

    def _adopts_data(self) -> bool:
        """Whether what is in the shared data is what the step was built for, in other arrays or not."""
        if self._fingerprints() != self._data_seen:
            return False
        for graph in self._graphs():
            graph.adopt_data()
        return True

    def _follow_data(self, replaced: str | None, point: PointType) -> bool:
        """Within a chain, build anew unless data were replaced by equal ones; were they others?"""
        if self._adopts_data():
            return False
        for name, value in self._point_for_other_data().items():
            if np.shape(point[name]) != value.shape:
                raise ValueError(
                    f"The data {replaced!r} were replaced (pm.set_data) while a chain ran. With them "
                    f"{name!r} has the shape {value.shape}, and the chain is at a point where it has the "
                    f"shape {np.shape(point[name])}. Begin another chain: pm.sample."
                )
        if not self._told_of_data:
            warn(
                f"The data {replaced!r} were replaced (pm.set_data) while a chain ran. {type(self).__name__} "
                "is set up anew for them, here and at each such change, and forgets what it has learnt while "
                "tuning. Data that are drawn in each draw take less time as variables of the model."
            )
            self._told_of_data = True
        self._build_anew(point)
        return True

    def setup_chain(self, rng: RandomGenerator, tune: int, draws: int) -> None:
        """Start a chain afresh; rebuild if shared data have changed since the step was built."""
        super().setup_chain(rng, tune, draws)
        seeds = getattr(getattr(rng, "bit_generator", None), "seed_seq", None)
        self._left, self._to_make = None, (tune + draws) * bool(getattr(seeds, "spawn_key", ()))
        self._told_of_data = False
        if self.is_built:
            if self._adopts_data():
                self._check_rows()
            else:
                self._build_anew(self._point_for_other_data())
        self._begin_chain(tune)

    def step(self, point: PointType) -> tuple[PointType, list[dict[str, Any]]]:
        """A draw from `point`, and its statistics."""
        if self._left is not None:
            refuse_moved(self, point, self._left)
        new_point, stats = self._step(point)
        self._to_make -= 1
        self._left = new_point if self._to_make > 0 else None
        return new_point, stats

    @property
    def sampling_state(self) -> Any:
        """All that the step carries from draw to draw; a chain that goes on from it may be at any point."""
        return super().sampling_state

    @sampling_state.setter
    def sampling_state(self, state: Any) -> None:
        self._left, self._to_make = None, 0
        BlockedStep.sampling_state.fset(self, state)

    # Copies and pickles ---------------------------------------------------------------------

    def __getnewargs_ex__(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (self._vars,), {"model": self._model, "blocked": True}

    def __getstate__(self) -> dict[str, Any]:
        """Leave out whatever has size N or is compiled."""
        state = self.__dict__.copy()
        state.update(dict.fromkeys([*self._rebuilt, "_left"]))
        state.pop("_BlockedStep__newargs", None)  # holds initial_point=; see __getnewargs_ex__
        return state

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Copy what changes while sampling; model and compiled code are shared."""
        clone = object.__new__(type(self))
        clone.__dict__.update(self.__dict__)
        clone.sampling_state = self.sampling_state
        clone.__dict__.update(self._own(memo))
        return clone

    # What a step tells of itself ------------------------------------------------------------

    @property
    def configuration(self) -> dict[str, Any]:
        """How the step is set up: all that changes its distribution or its cost, as JSON can hold it."""
        names = [str(self._model.values_to_rvs[v].name) for v in self._vars]
        files = files_of(self._model)
        stored = {"stored_data": files} if files else {}
        return {"step": type(self).__name__, "vars": names, **self._settings(), **stored}

    def __repr__(self) -> str:
        return text(self.configuration)

    def _progressbar_config(self, n_chains: int = 1) -> tuple[list[TextColumn], dict[str, list[float]]]:
        """Columns of the progress bar, and what they begin with."""
        columns = [
            TextColumn(f"{{task.fields[{name}]:{digits}}}", table_column=Column(title, ratio=1))
            for name, (_, digits, title) in self._columns.items()
        ]
        return columns, {name: [0.0] * n_chains for name in self._columns}

    def _make_progressbar_update_functions(self) -> tuple[Any, ...]:
        """A function from the statistics of a draw to the fields of the columns."""
        shown = {name: statistic for name, (statistic, _, _) in self._columns.items()}
        return (lambda stats: {name: stats[statistic] for name, statistic in shown.items()},)

    @staticmethod
    def competence(var: Variable, has_grad: bool) -> Competence:
        """Never assigned automatically: whether to approximate is the user's decision."""
        return Competence.INCOMPATIBLE


def warn_of_compile_kwargs(step: RebuiltStep, compile_kwargs: dict[str, Any] | None) -> None:
    """Say that options of PyTensor's compiler are not used."""
    if compile_kwargs:
        warn(
            f"{type(step).__name__} compiles with numba whatever compile_kwargs says; "
            f"{compile_kwargs!r} was not used."
        )


def checked_steps_per_draw(given: Any) -> int:
    """Check the option `steps_per_draw`."""
    if not is_whole(given) or given < 1:
        raise ValueError(f"steps_per_draw must be a positive integer, got {given!r}.")
    return int(given)


def checked_batch_size(given: Any) -> int | float | None:
    """Check `batch_size`, None for all rows, a number or a share, as far as that is possible without data."""
    if given is None or (is_whole(given) and given >= 1):
        return None if given is None else int(given)
    if is_real(given) and not is_whole(given) and 0.0 < given < 1.0:
        return float(given)
    raise ValueError(
        f"batch_size must be None, a positive integer, or a share between 0 and 1, got {given!r}."
    )


def batch_rows(size: int | float | None, n_rows: int, variable: str, longest: tuple[str, int]) -> int | None:
    """Rows of a minibatch, None for all; `longest` is the longest term of the variable, and its length."""
    if size is None:
        return None
    if not n_rows:
        raise ValueError(
            f"batch_size={size}, but no term that contains {variable!r} has rows to draw: the longest is "
            f"{longest[0]!r} with {longest[1]}. Use batch_size=None for this variable."
        )
    if size > n_rows:
        raise ValueError(
            f"batch_size must be at most {n_rows}, the number of rows of the terms that contain "
            f"{variable!r} (the longest is {longest[0]!r}), got {size}. Use batch_size=None for all."
        )
    return math.ceil(size * n_rows) if isinstance(size, float) else size


def parameters_of(step: type) -> list[inspect.Parameter]:
    """Parameters of a step: those of `__init__`, and those that it hands on."""
    found: dict[str, inspect.Parameter] = {}
    for owner in step.__mro__:
        init: Any = vars(owner).get("__init__")
        if init is None:
            continue
        parameters = list(inspect.signature(init).parameters.values())[1:]
        others = [p.name for p in parameters if p.kind is p.VAR_KEYWORD]
        for p in parameters:
            if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD):
                found.setdefault(p.name, p)
        if not others:
            break
        # Annotations of a class of somebody else may not be known: what it hands on are those of its base.
        hint = get_type_hints(init).get(others[0]) if owner.__module__.startswith(_PACKAGE) else None
        if get_origin(hint) is Unpack:
            defaults: dict[str, Any] = getattr(step, "_defaults", {})
            for name in get_type_hints(get_args(hint)[0]):
                p = inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=defaults.get(name))
                found.setdefault(name, p)
            break
    return sorted(found.values(), key=lambda p: p.kind)


def steps_of_package(kind: type) -> Iterator[type]:
    """Steps of this package that can be made, as far as they are imported."""
    each: type
    for each in kind.__subclasses__():
        if each.__module__.startswith(_PACKAGE):
            yield from steps_of_package(each)
            if hasattr(each, "name"):
                yield each


def refuse_unknown(step: type, given: Iterable[str]) -> None:
    """Raise `TypeError` naming the first keyword that a step does not have, and which or who has it."""

    def names_of(step: type) -> list[str]:
        return [p.name for p in parameters_of(step)]

    known = names_of(step)
    for name in given:
        if name in known:
            continue
        owners = [each.__name__ for each in steps_of_package(RebuiltStep) if name in names_of(each)]
        if owners:
            raise TypeError(f"{step.__name__} has no option {name!r}: it is one of {' and '.join(owners)}.")
        raise TypeError(
            f"{step.__name__} has no option {name!r}.{nearest(name, known)} Its options: {', '.join(known)}."
        )


# Steps that move the same variable side by side: PyMC does not tell a step of the others ----------


def moved_twice(name: str, first: str, second: str) -> ValueError:
    """The error for a variable that two steps of a chain move."""
    return ValueError(
        f"{name} would be moved by two steps, {first} and {second}. Give each variable to one step: "
        f"{first}(vars=[...])."
    )


def require_steps_of(model: pm.Model, steps: Iterable[Any]) -> None:
    """Raise `ValueError` if some step is one of another model, or two of them move the same variable."""
    owners: dict[Variable, Any] = {}
    for step in steps:
        for value in step.vars:
            if value not in model.values_to_rvs:
                raise ValueError(
                    f"{type(step).__name__} moves {str(value.name)!r} of another model, even if this one has "
                    "the same names. Make the step anew, with model= as it is now."
                )
            owner = owners.setdefault(value, step)
            if owner is not step:
                name = repr(str(model.values_to_rvs[value].name))
                raise moved_twice(name, type(owner).__name__, type(step).__name__)


def refuse_moved(step: Any, point: PointType, left: PointType) -> None:
    """Raise `ValueError` if a variable of the step is not where its last draw left it."""
    if point is left:
        return
    for value in step.own_vars:
        name = str(value.name)
        if point[name] is not left[name] and not np.array_equal(point[name], left[name]):
            raise moved_twice(
                repr(str(step.model.values_to_rvs[value].name)), type(step).__name__, "another of this chain"
            )
