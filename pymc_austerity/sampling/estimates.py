"""`estimates`: means, sds and intervals, with the known moments of proposals as control variates.

Where most proposals are accepted, a chain is nearly the sequence of its proposals, whose moments are known.
By how far the mean of these is off by chance, by so much that of the draws is off, too.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from xarray import Dataset, DataTree

from pymc_austerity.sampling import pymc_names
from pymc_austerity.step_methods.metropolis.base import SubsampledStep
from pymc_austerity.target import Array, Index, Matrix, Vector
from pymc_austerity.validation import nearest, require_real

GROUP = "deviations"
# Batches for each control variate, at least: a regression on p of them makes errors about p / batches larger.
_BATCHES_OF_CONTROL = 20


class Summed(NamedTuple):
    """Deviations of the proposals of a chain: sums over batches of draws."""

    sums: Array  # (B, 2, D): of first and second moments
    draws_of_batch: int
    draws: int


def summed(step: Any) -> Summed | None:
    """The deviations that were summed of the proposals of a chain, if a step has any."""
    found = _with_deviations(step)
    if not found or not found[0].deviations.counts[1]:
        return None
    sums = np.concatenate([one.deviations.sums for one in found], axis=2)
    length, n = (int(count) // found[0].steps_per_draw for count in found[0].deviations.counts)
    return Summed(sums, length, n)


def _with_deviations(step: Any) -> list[Any]:
    """The steps whose proposals have known moments."""
    every = [one for one in pymc_names.flatten_steps(step) if isinstance(one, SubsampledStep)]
    return [one for one in every if one.deviations is not None]


def as_dataset(chains: Sequence[int], step: Any, found: Mapping[int, Summed]) -> Dataset | None:
    """The deviations of some chains as a dataset; None if there are not those of all of them."""
    if not set(chains) <= set(found):
        return None
    every = [found[chain] for chain in chains]
    names = [one.names_of_deviations for one in _with_deviations(step)]
    variables, elements = zip(*(pair for own in names for pair in own), strict=True)
    return Dataset(
        {
            "sums": (("chain", "batch", "moment", "coordinate"), np.stack([one.sums for one in every])),
            "draws_of_batch": ("chain", [one.draws_of_batch for one in every]),
            "draws": ("chain", [one.draws for one in every]),
        },
        coords={
            "chain": list(chains),
            "variable": ("coordinate", list(variables)),
            "element": ("coordinate", list(elements)),
        },
    )


def estimates(
    idata: DataTree, *, var_names: Sequence[str] | None = None, ci_prob: float | None = None
) -> pd.DataFrame:
    r"""Estimate means, standard deviations and intervals from draws and the known moments of proposals.

    A table as that of `arviz.summary`, with smaller errors where a step proposes independently of the state
    and most proposals are accepted. No row is read.

    Parameters
    ----------
    idata : DataTree
        What `sample` has returned, with all draws, of a step with such proposals: `TunaMH` of a field, or
        with `Laplace` proposals.
    var_names : sequence of str, optional
        Variables of the table. Default: all of the posterior.
    ci_prob : float in (0, 1), optional
        Probability of the intervals between quantiles. Default: that of ArviZ, 0.89.

    Returns
    -------
    pandas.DataFrame
        The columns of `arviz.summary`; and ``gain``, how many times more draws the plain mean needs for an
        error as small, and ``gain_sd``, the same for the standard deviation. Where no proposals are known,
        or these do not help, the gain is 1 and the row is that of `arviz.summary`.

    Raises
    ------
    ValueError
        If `idata` has no sums of proposals, or not all the draws that these belong to; if a variable is
        unknown.

    Notes
    -----
    Deviations c of a proposal, x' - E x' and (x' - E x')^2 - Var x', have mean zero given the past, whatever
    the posterior is. The mean of f is estimated by

        mean(f) - b . mean(c),

    where b are the slopes of batch means of f on those of c: control variates as of Liu, Dellaportas &
    Titsias (2024). An element of a variable has the deviations of its own coordinate, and the means of those
    of all variables, as many as batches allow for. Standard deviations and quantiles are those of draws with
    the weights that the regression gives them. Errors are those of its residuals by batches, with their
    autocorrelation.

    *Guarantee*: consistent, whether the fitted distribution is good or not; proposals that are mostly
    rejected gain nothing. An error is never below three sd over the number of draws: a part of the posterior
    that proposals have not found shifts the mean by no more, if no rejection told of it.

    *When it fails*: errors are those of chains that mix; look at ``r_hat`` and ``ess_bulk``, which
    are those of the plain draws. Of a few hundred draws with few rejections errors are too small at times.
    Draws that were thinned, or put together from several results, have no sums that belong to them, nor have
    those of interrupted chains, and of several steps, unless `sample` writes these to a ``trace``.
    `pymc.sample` keeps none.

    References
    ----------
    .. [1] Liu, S., Dellaportas, P. & Titsias, M. K. (2024). Variance reduction for the independent
       Metropolis sampler.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_austerity as pma
    >>> rng = np.random.default_rng(1)
    >>> x = rng.normal(size=5000)
    >>> y = rng.poisson(np.exp(1 + 0.3 * x))
    >>> with pm.Model() as model:
    ...     level, slope = pm.Normal("level"), pm.Normal("slope")
    ...     visits = pm.Poisson("visits", pm.math.exp(level + slope * x), observed=y)
    >>> idata = pma.sample(model, 500, tune=100, chains=4, random_seed=1, quiet=True)
    >>> found = pma.estimates(idata)
    >>> bool(found.loc["slope", "gain"] > 3)
    True
    """
    if not isinstance(idata, DataTree) or "posterior" not in idata.children:
        raise ValueError(
            f"idata must be what sample has returned, with a posterior, got {type(idata).__name__}."
        )
    if ci_prob is not None:
        require_real("ci_prob", ci_prob, "(0, 1)", "It is the probability of the intervals.")
    posterior = idata["posterior"].to_dataset()
    given = [var_names] if isinstance(var_names, str) else var_names
    names = list(posterior.data_vars) if given is None else list(given)
    if not names:
        raise ValueError("var_names is empty: name a variable, or leave it out for all.")
    for name in names:
        if name not in posterior.data_vars:
            raise ValueError(
                f"{name!r} is not in the posterior.{nearest(str(name), map(str, posterior.data_vars))}"
            )
    controls = _Controls.of(idata)
    return pd.concat([_of_variable(posterior[[name]], str(name), controls, ci_prob) for name in names])


def _of_variable(found: Dataset, name: str, controls: "_Controls", ci_prob: float | None) -> pd.DataFrame:
    """The rows of the table for one variable."""
    import arviz_base  # takes half a second, as the next does
    import arviz_stats

    table = arviz_stats.summary(
        DataTree.from_dict({"posterior": found}), ci_prob=ci_prob, ci_kind="eti", round_to="none"
    )
    low, high = (column for column in table.columns if str(column).startswith("eti"))
    prob = arviz_base.rcParams["stats.ci_prob"] if ci_prob is None else ci_prob
    draws = found[name].to_numpy()
    flat = draws.reshape(*draws.shape[:2], -1)
    table["gain"] = table["gain_sd"] = 1.0
    rows = table.to_dict("records")
    for k, row in enumerate(rows):
        own = controls.of_element(name, k, flat.shape[2])
        if own.shape[1] and flat.dtype.kind == "f":
            row |= _estimated(flat[..., k], controls, own, row, (low, high), prob)
    return pd.DataFrame(rows, index=table.index)


def _estimated(
    draws: Matrix,
    controls: "_Controls",
    own: Matrix,
    plain: Mapping[Any, float],
    ends: tuple[str, str],
    prob: float,
) -> dict[str, float]:
    """What some draws (chains, n) with control variates (batches, p) tell better than a `plain` row does."""
    weights, error = controls.regression(draws, own)
    if not error < plain["mcse_mean"]:
        return {}
    of_draws = controls.by_draws(weights)
    mean = float((of_draws * draws).sum())
    found = {"mean": mean, "mcse_mean": error, "gain": (plain["mcse_mean"] / error) ** 2}
    squares = (draws - mean) ** 2
    sd = float(np.sqrt((of_draws * squares).sum()))
    error_of_sd = controls.regression(squares, own)[1] / (2.0 * sd)
    if error_of_sd < plain["mcse_sd"]:
        found |= {"sd": sd, "mcse_sd": error_of_sd, "gain_sd": (plain["mcse_sd"] / error_of_sd) ** 2}
    order = np.argsort(draws, axis=None)
    below = np.maximum.accumulate(np.cumsum(of_draws.ravel()[order]))
    for end, share in zip(ends, (0.5 - 0.5 * prob, 0.5 + 0.5 * prob), strict=True):
        at = min(int(np.searchsorted(below, share)), len(order) - 1)
        found[end] = float(draws.ravel()[order[at]])
    return found


@dataclass(frozen=True, eq=False)
class _Controls:
    """Control variates of a result: means of deviations over batches of draws of all chains."""

    means: Array  # (batches, 2, D)
    batch: Index  # (chains, n): of each draw
    shares: Vector  # (batches,): of all draws
    places: dict[str, NDArray[np.int64]]  # Coordinates of each variable, by elements

    @classmethod
    def of(cls, idata: DataTree) -> "_Controls":
        """The control variates that `sample` has kept, if they belong to the draws."""
        if GROUP not in idata.children:
            raise ValueError(
                f"idata has no group {GROUP!r}, which pymc_austerity.sample keeps where one step moves all "
                "variables, TunaMH on a field or with Laplace(): moments of its proposals are known. Those "
                "of NUTS, of random walks and of Surrogate() are not, and pymc.sample keeps no such group. "
                "arviz.summary has estimates of any draws."
            )
        kept, posterior = idata[GROUP].to_dataset(), idata["posterior"]
        n = posterior.sizes["draw"]
        every, batch, n_before = [], np.empty((posterior.sizes["chain"], n), np.int64), 0
        chains, numbers = kept.coords["chain"].to_numpy(), posterior.coords["draw"].to_numpy()
        if not np.array_equal(chains, posterior.coords["chain"].to_numpy()):
            raise ValueError("The chains of idata are not those for which proposals were summed.")
        if np.any(kept["draws"] != n) or np.any(np.diff(numbers) != 1):
            raise ValueError(
                f"idata has {n} draws of a chain, and proposals were summed for {int(kept['draws'].max())} "
                "in a row: draws were left out since, or sampling was interrupted. Give what sample has "
                "returned at its end."
            )
        for c in range(len(chains)):
            length = int(kept["draws_of_batch"][c])
            n_batches = -(-n // length)
            sums = kept["sums"][c].to_numpy()
            batch[c] = n_before + np.arange(n) // length
            n_before += n_batches
            every.append(sums[:n_batches])
        counts = np.bincount(batch.ravel()).astype(np.float64)
        means = np.concatenate(every) / counts[:, None, None]
        variables = kept.coords["variable"].to_numpy()
        elements = kept.coords["element"].to_numpy()
        places = {str(v): np.flatnonzero(variables == v) for v in dict.fromkeys(variables)}
        places = {v: own[np.argsort(elements[own])] for v, own in places.items()}
        return cls(means, batch, counts / counts.sum(), places)

    @cached_property
    def shared(self) -> dict[str, Vector]:
        """First moments of each variable, averaged over its elements: what others depend on together."""
        return {name: self.means[:, 0, own].mean(axis=1) for name, own in self.places.items()}

    def of_element(self, name: str, k: int, size: int) -> Matrix:
        """Control variates (batches, p) for an element of a variable of some size."""
        most = len(self.shares) // _BATCHES_OF_CONTROL
        own = self.places.get(name)
        if own is None:  # computed from others, perhaps element by element
            own = next((p for p in self.places.values() if len(p) == size > 1), np.empty(0, np.int64))
        if len(own) == size:
            found = [*self.means[:, :, own[k]].T]
            found += [one for other, one in self.shared.items() if size > 1 or other != name]
        else:
            own = own if len(own) else np.arange(self.means.shape[2])
            found = [*self.means[:, 0, own].T] if len(own) <= most else [*self.shared.values()]
        return np.array(found[:most]).reshape(-1, len(self.shares)).T

    def regression(self, values: Matrix, own: Matrix) -> tuple[Vector, float]:
        """Weights of batches, and the standard error of the mean of some values (chains, n).

        The error is that of the residuals of batches, which may depend on each other. Where no proposal was
        rejected nothing is left, and up to three in as many draws could still be: by the rule of three.
        """
        from arviz_stats.base.array import array_stats

        stats: Any = array_stats
        n, p = own.shape
        sums = np.bincount(self.batch.ravel(), values.ravel(), n)
        means = sums / (self.shares * values.size)
        off = self.shares @ own
        centered, plain = own - off, means - self.shares @ means
        inverse = np.linalg.pinv((self.shares[:, None] * centered).T @ centered, hermitian=True)
        left = plain - centered @ (inverse @ (centered.T @ (self.shares * plain)))
        by_chains = (n * self.shares * left).reshape(len(values), -1)
        error = float(stats.mcse(by_chains, chain_axis=0, draw_axis=1, method="mean"))
        unseen = 3.0 * float(values.std()) / values.size
        return 1.0 - centered @ (inverse @ off), math.hypot(error * math.sqrt((n - 1) / (n - 1 - p)), unseen)

    def by_draws(self, weights: Vector) -> Matrix:
        """Weights of draws (chains, n), which sum to one, from those of batches."""
        return weights[self.batch] / self.batch.size
