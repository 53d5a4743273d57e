"""What to call the steps of a comparison, and which of them count their terms."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pymc as pm
from pymc.step_methods.arraystep import PopulationArrayStepShared
from pymc.step_methods.compound import BlockedStep, CompoundStep, flatten_steps

from pymc_austerity.validation import is_real

Steps = Mapping[str, Any] | Sequence[Any]
# What the name of the reference ends with in tables and figures; steps may be called "exact" too.
OF_REFERENCE = " (reference)"


def named(steps: Steps, model: pm.Model) -> dict[str, list[BlockedStep]]:
    """Name each step, and check that it was made for the model.

    Parameters
    ----------
    steps : mapping of str to step, or sequence of steps
        A step that is a sequence is a compound of several.
    model : pymc.Model

    Returns
    -------
    dict of str to list of steps
    """
    if isinstance(steps, BlockedStep | CompoundStep):
        steps = [steps]
    if not isinstance(steps, Mapping | Sequence) or isinstance(steps, str):
        raise TypeError(
            f"steps must be a dict from names to steps, or a list of steps, got {type(steps).__name__}: "
            'for example {"austerity": AusterityMH(model=model)}.'
        )
    if not steps:
        raise ValueError("steps is empty: give at least one step to compare with the reference.")
    if isinstance(steps, Mapping):
        pairs = [(name, _blocks(name, step)) for name, step in steps.items()]
    else:
        blocks = [_blocks(f"number {k}", step) for k, step in enumerate(steps)]
        pairs = list(zip(_distinct([describe(b) for b in blocks]), blocks, strict=True))
    for name, parts in pairs:
        if not isinstance(name, str) or not name:
            raise TypeError(f"Names of steps must be strings that are not empty, got {name!r}.")
        if name.endswith(OF_REFERENCE):
            raise ValueError(f"A step cannot be called {name!r}: the reference is called so. Rename it.")
        if any(isinstance(part, PopulationArrayStepShared) for part in parts):
            raise ValueError(
                f"The step {name!r} moves all chains side by side; what each takes cannot be measured."
            )
        for part in parts:
            foreign = [v.name for v in part.vars if v not in model.value_vars]
            if foreign:
                raise ValueError(
                    f"The step {name!r} moves {', '.join(foreign)} of another model. Make it with model=."
                )
    return dict(pairs)


def _blocks(name: str, step: Any) -> list[BlockedStep]:
    """The steps that a compound is made of, in the order in which PyMC runs them."""
    parts = list(step) if isinstance(step, list | tuple) else [step]
    if not parts or not all(isinstance(part, BlockedStep | CompoundStep) for part in parts):
        raise TypeError(
            f"The step {name!r} is {step!r}; it must be a step method such as AusterityMH(model=model), or a "
            "list of them."
        )
    return [block for part in parts for block in flatten_steps(part)]


def _distinct(names: Sequence[str]) -> list[str]:
    """Number the names that occur more than once."""
    seen: dict[str, int] = {}
    result = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        result.append(name if names.count(name) == 1 else f"{name} #{seen[name]}")
    return result


def describe(blocks: Sequence[BlockedStep]) -> str:
    """Class and main parameters of a step, or of several."""
    return " + ".join(_describe(block) for block in blocks)


# Of the parameters that a step or its rule may have, those that tell one from another.
_TELLING = ("epsilon", "delta", "batch_size", "chi", "step_size")


def _describe(step: BlockedStep) -> str:
    own = configuration(step)
    rule, proposal, taylor = (own.get(k) or {} for k in ("rule", "proposal", "control_variate"))
    known = {**own, **rule} if isinstance(rule, Mapping) else own
    words = [f"{k}={known[k]:g}" for k in _TELLING if is_real(known.get(k))]
    for part in (proposal, taylor):
        if isinstance(part, Mapping) and "name" in part:
            words.append(f"{part['name']}()")
    if own.get("temperature", 1.0) != 1.0:
        words.append(f"temperature={own['temperature']:g}")
    return f"{type(step).__name__}({', '.join(words)})"


def configuration(step: BlockedStep) -> dict[str, Any]:
    """Everything that a step tells about itself; its class and variables, if it is PyMC's."""
    found = getattr(step, "configuration", None)
    if isinstance(found, Mapping):
        return dict(found)
    return {"step": type(step).__name__, "vars": [v.name for v in step.vars]}


def counter(blocks: Sequence[BlockedStep], n_local: int | None) -> Callable[..., float]:
    """Return how to count the local terms that a draw has evaluated, from the statistics of its steps.

    Parameters
    ----------
    blocks : sequence of steps
        Those that were given; empty for the steps that PyMC assigns.
    n_local : int or None
        N, for steps that evaluate all terms; None if it is not known.

    Notes
    -----
    The n_used of a subsampled step is a mean over the transitions of a draw. A leapfrog step of NUTS alone
    evaluates the gradient of N terms. What other steps of PyMC read is not counted.
    """
    # PyMC runs the given steps in their order, and those that it assigns after them.
    transitions = [int(configuration(block).get("steps_per_draw", 1)) for block in blocks]

    def count(stats: Sequence[Mapping[str, Any]]) -> float:
        if len(stats) == 1 and "tree_size" in stats[0]:
            return float(stats[0]["tree_size"]) * n_local if n_local else float("nan")
        used = [float(own["n_used"]) * transitions[k] for k, own in enumerate(stats) if "n_used" in own]
        return sum(used) if used else float("nan")

    return count
