"""What a step tells its user when it is built: errors and warnings."""

from typing import Any

import numpy as np
import pymc as pm
from pytensor.graph.basic import Variable

from pymc_austerity.exceptions import UnsuitableError, warn
from pymc_austerity.model.checks import IMPUTED
from pymc_austerity.model.compile.target import CompiledTarget
from pymc_austerity.model.factorisation import Factorisation


def refuse_discrete(value_vars: list[Variable]) -> None:
    """Raise `ValueError` naming variables that are not continuous."""
    discrete = [v.name for v in value_vars if np.dtype(v.type.dtype).kind != "f"]
    if discrete:
        imputed = [name.removesuffix(IMPUTED) for name in discrete if name.endswith(IMPUTED)]
        missing = (
            f" Observations of {', '.join(map(repr, imputed))} are missing, and PyMC makes variables of "
            "them: leave these rows out, if they are not to be imputed."
            if imputed
            else ""
        )
        raise ValueError(
            f"Only continuous variables can be updated; discrete: {', '.join(discrete)}.{missing} Give these "
            "to another step method, such as AusterityGibbs, pm.Metropolis or pm.CategoricalGibbsMetropolis."
        )


def refuse_short(fact: Factorisation, threshold: int, model: pm.Model) -> None:
    """Raise `UnsuitableError`: no term reaches the threshold."""
    of_data = {str(term.name) for term in (*model.observed_RVs, *model.potentials)}
    longest, size = fact.longest_term(of_data.intersection(fact.graph.terms) or None)
    names = ", ".join(str(rv.name) for rv, v in model.rvs_to_values.items() if v.name in fact.var_names)
    raise UnsuitableError(
        f"There is nothing to subsample: the longest term that contains {names} is {longest!r} with {size} "
        f"row{'s' if size != 1 else ''}, fewer than threshold={threshold}. Use pm.NUTS, or lower the "
        "threshold."
    )


def warn_of_given(target: CompiledTarget) -> None:
    """Tell of work in proportion to the data that a draw needs."""
    if target.given:
        names = ", ".join(target.given_names())
        warn(
            f"Parts of the log density that depend on {names}, but not on the variables of this step, couple "
            "many rows. They are computed in full once for each draw, which takes time in proportion to "
            "the rows."
        )


def warn_of_temperature(model: pm.Model, value_vars: list[Variable]) -> None:
    """Tell of variables that other steps update, which know nothing of the temperature."""
    others = [v.name for v in model.value_vars if v not in value_vars]
    if others:
        warn(
            f"temperature applies to this step only. Steps for {', '.join(others)} sample from the posterior "
            "without it, unless they are given the same temperature; where the likelihood depends on these, "
            "the draws belong to neither of the two posteriors."
        )


def try_proposal(bound: Any, q: np.ndarray) -> None:
    """Call a user's proposal once, so that a wrong result is an error here and not a wrong chain."""
    if bound.compilable:
        return
    result = bound.plain(q.copy(), np.random.default_rng(0))
    if isinstance(result, tuple) and len(result) == 2:
        q_new, log_hastings = result
        is_vector = isinstance(q_new, np.ndarray) and q_new.shape == q.shape and q_new.dtype == q.dtype
        if is_vector and isinstance(log_hastings, int | float | np.number):
            return
    raise ValueError(
        f"The proposal must return (q_new, log_hastings), a float array of shape {q.shape} and a number; "
        f"got {result!r}."
    )


def first_line(error: Exception) -> str:
    """First line of the message of an error."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def few_digits(number: float) -> str:
    """A number of rows, which may be small."""
    return f"{number:,.0f}" if number >= 10.0 else f"{number:.2g}"
