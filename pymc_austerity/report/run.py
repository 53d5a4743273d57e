"""Steps of a comparison: their names and budgets, and the run of one: draws, costs and messages."""

import logging
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import FrameType
from typing import Any, Literal, get_args

import numpy as np
import pymc as pm
from pymc.step_methods.arraystep import PopulationArrayStepShared
from pymc.step_methods.compound import BlockedStep, CompoundStep, flatten_steps
from xarray import DataTree

from pymc_austerity.diagnostics import stamp
from pymc_austerity.step_methods.base import require_steps_of
from pymc_austerity.step_methods.metropolis.base import SubsampledStep
from pymc_austerity.validation import few_digits, is_real, is_whole

Kind = Literal["seconds", "terms", "draws"]


@dataclass(frozen=True)
class Budget:
    """Positive amount that all chains of a step together may spend after tuning; draws are of each chain."""

    kind: Kind
    amount: float

    def __str__(self) -> str:
        if self.kind == "draws":
            return f"{self.amount:,.0f} draws of each chain"
        number = few_digits(self.amount)
        if self.kind == "terms":
            return f"{number} local terms"
        return f"{number} second{'' if number == '1' else 's'}"


def budget_of(given: Any, name: str = "budget") -> Budget:
    """Check what was given as `budget`: seconds, or a dict with one kind and its amount."""
    pairs = {"seconds": given} if is_real(given) else given
    if not isinstance(pairs, Mapping) or len(pairs) != 1 or next(iter(pairs)) not in get_args(Kind):
        raise TypeError(
            f'{name} must be a number of seconds, {{"seconds": s}}, {{"terms": n}} or {{"draws": n}}, '
            f"got {given!r}."
        )
    kind, amount = next(iter(pairs.items()))
    if kind == "draws" and (not is_whole(amount) or amount < 1):
        raise ValueError(f"{name}: draws must be a positive integer, got {amount!r}.")
    if not is_real(amount) or not 0.0 < amount < float("inf"):
        raise ValueError(f"{name}: {kind} must be a positive number, got {amount!r}.")
    return Budget(kind, float(amount))


@dataclass(frozen=True)
class Settings:
    """How all steps of a comparison are run."""

    chains: int
    tune: int
    max_draws: int  # that a chain makes at most
    initvals: Mapping[str, Any] | None  # where chains start; None for the starting points of PyMC
    n_local: int | None  # N, the number of local terms; None if the model cannot be factorised
    kept: Sequence[str] | None = None  # variables that are recorded; None for all


# Later chains make as many draws as the first. They are stopped before if they take so many times as long.
_PATIENCE = 3.0
# R-hat and effective sample sizes need a few draws of each chain.
_FEWEST_DRAWS = 20
# Tuning draws of steps that tune nothing, by which a chain leaves its start.
_FEW_TUNE = 100


