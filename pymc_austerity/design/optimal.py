"""The test that reads least among those whose error is within a tolerance."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Literal, NamedTuple

import numpy as np
import xarray as xr

from pymc_austerity.design.acceptance import decision_errors
from pymc_austerity.design.checks import TERMS, numbers
from pymc_austerity.design.sequential import MOST_STAGES, operating_characteristics
from pymc_austerity.exceptions import warn
from pymc_austerity.target import Array
from pymc_austerity.validation import require_real, require_whole

BATCH_SIZES = (50, 100, 200, 300, 400, 500, 600, 800, 1000, 1500, 2000, 2500, 5000)
EPSILONS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.25, 0.3)
# By default no test that may take more stages than this.
_STAGES = 500


@dataclass(frozen=True, eq=False)
class Design(Mapping[str, Any]):
    r"""A sequential test: a mapping for ``AusterityMH(**design)``, and what is to be expected of it.

    Attributes
    ----------
    epsilon : float
    batch_size : int
    boundary : float
        The three keys of the mapping.
    error : float
        Of an average design the mean of \|Delta\| over the pairs, of a worst-case design error(0).
    data_usage : float
        Expected share of the data: of an average design the mean over the pairs, of a worst-case design
        that at mu_std = 0.
    kind : "average" or "worst case"
    N : int
        Number of local terms that the design is for.

    Examples
    --------
    >>> from pymc_austerity.design import optimal_design
    >>> design = optimal_design(tolerance=0.1, N=10_000)
    >>> dict(design)
    {'epsilon': 0.01, 'batch_size': 400, 'boundary': 0.5}
    >>> round(design.error, 3)
    0.093
    """

    epsilon: float
    batch_size: int
    boundary: float
    error: float
    data_usage: float
    kind: Literal["average", "worst case"]
    N: int

    def __getitem__(self, key: str) -> Any:
        if key not in _KEYS:
            raise KeyError(key)
        return getattr(self, key)

    def __iter__(self) -> Iterator[str]:
        return iter(_KEYS)

    def __len__(self) -> int:
        return len(_KEYS)

    def __repr__(self) -> str:
        return (
            f"Design(epsilon={self.epsilon:g}, batch_size={self.batch_size}, boundary={self.boundary:g}: "
            f"{self.kind} error {self.error:.2g}, data usage {self.data_usage:.2g}, N={self.N})"
        )


_KEYS = ("epsilon", "batch_size", "boundary")


def optimal_design(
    pairs: Any = None,
    tolerance: float = 0.01,
    *,
    N: int | None = None,
    batch_sizes: Sequence[int] | None = None,
    epsilons: Sequence[float] = EPSILONS,
    boundaries: Sequence[float] = (0.5,),
) -> Design:
    r"""Choose batch size, tolerance and boundary so that the test reads least for a given error.

    Parameters
    ----------
    pairs : DataTree, object with `mu` and `sigma_l`, or None, default None
        Moves that the chain will propose, from a trial run: a DataTree with the group `log_ratios` that
        `probe` writes, or anything with two arrays `mu` and `sigma_l` as of `acceptance_error`. With None
        the design is for the worst case.
    tolerance : float in (0, 0.5), default 0.01
        Largest error: the mean of \|Delta\| over the pairs, or the error at mu_std = 0. Posterior standard
        deviations come out too large by several times this number.
    N : int, optional
        Number of local terms. Not needed with a DataTree.
    batch_sizes : sequence of int, optional
        Batch sizes to try; those above N are left out. Default: 50, 100, 200, ..., 5000
        (13 values), then 10,000, 20,000, 50,000 and so on up to N / 2; those below N / 500, with which a test
        may take more than 500 stages, are left out.
    epsilons : sequence of float in [0, 0.5], default 0.0005, 0.001, 0.002, ..., 0.3 (14 values)
        Tolerances of a single look to try. The error of the design can only be as near to `tolerance` as
        these are to each other.
    boundaries : sequence of float in [0.5, 1], default (0.5,)
        Shapes of the boundary to try.

    Returns
    -------
    Design
        A mapping with the keys epsilon, batch_size and boundary.

    Raises
    ------
    ValueError
        If no test of the grid is within the tolerance; if `pairs` and `N` do not agree; if a parameter is out
        of its range.

    Notes
    -----
    With pairs the average design, equation 7 of Korattikara et al. (2014), without them the worst-case
    design, equation 8; both by search over the grid. The worst-case design is far more cautious than it
    looks: hardly any move is at mu_std = 0, and errors of one move partly cancel.

    *Guarantee*: none. The error is what the theory expects over the moves that were given, and bounds
    neither the error of other moves nor that of the posterior.

    *When it fails*: if means of batches are not normal (see `pymc_austerity.diagnostics.normality`), and if
    the moves of the trial run are not those of the chain: collect them at equilibrium, with the proposal and
    the control variate that will be used, and give both to the step again. The mapping has neither: without
    the control variate the error would be far larger, so that there is a warning if the moves had one.

    References
    ----------
    .. [1] Korattikara, A., Chen, Y. & Welling, M. (2014). Austerity in MCMC land: cutting the
       Metropolis-Hastings budget. ICML.

    Examples
    --------
    Moves as of a random walk at equilibrium, whose log acceptance ratios have the mean -S^2 / 2 and the
    variance S^2, where S is the standard deviation of the sum of the terms:

    >>> from types import SimpleNamespace
    >>> import numpy as np
    >>> from pymc_austerity.design import optimal_design
    >>> N, S = 10_000, np.linspace(0.5, 3, 50)
    >>> log_ratios = np.random.default_rng(1).normal(-(S**2) / 2, S)
    >>> pairs = SimpleNamespace(mu=log_ratios / N, sigma_l=S / np.sqrt(N))
    >>> design = optimal_design(pairs, 0.05, N=N, batch_sizes=(200, 500, 1000))
    >>> design
    Design(epsilon=0.02, batch_size=200, boundary=0.5: average error 0.042, data usage 0.56, N=10000)

    It is given to a step by ``AusterityMH(**design)``. Without the pairs, for the same tolerance:

    >>> optimal_design(None, 0.05, N=N, batch_sizes=(200, 500, 1000))
    Design(epsilon=0.005, batch_size=500, boundary=0.5: worst case error 0.046, data usage 0.95, N=10000)
    """
    require_real("tolerance", tolerance, "(0, 0.5)")
    moves = None
    if pairs is not None:
        moves, n_local = moves_of(pairs, N)
    elif N is None:
        raise ValueError("N, the number of local terms, must be given where there are no pairs.")
    else:
        require_whole(2, TERMS, N=N)
        n_local = int(N)
    if isinstance(pairs, xr.DataTree) and (name := pairs["log_ratios"].attrs.get("control_variate")):
        warn(
            f"The moves are those of a step with control_variate={name}(), and so is the design: give both "
            f"to the step, AusterityMH(**design, control_variate={name}()). Without it the error is far "
            "larger."
        )
    sizes = _default_sizes(n_local) if batch_sizes is None else _usable(batch_sizes, n_local)
    for name, given in (("epsilons", epsilons), ("boundaries", boundaries)):
        if not len(given):
            raise ValueError(f"{name} must not be empty.")
    numbers("epsilon", epsilons)
    numbers("boundary", boundaries)
    designs = []
    kind: Literal["average", "worst case"] = "worst case" if moves is None else "average"
    for size, epsilon, boundary in product(sizes, map(float, epsilons), map(float, boundaries)):
        if moves is None:
            tied = operating_characteristics(np.zeros(1), size / n_local, epsilon, boundary)
            error, used = (float(each[0]) for each in tied)
        else:
            found = decision_errors(*moves, n_local, size, epsilon, boundary)
            error, used = float(np.abs(found.signed).mean()), float(found.data_usage.mean())
        designs.append(Design(epsilon, size, boundary, error, used, kind, n_local))
    within = [design for design in designs if design.error <= tolerance]
    if not within:
        raise ValueError(
            f"No test of the grid has an error of at most tolerance = {tolerance:g}. The smallest is that of "
            f"{min(designs, key=lambda design: design.error)!r}. Allow smaller epsilons, larger batch sizes "
            "or a larger tolerance."
        )
    return min(within, key=lambda design: design.data_usage)


class Moves(NamedTuple):
    """Log ratios of proposed moves, as of `acceptance_error`: all of shape (n_pairs,)."""

    mu: Array
    sigma_l: Array


def moves_of(pairs: Any, N: Any) -> tuple[Moves, int]:
    """The moves of a DataTree or an object with `mu` and `sigma_l`, and the number of terms."""
    if isinstance(pairs, xr.DataTree):
        if "log_ratios" not in pairs.children:
            raise ValueError(
                "pairs has no group log_ratios: `pymc_austerity.probe(model, step)` makes one. Or give an "
                "object with the arrays mu and sigma_l."
            )
        group = pairs["log_ratios"].to_dataset()
        if "n_infinite" in group and (odd := np.flatnonzero(group["n_infinite"].values)).size:
            raise ValueError(
                f"Some log ratios of the moves {', '.join(map(str, odd[:5]))} are not finite, and mu and sd "
                "are those of the others. Leave these moves out: "
                "pairs.isel(pair=pairs.log_ratios.n_infinite == 0)."
            )
        mu, sigma_l, counted = group["mu"].values, group["sd"].values, int(group.attrs["n_local"])
        if N is not None and counted != N:
            raise ValueError(f"N = {N!r}, but the pairs are of a model with {counted} local terms.")
        N = counted
    elif hasattr(pairs, "mu") and hasattr(pairs, "sigma_l"):
        mu, sigma_l = pairs.mu, pairs.sigma_l
        if N is None:
            raise ValueError("N, the number of local terms, must be given beside mu and sigma_l.")
    else:
        raise ValueError(
            "pairs must be a DataTree with the group log_ratios, which `pymc_austerity.probe(model, step)` "
            f"makes, or have the arrays mu and sigma_l, got {type(pairs).__name__}."
        )
    require_whole(2, TERMS, N=N)
    mu, sigma_l = numbers("mu", mu).ravel(), numbers("sigma_l", sigma_l).ravel()
    if mu.shape != sigma_l.shape or not mu.size:
        raise ValueError(
            f"mu and sigma_l must be two arrays of one length, got lengths {mu.size} and {sigma_l.size}."
        )
    return Moves(mu, sigma_l), int(N)


def _default_sizes(n_local: int) -> list[int]:
    larger = [digit * 10**power for power in range(4, 18) for digit in (1, 2, 5)]
    sizes = [s for s in BATCH_SIZES if s <= n_local] + [s for s in larger if s <= n_local / 2]
    return [size for size in sizes if size >= n_local / _STAGES] or [n_local]


def _usable(batch_sizes: Sequence[int], n_local: int) -> list[int]:
    for size in batch_sizes:
        require_whole(2, "One term has no variance to test with.", batch_sizes=size)
    sizes = [int(size) for size in batch_sizes if size <= n_local]
    if not sizes:
        raise ValueError(f"batch_sizes must have one of at most N = {n_local}, got {list(batch_sizes)!r}.")
    if math.ceil(n_local / min(sizes)) > MOST_STAGES:
        least = n_local / MOST_STAGES
        raise ValueError(f"batch_sizes must be at least N / {MOST_STAGES:,} = {least:g}, got {min(sizes)}.")
    return sizes
