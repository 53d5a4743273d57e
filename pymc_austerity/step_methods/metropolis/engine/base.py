"""A kernel compiled around a model: what the engines of all steps have in common."""

import inspect
import math
from collections.abc import Callable, Sequence
from copy import copy
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from pymc.initial_point import PointType

from pymc_austerity.exceptions import warn
from pymc_austerity.kernels.metropolis import RangeOf, no_range
from pymc_austerity.model.compile.backend import InterpretedKernel
from pymc_austerity.model.compile.protocol import (
    Backend,
    ReadyKernel,
    exact_arithmetic,
    has_functions,
    opened,
)
from pymc_austerity.model.compile.target import CompiledTarget
from pymc_austerity.model.factorisation import Factorisation
from pymc_austerity.proposals.base import BoundProposal
from pymc_austerity.step_methods.messages import warn_of_given
from pymc_austerity.target import Index


class RangeBound(NamedTuple):
    """A bound on the range of the log ratios, ready for a kernel."""

    function: RangeOf  # callable: see `kernels.log_ratio_range`
    # callable: ``(point) -> bound``: the first argument of `function`, for the present values of other
    # variables
    at: Callable[[PointType], Any]
    compilable: bool = True  # Whether `function` is known to compile
    # The functions of a target that it calls, besides those that every kernel calls
    functions: tuple[str, ...] = ()


def nothing(point: PointType) -> int:
    """What a range that needs no bound is handed."""
    return 0


NO_RANGE = RangeBound(no_range, nothing)
# Parameters that every kernel has first: how many transitions, whether it tunes, generator, state, data.
N_COMMON = 5


