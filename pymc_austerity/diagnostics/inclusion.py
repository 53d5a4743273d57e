"""Which coefficients are in the model, from the draws of a variable selection."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
import xarray as xr

from pymc_austerity.diagnostics.result import SAMPLE, by_label, mcse, posterior_of, scalars
from pymc_austerity.proposals.jumps import COUNTS, KINDS
from pymc_austerity.validation import require_whole


class Inclusion(NamedTuple):
    """Result of `inclusion`.

    Attributes
    ----------
    coefficients : DataFrame
        One row for each: ``probability`` of being in the model, its Monte Carlo ``error``, ``ess``, ``rhat``,
        and ``changes``, how often the indicator changed from one draw to the next. Where it never did, the
        error is NaN: the draws do not tell it.
    models : DataFrame
        The models that were visited most, by their indicators as text: ``probability`` and ``error``.
    jumps : DataFrame
        Rows ``births``, ``deaths``, ``swaps`` and ``others`` (moves without a jump): how many were
        ``proposed``, the share ``accepted``, and ``used``, the terms read for each. Empty where no
        `ReversibleJump` took part.

    Examples
    --------
    >>> import numpy as np
    >>> from arviz import from_dict
    >>> from pymc_austerity.diagnostics import Inclusion, inclusion
    >>> found = inclusion(from_dict({"posterior": {"gamma": np.tile([[1, 0], [1, 1]], (2, 50, 1))}}))
    >>> isinstance(found, Inclusion)
    True
    """

    coefficients: pd.DataFrame
    models: pd.DataFrame
    jumps: pd.DataFrame


def inclusion(idata: Any, name: str | None = None, *, n_models: int = 10) -> Inclusion:
    """Posterior probabilities of coefficients and of models, with their Monte Carlo errors.

    Parameters
    ----------
    idata : DataTree
        Result of `pymc.sample` of a model with indicators, by `ReversibleJump` or another step.
    name : str, optional
        Of the indicators. Default: the only vector of zeros and ones in the posterior.
    n_models : int, default 10
        How many models to list.

    Returns
    -------
    Inclusion

    Raises
    ------
    ValueError
        If there is no such variable, there are several, or it holds other numbers than 0 and 1.

    Notes
    -----
    Errors are those of ArviZ, for the mean of zeros and ones.

    *Guarantee*: none. A chain that has not moved between two models says nothing of their probabilities.

    *When it fails*: where an indicator changed a few times, its error is a guess, and too small where chains
    did not leave the models near their start: compare chains from different starts (``rhat``), and look at
    ``changes``.

    Examples
    --------
    >>> import numpy as np
    >>> from arviz import from_dict
    >>> from pymc_austerity.diagnostics import inclusion
    >>> gamma = np.tile([[1, 0], [1, 1]], (2, 50, 1))  # two chains of 100 draws
    >>> found = inclusion(from_dict({"posterior": {"gamma": gamma}}))
    >>> found.coefficients[["probability", "changes"]]
              probability  changes
    gamma[0]          1.0        0
    gamma[1]          0.5      198
    >>> found.models["probability"]
    10    0.5
    11    0.5
    Name: probability, dtype: float64
    """
    require_whole(1, n_models=n_models)
    chosen = _indicators(idata) if name is None else name
    draws = scalars(idata, chosen)
    wrong = [label for label, own in draws.items() if not np.all((own == 0.0) | (own == 1.0))]
    if wrong:
        raise ValueError(f"{wrong[0]} holds other numbers than 0 and 1: {chosen!r} is no indicator.")
    gamma = np.stack(list(draws.values()), axis=-1).astype(np.int64)
    return Inclusion(_coefficients(posterior_of(idata, chosen)), _models(gamma, n_models), _jumps(idata))


def _indicators(idata: Any) -> str:
    """The only vector of zeros and ones."""
    found = [
        str(label)
        for label, values in posterior_of(idata).data_vars.items()
        if values.dtype.kind in "iub" and values.ndim == 3 and bool(values.isin([0, 1]).all())
    ]
    if len(found) != 1:
        which = f"there are {len(found)}: {', '.join(found)}" if found else "there is none"
        raise ValueError(f"name= has to say which vector of zeros and ones to look at; {which}.")
    return found[0]


@np.errstate(divide="ignore", invalid="ignore")
def _coefficients(draws: xr.Dataset) -> pd.DataFrame:
    """A row for each. Ranks say nothing of zeros and ones: R-hat is that of the numbers."""
    import arviz_stats  # takes half a second

    draws = draws.astype(np.float64)
    changes = by_label(abs(draws.diff("draw")).sum(SAMPLE))
    known = changes > 0
    return pd.DataFrame(
        {
            "probability": by_label(draws.mean(SAMPLE)),
            "error": by_label(arviz_stats.mcse(draws)).where(known),
            "ess": by_label(arviz_stats.ess(draws)).where(known),
            "rhat": by_label(arviz_stats.rhat(draws, method="split")).where(known),
            "changes": changes.astype(int),
        }
    )


def _models(gamma: npt.NDArray[np.int64], n_models: int) -> pd.DataFrame:
    """The models that were visited most, and their errors."""
    flat = gamma.reshape(-1, gamma.shape[-1])
    visited, which, counts = np.unique(flat, axis=0, return_inverse=True, return_counts=True)
    number = which.reshape(gamma.shape[:2])
    rows = {}
    for k in np.argsort(-counts, kind="stable")[:n_models]:
        here = (number == k).astype(np.float64)
        error = mcse(here) if np.ptp(here) else np.nan
        rows["".join(map(str, visited[k]))] = {"probability": float(here.mean()), "error": error}
    return pd.DataFrame.from_dict(rows, orient="index")


def _jumps(idata: Any) -> pd.DataFrame:
    """Moves of all steps together, by kind: the number proposed, and shares of these."""
    if "sample_stats" not in idata.children or f"{KINDS[0]}_{COUNTS[0]}" not in idata["sample_stats"]:
        return pd.DataFrame(columns=list(COUNTS))
    stats = idata["sample_stats"]
    totals = {what: {kind: float(stats[f"{kind}_{what}"].sum()) for kind in KINDS} for what in COUNTS}
    table = pd.DataFrame(totals)
    proposed = table["proposed"]
    return table.div(proposed.where(proposed > 0.0), axis=0).assign(proposed=proposed.astype(int))