class Clock:
    """A callback for `pymc.sample` that measures chains which run one after the other.

    The first chain goes on until its share of the budget is spent, later ones for as many draws: chains of
    different lengths would be cut to the shortest. A chain makes between 20 and `most` draws after
    tuning. ``count(statistics of a draw)`` are the local terms that it evaluated, NaN if they are unknown.
    """

    def __init__(self, budget: Budget, settings: Settings, count: Callable[..., float]) -> None:
        self._kind, self._share = budget.kind, budget.amount / settings.chains
        self._tune, self._count = settings.tune, count
        self.most = int(budget.amount) if budget.kind == "draws" else settings.max_draws
        self._fewest = min(_FEWEST_DRAWS, self.most)
        self._chain = -1
        self._began = self._first = 0.0
        # Sums over all chains; terms are local ones evaluated after tuning.
        self.seconds = self.tuning_seconds = self.terms = 0.0
        self.lengths: list[int] = []  # draws of each chain after tuning
        self.ended = 0  # chains that were stopped here; others were stopped by the user, or by an error

    def __call__(self, trace: Any, draw: Any) -> None:
        """Note a draw; raise `KeyboardInterrupt`, as PyMC asks for, where the chain has to stop."""
        now = time.perf_counter()
        if draw.chain != self._chain:
            if self.ended < len(self.lengths):  # PyMC goes on with the next chain
                raise KeyboardInterrupt
            self._chain, self._first, self._began = draw.chain, now, now
            self.lengths.append(0)
            self._spent = self._before = 0.0
        if draw.tuning:
            made = draw.draw_idx + 1
            if made == self._tune:
                # The first draw was not seen to begin.
                self.tuning_seconds += (now - self._first) * made / max(made - 1, 1)
                self._began = now
            return
        self.lengths[-1] += 1
        made = self.lengths[-1]
        elapsed = now - self._began
        if not self._tune:
            elapsed *= made / max(made - 1, 1)
        terms = self._count(draw.stats)
        if self._kind == "terms" and not terms >= 0.0:
            raise ValueError(
                "The step does not count the local terms that it evaluates, so a budget of terms cannot be "
                'kept. Give seconds or {"draws": n}.'
            )
        self.seconds += elapsed - self._before
        self.terms += terms
        self._before = elapsed
        self._spent = elapsed if self._kind == "seconds" else self._spent + terms
        if self._is_over(made):
            self.ended += 1
            raise KeyboardInterrupt

    def _is_over(self, made: int) -> bool:
        if made >= self.most:
            return True
        if made < self._fewest or self._kind == "draws":
            return False
        if len(self.lengths) == 1:
            return self._spent >= self._share
        return made >= self.lengths[0] or self._spent >= _PATIENCE * self._share


@contextmanager
def noting_interrupts() -> Iterator[threading.Event]:
    """Note whether the user presses Ctrl-C, of which `pymc.sample` does not tell.

    It is then handled as it would have been. Only the main thread can be interrupted, and only where an
    interrupt has a handler in Python.
    """
    seen, before = threading.Event(), signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield seen
        return

    def note(signum: int, frame: FrameType | None) -> None:
        seen.set()
        before(signum, frame)

    signal.signal(signal.SIGINT, note)
    try:
        yield seen
    finally:
        signal.signal(signal.SIGINT, before)


# Steps, and their runs ----------------------------------------------------------------------------

Steps = Mapping[str, Any] | Sequence[Any]
# What the name of the reference ends with in tables and figures; steps may be called "exact" too.
OF_REFERENCE = " (reference)"
# Of the parameters that a step or its rule may have, those that tell one from another.
_TELLING = ("epsilon", "delta", "batch_size", "chi", "step_size")
_LOGGERS = ("pymc", "pymc_austerity")


def named(steps: Steps, model: pm.Model) -> dict[str, list[BlockedStep]]:
    """Name each step, and check that it was made for the model. One that is a sequence is a compound."""
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
        described = [describe(b) for b in blocks]
        names = [
            name if described.count(name) == 1 else f"{name} #{described[: k + 1].count(name)}"
            for k, name in enumerate(described)
        ]
        pairs = list(zip(names, blocks, strict=True))
    for name, parts in pairs:
        if not isinstance(name, str) or not name:
            raise TypeError(f"Names of steps must be strings that are not empty, got {name!r}.")
        if name.endswith(OF_REFERENCE):
            raise ValueError(f"A step cannot be called {name!r}: the reference is called so. Rename it.")
        if any(isinstance(part, PopulationArrayStepShared) for part in parts):
            raise ValueError(
                f"The step {name!r} moves all chains side by side; what each takes cannot be measured."
            )
        require_steps_of(model, parts)
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


