"""Variables with orthonormal columns: which proposal moves them, and what else is refused."""

from collections.abc import Sequence

import pymc as pm
from pytensor.graph.basic import Variable

from pymc_austerity.distributions.uniform_stiefel import is_uniform_stiefel
from pymc_austerity.exceptions import UnsuitableError
from pymc_austerity.proposals.langevin import Langevin
from pymc_austerity.proposals.laplace import Laplace
from pymc_austerity.proposals.random_walk import AdaptiveRandomWalk, RandomWalk
from pymc_austerity.proposals.stiefel_walk import StiefelWalk
from pymc_austerity.proposals.surrogate import Surrogate

# Proposals that would leave the matrices with orthonormal columns.
_OTHERS = AdaptiveRandomWalk | RandomWalk | Laplace | Surrogate | Langevin


def matrices_of(model: pm.Model, value_vars: Sequence[Variable]) -> tuple[tuple[int, int], ...]:
    """Rows and columns of each matrix of the `UniformStiefel` variables of a block, in their order."""
    found: list[tuple[int, int]] = []
    for value in value_vars:
        rv = model.values_to_rvs[value]
        if is_uniform_stiefel(rv):
            n, k = rv.type.shape[-2:]
            count = 1
            for length in rv.shape[:-2].eval():
                count *= int(length)
            found += [(int(n), int(k))] * count
    return tuple(found)


def refuse_orthonormal(
    model: pm.Model, value_vars: Sequence[Variable], proposal: object, has_control_variate: bool
) -> None:
    """Raise `UnsuitableError` if the proposal is not for the variables, or a mode would be searched for."""
    names = {str(model.values_to_rvs[value].name): model.values_to_rvs[value] for value in value_vars}
    orthonormal = [name for name, rv in names.items() if is_uniform_stiefel(rv)]
    others = [name for name in names if name not in orthonormal]
    own = ", ".join(orthonormal)
    step = f"AusterityMH([{own}], proposal=StiefelWalk())"
    if isinstance(proposal, StiefelWalk) and others:
        ours = f": {step}" if orthonormal else ""
        raise UnsuitableError(
            f"StiefelWalk moves UniformStiefel variables and no others, but {', '.join(others)} "
            f"{'is' if len(others) == 1 else 'are'} not. Give each kind a step of its own{ours}."
        )
    if orthonormal and (proposal is None or isinstance(proposal, _OTHERS)):
        given = "the proposal of this step" if proposal is None else type(proposal).__name__
        raise UnsuitableError(
            f"{own} has orthonormal columns (UniformStiefel), which {given} would not keep. Use {step}"
            f"{', and another step for ' + ', '.join(others) if others else ''}."
        )
    if orthonormal and has_control_variate:
        raise UnsuitableError(
            f"A Taylor polynomial needs a mode and gradients, which {own} (UniformStiefel) does not have. "
            f"Use {step}, without control_variate."
        )
