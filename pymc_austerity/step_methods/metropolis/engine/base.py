"""A kernel compiled around a model: what the engines of all steps have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import copy
from typing import Any, NamedTuple, Self

import numpy as np
from pymc.initial_point import PointType

from pymc_austerity.exceptions import warn
from pymc_austerity.kernels.metropolis import Outcome, RangeOf, no_range
from pymc_austerity.model.compile.protocol import Backend, ReadyKernel, exact_arithmetic
from pymc_austerity.model.compile.records import Records
from pymc_austerity.model.compile.target import CompiledTarget
from pymc_austerity.proposals.base import BoundProposal
from pymc_austerity.proposals.elements import BoundElements
from pymc_austerity.step_methods.messages import first_line, warn_of_given


class RangeBound(NamedTuple):
    """A bound on the range of the log ratios, ready for a kernel.

    Attributes
    ----------
    function : callable
        See `kernels.log_ratio_range`.
    at : callable
        ``(point) -> bound``: the first argument of `function`, for the present values of other variables.
    compilable : bool, default True
        Whether `function` is known to compile.
    functions : tuple of str, default ()
        The functions of a target that it calls, besides those that every kernel calls.
    """

    function: RangeOf
    at: Callable[[PointType], Any]
    compilable: bool = True
    functions: tuple[str, ...] = ()


def nothing(point: PointType) -> int:
    """What a range that needs no bound is handed."""
    return 0


NO_RANGE = RangeBound(no_range, nothing)


class CompiledKernel:
    """Transitions of one step, compiled. It has size N: it is made anew in every process.

    Attributes
    ----------
    n_local : int
        Local terms.
    n_others : int
        Those that are subsampled.
    reads_all, needs_range : bool
        Whether the decision rule reads all terms anyway, and whether it depends on a bound of their range.
    """

    n_local: int
    n_others: int
    reads_all = False
    needs_range = False
    # Whether work in proportion to the data, once for a draw, is worth a warning.
    tells_given = True
    target: CompiledTarget
    _transitions: ReadyKernel
    _seen_state: Any = None

    @property
    def n_moves(self) -> int:
        """Moves of a transition, each of which may read all rows."""
        return 1

    def take_violations(self) -> float:
        """Terms larger than their bounds since the last call; NaN where no row is compared with a bound."""
        return np.nan

    @property
    def backend(self) -> Backend:
        """Who runs the functions of the model, and the kernel if numba can compile it."""
        return self.target.backend

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
    ) -> Outcome:
        """Make n transitions from q, which may be written over; `point` has the other variables."""
        raise NotImplementedError

    def _compile(
        self,
        kernel: Callable[..., Any],
        records: Records,
        target_functions: Iterable[str],
        proposal: BoundProposal | BoundElements,
        q: np.ndarray,
        point: PointType,
        *,
        suspects: str = "proposal",
        certain: bool = True,
    ) -> None:
        """Put `kernel` around the target, the proposal and `records`, and make no transition with it.

        `target_functions` are those that the kernel calls, besides those that the proposal does.

        Functions of a user, named by `suspects`, may not compile: then, unless `certain` that all do, the
        kernel runs interpreted.
        """
        records = {**records, "proposal": proposal.kernel(...)}
        if self.tells_given:
            warn_of_given(self.target)
        self.restart()
        functions = dict.fromkeys([*target_functions, *proposal.target_functions])
        self._transitions = self.target.compile(kernel, records, functions)
        try:
            with exact_arithmetic():  # the first call compiles
                self.run(0, False, np.random.default_rng(0), q, point, proposal.state)
        except Exception as error:  # numba passes some errors of the code it compiles through
            if certain and proposal.compilable:
                raise
            warn(
                f"numba cannot compile the {suspects} ({first_line(error)}); it runs interpreted, which is "
                "many times slower."
            )
            self._seen_state = None
            self._transitions = self.target.interpret(kernel, records)

    def _call(self, proposal_state: Any, *args: Any) -> Any:
        """Call the transitions.

        Only the proposal's state may come from elsewhere: as long as it is the one of the last call, all
        arguments have the types that they had.
        """
        if proposal_state is self._seen_state:
            return self._transitions.again(*args)
        outcome = self._transitions(*args)
        if self._transitions.is_settled:
            self._seen_state = proposal_state
        return outcome