class Engine:
    """Transitions of one step, compiled. It has size N: it is made anew in every process.

    A subclass names the kernel, and says what it is handed by the names of the kernel's parameters: in
    `given` if that does not depend on the state, else in `at`. When all is there it calls `_compile`.
    """

    # Local terms, and those that are subsampled.
    n_local: int
    n_others: int
    # Whether the decision rule reads all terms anyway, and whether it depends on a bound of their range.
    reads_all = False
    needs_range = False
    # Moves of a transition, each of which may read all rows; and groups or rows that all of them could read.
    n_moves = n_readings = 1
    # Sample statistics that steps with this kernel have besides those of all steps.
    columns: ClassVar[dict[str, tuple[type, list[int]]]] = {}
    # Terms larger than their bounds, shape (1,); None where no row is compared with a bound.
    violations: Index | None = None
    target: CompiledTarget
    kernel: Callable[..., Any]
    # Functions of the target that the kernel calls, besides those that the proposal does.
    functions: Sequence[str]
    # Whether work in proportion to the data, once for a draw, is worth a warning.
    tells_given = True
    # Functions of a user, which may not compile; and whether all but the proposal is known to compile.
    suspects, compilable = "proposal", True
    given: dict[str, Any] | None = None
    # Of a block: how moves are proposed.
    proposal: BoundProposal
    _record: Any
    _transitions: ReadyKernel
    # Names of parameters, with the places of their open fields; None for what is handed over as it is.
    _open: list[tuple[str, list[int] | None]]
    _seen_state: Any = None

    def take_violations(self) -> float:
        """Terms larger than their bounds since the last call; NaN where no row is compared with a bound."""
        if self.violations is None:
            return np.nan
        count = float(self.violations[0])
        self.violations[0] = 0
        return count

    def statistics(self, found: dict[str, float], outcome: Any, n: int) -> None:
        """Put into the sample statistics of n transitions what this kernel counts besides, or otherwise."""

    @property
    def backend(self) -> Backend:
        """Who runs the functions of the model, and the kernel if numba can compile it."""
        return self.target.backend

    def names_of_coordinates(self, factorisation: Factorisation) -> list[tuple[str, int]]:
        """Variable and element of each coordinate of the state q of a block."""
        graph = factorisation.graph
        sizes = {name: math.prod(graph.values[name].type.shape) for name in factorisation.var_names}
        return [(graph.variables[name], k) for name, size in sizes.items() for k in range(size)]

    def restart(self) -> None:
        """Forget the last state, and what an interrupted decision left in disorder."""

    def copy(self) -> Self:
        """An engine that shares what is compiled, with a state of its own."""
        clone = copy(self)
        clone._seen_state = None
        clone.restart()
        return clone

    def run(
        self,
        n: int,
        tune: bool,
        rng: np.random.Generator,
        q: np.ndarray,
        point: PointType,
        proposal_state: Any,
    ) -> Any:
        """Make n transitions from q, which may be written over; `point` has the other variables.

        Only the proposal's state may come from elsewhere: as long as it is the one of the last call, all
        arguments have the types that they had.
        """
        values = self._values(n, tune, rng, q, point, proposal_state)
        if proposal_state is self._seen_state:
            return self._transitions.again(*values)
        outcome = self._transitions(*values)
        if self._transitions.is_settled:
            self._seen_state = proposal_state
        return outcome

    def runs_ahead(self, proposal_state: Any) -> bool:
        """Whether `run_ahead` may be called: after `run`, with the same state."""
        return self.target.fixed_args is not None and proposal_state is self._seen_state

    def run_ahead(
        self, n: int, rng: np.random.Generator, q: np.ndarray, point: PointType, proposal_state: Any,
        draws: np.ndarray, numbers: np.ndarray,
    ) -> None:  # fmt: skip
        """Make n transitions for each row of `draws`, and write what `run` returns for each.

        Nothing is tuned. Of the outcomes `draws` has the states (m, D), and `numbers` (m, .) has all else.
        """
        values = self._values(n, False, rng, q, point, proposal_state)
        self._transitions.run_ahead(draws, numbers, *values)

    def _values(
        self, n: int, tune: bool, rng: np.random.Generator, q: np.ndarray, point: PointType, state: Any
    ) -> list[Any]:
        """What the kernel is called with."""
        args = self.target.fixed_args
        if args is None:
            args = self.target.args(point)
        given, values = self._given(q, point, state), [n, tune, rng, q, args]
        for name, places in self._open:
            value = given[name]
            if places is None:
                values.append(value)
            else:
                for k in places:
                    values.append(value[k])
        return values

    def at(self, q: np.ndarray, point: PointType) -> dict[str, Any]:
        """What the kernel is handed in a state, by the names of its parameters, but for the proposal."""
        raise NotImplementedError

    def _given(self, q: np.ndarray, point: PointType, proposal_state: Any) -> dict[str, Any]:
        """What the kernel is handed besides the state and the target."""
        given = self.given or self.at(q, point)
        if self._record.state is not proposal_state:
            self._record = self.proposal.kernel(proposal_state)
        given["proposal"] = self._record
        return given

    def _compile_moves(self, proposal: BoundProposal, q: np.ndarray, point: PointType) -> None:
        """Compile with a proposal of moves of the block."""
        self.proposal, self._record = proposal, proposal.kernel(proposal.state)
        self.functions = [*self.functions, *proposal.target_functions]
        self.compilable = self.compilable and proposal.compilable
        self._compile(proposal.state, q, point)

    def _compile(self, proposal_state: Any, q: np.ndarray, point: PointType) -> None:
        """Compile with a state, and the values of all variables.

        Of the records that the kernel is handed functions are compiled in, and all else comes with each call.
        """
        if self.tells_given:
            warn_of_given(self.target)
        self.restart()
        with exact_arithmetic():
            given = self._given(q, point, proposal_state)
        records = {name: opened(value) for name, value in given.items() if has_functions(value)}
        self._open = [
            (name, [k for k, value in enumerate(records[name]) if value is ...] if name in records else None)
            for name in list(inspect.signature(self.kernel).parameters)[N_COMMON:-1]
        ]
        self._transitions = self.target.compile(self.kernel, records, dict.fromkeys(self.functions))
        try:
            with exact_arithmetic():  # the first call compiles, and makes no transition
                self.run(0, False, np.random.default_rng(0), q, point, proposal_state)
        except Exception as error:  # numba passes some errors of the code it compiles through
            if self.compilable:
                raise
            said = str(error).strip().splitlines() or [type(error).__name__]
            warn(
                f"numba cannot compile the {self.suspects} ({said[0]}); it runs interpreted, which is many "
                "times slower."
            )
            self._seen_state = None
            around = {**records, "target": self.target.interpreted()}
            self._transitions = InterpretedKernel(self.kernel, around)
