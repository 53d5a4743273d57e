"""What a step tells its user: errors and warnings when it is built, and how it is set up."""

import textwrap
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import pymc as pm
from pytensor.graph.basic import Variable

from pymc_austerity.exceptions import UnsuitableError, warn
from pymc_austerity.model.checks import IMPUTED
from pymc_austerity.model.compile.target import CompiledTarget
from pymc_austerity.model.factorisation import Factorisation

# Longer arrays are described by their shape.
_LONGEST = 20
_WIDTH = 100


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


def few_digits(number: float) -> str:
    """A number of rows, which may be small."""
    return f"{number:,.0f}" if number >= 10.0 else f"{number:.2g}"


def rows_of_draw(rows: float, n_rows: int) -> str:
    """How many rows a draw is expected to read."""
    if rows >= n_rows:
        return f"all {n_rows:,} rows a draw"
    if 0.0 < rows < 0.5:
        return f"one draw in {1.0 / rows:,.0f} reads a row, of {n_rows:,}"
    return f"{few_digits(rows)} of {n_rows:,} rows a draw"


# How a step is set up -----------------------------------------------------------------------------


def plain(value: Any) -> Any:
    """A value as JSON can hold it: objects by their names and fields, long arrays by their shapes."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, np.ndarray):
        if value.size > _LONGEST:
            return f"array of shape {value.shape}"
        return plain(value.tolist())
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float):
        return value if np.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if is_dataclass(value) and not isinstance(value, type):
        return {"name": type(value).__name__} | {f.name: plain(getattr(value, f.name)) for f in fields(value)}
    return getattr(value, "__qualname__", type(value).__name__)  # a function, or an object of the user's


def text(configuration: Mapping[str, Any]) -> str:
    """A configuration in a few lines."""
    rest = dict(configuration)
    title = f"{rest.pop('step')}({', '.join(rest.pop('vars'))})"
    n_local, n_exact = rest.pop("n_local", None), rest.pop("n_exact", 0)
    parts = [] if n_local is None else [f"{n_local:,} local terms"]
    parts += [f"{n_exact:,} of them always read"] if n_exact else []
    settings = ", ".join(f"{name}={_shown(value)}" for name, value in rest.items() if value not in (None, {}))
    body = [", ".join(parts), settings]
    wrapper = textwrap.TextWrapper(
        _WIDTH, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False, break_long_words=False
    )
    return "\n".join([title, *(wrapper.fill(line) for line in body if line)])


def _shown(value: Any) -> str:
    if isinstance(value, Mapping) and "name" in value:
        given = [f"{k}={_shown(v)}" for k, v in value.items() if k != "name" and v is not None]
        return f"{value['name']}({', '.join(given)})"
    return repr(value)