def describe(blocks: Sequence[BlockedStep]) -> str:
    """Class and main parameters of a step, or of several."""
    described = []
    for step in blocks:
        own = configuration(step)
        rule, *parts = (own.get(k) for k in ("rule", "proposal", "control_variate"))
        known = {**own, **rule} if isinstance(rule, Mapping) else own
        words = [f"{k}={known[k]:g}" for k in _TELLING if is_real(known.get(k))]
        words += [f"{part['name']}()" for part in parts if isinstance(part, Mapping) and "name" in part]
        if own.get("temperature", 1.0) != 1.0:
            words.append(f"temperature={own['temperature']:g}")
        described.append(f"{type(step).__name__}({', '.join(words)})")
    return " + ".join(described)


def configuration(step: BlockedStep) -> dict[str, Any]:
    """Everything that a step tells about itself; its class and variables, if it is PyMC's."""
    found = getattr(step, "configuration", None)
    if isinstance(found, Mapping):
        return dict(found)
    return {"step": type(step).__name__, "vars": [v.name for v in step.vars]}


def counter(blocks: Sequence[BlockedStep], n_local: int | None) -> Callable[..., float]:
    """Return how to count the local terms that a draw has evaluated, from the statistics of its steps.

    There are no blocks where PyMC assigns the steps; N is for steps that evaluate all terms. The n_used of a
    subsampled step is a mean over the transitions of a draw. A leapfrog step of NUTS alone evaluates the
    gradient of N terms. What other steps of PyMC read is not counted.
    """
    # PyMC runs the given steps in their order, and those that it assigns after them.
    transitions = [int(configuration(block).get("steps_per_draw", 1)) for block in blocks]

    def count(stats: Sequence[Mapping[str, Any]]) -> float:
        if len(stats) == 1 and "tree_size" in stats[0]:
            return float(stats[0]["tree_size"]) * n_local if n_local else float("nan")
        used = [float(own["n_used"]) * transitions[k] for k, own in enumerate(stats) if "n_used" in own]
        return sum(used) if used else float("nan")

    return count


@dataclass(frozen=True, eq=False)
class Run:
    """Run of a step for its budget: draws, costs and remarks."""

    name: str  # in the comparison
    step: str  # its class and parameters
    budget: Budget | None = None  # None for draws that were given
    idata: DataTree | None = field(default=None, repr=False)  # None if it failed
    seconds: float = np.nan  # all chains together, after tuning
    tuning_seconds: float = np.nan
    terms: float = np.nan  # local ones evaluated after tuning; NaN if they are not counted
    fraction: float = np.nan  # local terms that a transition has evaluated, over N; NaN if it is not known
    moves: int = 1  # of a transition, each on up to N terms: two or more on a field
    configuration: tuple[dict[str, Any], ...] = ()  # of each of its steps
    messages: tuple[str, ...] = ()  # warnings given while it ran
    notes: tuple[str, ...] = ()  # what was done otherwise than asked for
    error: str = ""  # why it failed

    @property
    def draws(self) -> int:
        """Draws of all chains together, without those of tuning."""
        sizes = {"chain": 0, "draw": 0} if self.idata is None else self.idata["posterior"].sizes
        return int(sizes["chain"] * sizes["draw"])


