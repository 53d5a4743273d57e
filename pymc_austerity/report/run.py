"""One step run for its budget: its draws, what they cost, and what was said meanwhile."""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pymc as pm
from pymc.step_methods.compound import BlockedStep
from xarray import DataTree

from pymc_austerity.diagnostics import stamp
from pymc_austerity.report.budget import Budget
from pymc_austerity.report.clock import Clock, UserInterrupt
from pymc_austerity.report.interrupts import watched
from pymc_austerity.report.names import configuration, counter, describe

# R-hat and effective sample sizes need a few draws of each chain.
FEWEST_DRAWS = 20
_LOGGERS = ("pymc", "pymc_austerity")


@dataclass(frozen=True)
class Settings:
    """How all steps of a comparison are run.

    Attributes
    ----------
    chains, tune : int
    max_draws : int
        Draws that a chain makes at most.
    initvals : dict or None
        Where chains start; None for the starting points of PyMC.
    n_local : int or None
        N, the number of local terms; None if the model cannot be factorised.
    """

    chains: int
    tune: int
    max_draws: int
    initvals: Mapping[str, Any] | None
    n_local: int | None


@dataclass(frozen=True, eq=False)
class Run:
    """Run of a step for its budget: draws, costs and remarks.

    Attributes
    ----------
    name, step : str
        Its name in the comparison; its class and parameters.
    budget : Budget or None
        None for draws that were given.
    idata : DataTree or None
        None if it failed.
    seconds, tuning_seconds, other_seconds : float
        All chains together, after tuning; while tuning; and for compiling, starting and storing.
    terms : float
        Local terms evaluated after tuning; NaN if they are not counted.
    fraction : float
        Local terms that a transition has evaluated, over N; NaN if it is not known.
    moves : int
        Moves of a transition that decide by themselves, each on up to N terms: two or more on a plate.
    configuration : tuple of dict
        Of each of its steps.
    messages : tuple of str
        Warnings given while it ran.
    notes : tuple of str
        What was done otherwise than asked for.
    error : str
        Why it failed.
    """

    name: str
    step: str
    budget: Budget | None = None
    idata: DataTree | None = field(default=None, repr=False)
    seconds: float = np.nan
    tuning_seconds: float = np.nan
    other_seconds: float = np.nan
    terms: float = np.nan
    fraction: float = np.nan
    moves: int = 1
    configuration: tuple[dict[str, Any], ...] = ()
    messages: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    error: str = ""

    @property
    def chains(self) -> int:
        """Number of chains."""
        return 0 if self.idata is None else int(self.idata["posterior"].sizes["chain"])

    @property
    def draws(self) -> int:
        """Draws of all chains together, without those of tuning."""
        return 0 if self.idata is None else self.chains * int(self.idata["posterior"].sizes["draw"])


def run_step(
    model: pm.Model,
    name: str,
    blocks: Sequence[BlockedStep],
    budget: Budget,
    settings: Settings,
    seed: int,
    *,
    notes: Sequence[str] = (),
    began: float | None = None,
) -> Run:
    """Sample with `blocks` (with PyMC's own choice if there are none) until the budget is spent.

    What goes wrong is part of the result: nothing but an interrupt by the user is raised.
    """
    began = time.perf_counter() if began is None else began
    as_draws = budget.kind == "draws"
    most = int(budget.amount) if as_draws else settings.max_draws
    clock = Clock(
        budget,
        chains=settings.chains,
        tune=settings.tune,
        fewest=min(FEWEST_DRAWS, most),
        most=most,
        count=counter(blocks, settings.n_local),
    )
    about = Run(
        name,
        describe(blocks) if blocks else "pm.sample() of PyMC",
        budget,
        configuration=tuple(configuration(block) for block in blocks),
        notes=tuple(notes),
    )
    idata, error = None, ""
    with _listening() as messages, watched() as interrupt:
        try:
            idata = pm.sample(
                draws=most,
                tune=settings.tune,
                chains=settings.chains,
                cores=1,  # one after the other: times of chains that run side by side depend on each other
                step=list(blocks) or None,
                initvals=None if settings.initvals is None else dict(settings.initvals),
                random_seed=seed,
                callback=clock,
                model=model,
                progressbar=False,
                compute_convergence_checks=False,  # the report has its own
            )
        except UserInterrupt:
            raise KeyboardInterrupt from None
        except Exception as failure:  # whatever a step of the user raises is told in the report
            error = f"{type(failure).__name__}: {failure}"
    # PyMC keeps the draws of a chain that was interrupted. If there are none, that is an error of its own.
    if interrupt.seen or (idata is not None and clock.ended < settings.chains):
        raise KeyboardInterrupt
    about = replace(about, messages=tuple(messages), error=error)
    if idata is None:
        return about
    notes = [*notes, *_stamped(idata, blocks)]
    return replace(
        about,
        idata=idata,
        seconds=clock.seconds,
        tuning_seconds=clock.tuning_seconds,
        other_seconds=time.perf_counter() - began - clock.seconds - clock.tuning_seconds,
        terms=clock.terms,
        fraction=_fraction(idata),
        moves=max((getattr(block, "n_moves", 1) for block in blocks), default=1),
        notes=(*notes, *_remarks(idata, clock, budget, settings, blocks)),
    )


def _stamped(idata: DataTree, blocks: Sequence[BlockedStep]) -> list[str]:
    """Stamp the draws, or tell why that was not possible: steps of the user may be unlike ours."""
    try:
        if blocks:
            stamp(idata, *blocks)
    except (TypeError, ValueError) as error:
        return [f"The draws have no stamp: {error}"]
    return []


def _remarks(
    idata: DataTree, clock: Clock, budget: Budget, settings: Settings, blocks: Sequence[BlockedStep]
) -> Iterator[str]:
    """Remarks on what differs from the budget and the settings that were asked for."""
    longest, kept = max(clock.lengths), dict(idata["posterior"].sizes)
    if budget.kind != "draws":
        spent = clock.seconds if budget.kind == "seconds" else clock.terms
        if longest >= settings.max_draws:
            yield (
                f"Stopped at max_draws = {settings.max_draws:,} draws of each chain, before the budget of "
                f"{budget} was spent."
            )
        elif spent > 1.5 * budget.amount:
            what = Budget(budget.kind, spent)
            yield f"Spent {what} of a budget of {budget}: a chain makes at least {FEWEST_DRAWS} draws."
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


def _fraction(idata: DataTree) -> float:
    stats = idata["sample_stats"]
    if "fraction_used" in stats:
        return float(stats["fraction_used"].mean(skipna=True))
    return np.nan


@contextmanager
def _listening() -> Iterator[list[str]]:
    """Collect warnings and logged warnings, each once, instead of printing them."""
    messages: list[str] = []

    class Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            _add(messages, record.getMessage())

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
            for warning in caught:
                _add(messages, str(warning.message))


def _add(messages: list[str], message: str) -> None:
    if message not in messages:
        messages.append(message)
