"""What `recommend` tells when it has chosen: one message, where PyMC announces its steps."""

from __future__ import annotations

import logging

from pymc_austerity.step_methods.messages import few_digits
from pymc_austerity.step_methods.recommendation import Recommendation

# Below PyMC's logger, which shows messages as `pm.sample` does.
logger = logging.getLogger("pymc.austerity")

_MOST_NAMED = 5


def announce(why: Recommendation) -> None:
    """Log the choice."""
    logger.info("%s", announcement(why))


def announcement(why: Recommendation) -> str:
    """The step, its variables and its rows; for a fallback also the reason, and what would do better."""
    name = why.step.partition("(")[0]
    begin = f"recommend: {name} for {_variables(why)}"
    if why.rows is None:
        return f"{begin}, because {as_clause(why.reason)}. {why.otherwise}"
    is_all = why.n_local is not None and why.rows >= why.n_local
    rows = f"{'all' if is_all else f'{few_digits(why.rows)} of'} {why.n_local:,} rows a draw"
    if name == "TunaMH":
        return f"{begin}: {rows}"
    return f"{begin}: {rows}, because {as_clause(why.reason)}. {why.otherwise}"


def _variables(why: Recommendation) -> str:
    if why.rows is None and not why.others:
        return "all variables"
    named = ", ".join(why.vars[:_MOST_NAMED])
    others = len(why.vars) - _MOST_NAMED
    return named if others <= 0 else f"{named} and {others} other{'s' if others > 1 else ''}"


def as_clause(reason: str) -> str:
    """A sentence without a capital letter, unless it begins with a name."""
    first = reason.split(" ")[0]
    is_word = first.isalpha() and first[0].isupper() and first[1:].islower()
    return (reason[0].lower() + reason[1:] if is_word or first == "A" else reason).rstrip(".")