def run_step(
    model: pm.Model,
    name: str,
    blocks: Sequence[BlockedStep],
    budget: Budget,
    settings: Settings,
    seed: int,
    *,
    notes: Sequence[str] = (),
) -> Run:
    """Sample with `blocks` (with PyMC's own choice if there are none) until the budget is spent.

    What goes wrong is part of the result: nothing but an interrupt by the user is raised.
    """
    if blocks and all(isinstance(each, SubsampledStep) and each.field is not None for each in blocks):
        settings = replace(settings, tune=min(settings.tune, _FEW_TUNE))
    clock = Clock(budget, settings, counter(blocks, settings.n_local))
    idata, error = None, ""
    with _listening() as messages, noting_interrupts() as interrupted:
        try:
            idata = pm.sample(
                draws=clock.most,
                tune=settings.tune,
                chains=settings.chains,
                cores=1,  # one after the other: times of chains that run side by side depend on each other
                step=list(blocks) or None,
                initvals=None if settings.initvals is None else dict(settings.initvals),
                random_seed=seed,
                callback=clock,
                model=model,
                var_names=settings.kept,
                progressbar=False,
                compute_convergence_checks=False,  # the report has its own
            )
        except Exception as failure:  # whatever a step of the user raises is told in the report
            error = f"{type(failure).__name__}: {failure}"
    # PyMC keeps the draws of a chain that was interrupted. If there are none, that is an error of its own.
    if interrupted.is_set() or (idata is not None and clock.ended < settings.chains):
        raise KeyboardInterrupt
    found: dict[str, Any] = {}
    if idata is not None:
        told = [*notes, *_remarks(idata, clock, budget, settings, blocks)]
        try:
            if blocks:
                stamp(idata, *blocks)
        except (TypeError, ValueError) as no_stamp:  # steps of the user may be unlike ours
            told.append(f"The draws have no stamp: {no_stamp}")
        fractions = idata["sample_stats"].get("fraction_used")
        found = {
            "idata": idata,
            "seconds": clock.seconds,
            "tuning_seconds": clock.tuning_seconds,
            "terms": clock.terms,
            "fraction": np.nan if fractions is None else float(fractions.mean(skipna=True)),
            "moves": max((getattr(block, "n_moves", 1) for block in blocks), default=1),
            "notes": tuple(told),
        }
    return Run(
        name,
        describe(blocks) if blocks else "pm.sample() of PyMC",
        budget,
        configuration=tuple(configuration(block) for block in blocks),
        messages=tuple(messages),
        error=error,
        **({"notes": tuple(notes)} | found),
    )


def _remarks(
    idata: DataTree, clock: Clock, budget: Budget, settings: Settings, blocks: Sequence[BlockedStep]
) -> Iterator[str]:
    """Remarks on what differs from the budget and the settings that were asked for."""
    longest, kept = max(clock.lengths), idata["posterior"].sizes
    spent = clock.seconds if budget.kind == "seconds" else clock.terms
    if budget.kind != "draws" and longest >= settings.max_draws:
        yield (
            f"Stopped at max_draws = {settings.max_draws:,} draws of each chain, before the budget of "
            f"{budget} was spent."
        )
    elif budget.kind != "draws" and spent > 1.5 * budget.amount:
        what = Budget(budget.kind, spent)
        yield f"Spent {what} of a budget of {budget}: a chain makes at least {_FEWEST_DRAWS} draws."
    if min(clock.lengths) < longest:
        yield (
            f"Chains made between {min(clock.lengths):,} and {longest:,} draws; {kept['draw']:,} of "
            f"{kept['chain']} of {len(clock.lengths)} chains are kept."
        )
    stats = idata["sample_stats"]
    if "diverging" in stats and (n := int(stats["diverging"].sum())):
        yield f"{n:,} divergent transitions: the draws may miss a part of the posterior."
    uncounted = [type(b).__name__ for b in blocks if "n_used" not in b.stats_dtypes_shapes]
    if "n_used" in stats and uncounted:
        yield f"Not counted: what {', '.join(uncounted)} read."


@contextmanager
def _listening() -> Iterator[dict[str, None]]:
    """Collect warnings and logged warnings, each once, instead of printing them."""
    messages: dict[str, None] = {}

    class Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            messages[record.getMessage()] = None

    collector = Collector(logging.WARNING)
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    before = [(logger.propagate, logger.handlers) for logger in loggers]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")  # each text once, however many draws warn
        for logger in loggers:
            logger.handlers, logger.propagate = [collector], False
        try:
            yield messages
        finally:
            for logger, (propagate, handlers) in zip(loggers, before, strict=True):
                logger.handlers, logger.propagate = handlers, propagate
            messages |= {str(warning.message): None for warning in caught}
