"""Steps whose pickles and copies leave out what has size N or is compiled."""

from __future__ import annotations

from typing import Any, ClassVar, Self

from pymc.step_methods.compound import BlockedStep, Competence
from pytensor.graph.basic import Variable

from pymc_austerity.step_methods.configuration import text


class RebuiltStep(BlockedStep):
    """A step that a worker builds again, from the cache on disk, when it is first stepped there.

    Subclasses name in `_rebuilt` what is left out of pickles, and find None there afterwards.
    """

    default_blocked = True
    _rebuilt: ClassVar[tuple[str, ...]]
    _model: Any

    def _own(self, memo: dict[int, Any]) -> dict[str, Any]:
        """Attributes that a copy must not share, besides the sampling state."""
        return {}

    @property
    def configuration(self) -> dict[str, Any]:
        """How the step is set up: all that changes its law or its cost, as JSON can hold it."""
        names = [str(self._model.values_to_rvs[v].name) for v in self.vars]
        return {"step": type(self).__name__, "vars": names, **self._settings()}

    def _settings(self) -> dict[str, Any]:
        """What `configuration` has besides the class and the variables."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return text(self.configuration)

    @staticmethod
    def competence(var: Variable, has_grad: bool) -> Competence:
        """Never assigned automatically: whether to approximate is the user's decision."""
        return Competence.INCOMPATIBLE

    def __getnewargs_ex__(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (self.vars,), {"model": self._model, "blocked": True}

    def __getstate__(self) -> dict[str, Any]:
        """Leave out whatever has size N or is compiled."""
        state = self.__dict__.copy()
        state.update(dict.fromkeys(self._rebuilt))
        state.pop("_BlockedStep__newargs", None)  # holds initial_point=; see __getnewargs_ex__
        return state

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Copy what changes while sampling; model and compiled code are shared."""
        clone = object.__new__(type(self))
        clone.__dict__.update(self.__dict__)
        clone.sampling_state = self.sampling_state
        clone.__dict__.update(self._own(memo))
        return clone
