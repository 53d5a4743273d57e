"""Summaries that labels do not change: occupied clusters; unmixing matrices up to order and signs of rows."""

from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr

from pymc_austerity.diagnostics.result import SAMPLE, posterior_of


def n_clusters(idata: Any, name: str) -> xr.DataArray:
    """Count the different values of latent categories, in every draw.

    Parameters
    ----------
    idata : DataTree
        Result of `pymc.sample`.
    name : str
        Of a variable of categories, such as the allocations z of a mixture.

    Returns
    -------
    DataArray of int, dims (chain, draw)

    Raises
    ------
    ValueError
        If there is no such variable, or it has no categories.

    Notes
    -----
    It does not depend on how clusters are labelled, so chains can be compared by it.

    Examples
    --------
    >>> import numpy as np
    >>> from arviz import from_dict
    >>> from pymc_austerity.diagnostics import n_clusters
    >>> idata = from_dict({"posterior": {"z": np.array([[[0, 0, 3], [1, 2, 4]]])}})
    >>> n_clusters(idata, "z").values
    array([[2, 3]])
    """
    z = posterior_of(idata, name)[name].transpose(*SAMPLE, ...)
    if z.dtype.kind not in "iub":
        raise ValueError(f"{name!r} holds numbers of type {z.dtype}; categories are whole numbers.")
    values = np.sort(z.to_numpy().reshape(*z.shape[:2], -1), axis=-1)
    counts = (np.diff(values, axis=-1) != 0).sum(axis=-1) + (values.shape[-1] > 0)
    return xr.DataArray(counts, dims=SAMPLE, coords={dim: z[dim] for dim in SAMPLE}, name=name)


def amari_distance(W: npt.ArrayLike, W0: npt.ArrayLike) -> npt.NDArray[np.float64]:
    r"""Amari distance of unmixing matrices from a true one.

    Parameters
    ----------
    W : array_like of shape (..., D, D)
        One matrix, or draws of it.
    W0 : array_like of shape (D, D)
        The true unmixing matrix, invertible.

    Returns
    -------
    ndarray of shape (...,)
        Numbers in [0, 1]: 0 where W is W0 with its rows exchanged, scaled or negated.

    Raises
    ------
    ValueError
        If the shapes do not fit, D is less than 2, or W0 is singular.

    Notes
    -----
    With p = W W0^-1 it is the sum over rows of (sum_j \|p_ij\| / max_j \|p_ij\| - 1), plus the same by
    columns, divided by 2 D (D - 1) (Amari, Cichocki & Yang 1996, normalised as by Bach & Jordan 2002).

    *When it fails*: sources that are normal leave rotations that no data fix. The distance then measures the
    accident of the sample.

    References
    ----------
    .. [1] Amari, S., Cichocki, A. & Yang, H. (1996). A new learning algorithm for blind signal separation.
       NIPS 8.
    .. [2] Bach, F. R. & Jordan, M. I. (2002). Kernel independent component analysis. JMLR 3.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_austerity.diagnostics import amari_distance
    >>> turned = np.array([[np.cos(0.1), -np.sin(0.1)], [np.sin(0.1), np.cos(0.1)]])
    >>> amari_distance([turned, -np.eye(2)[::-1]], np.eye(2)).round(3).tolist()  # tan(0.1), 0
    [0.1, 0.0]
    """
    given, true = np.asarray(W, dtype=float), np.asarray(W0, dtype=float)
    if true.ndim != 2 or true.shape[0] != true.shape[1] or true.shape[0] < 2:
        raise ValueError(f"W0 must be a square matrix of at least two rows, got shape {true.shape}.")
    if given.shape[-2:] != true.shape:
        raise ValueError(f"W must have the shape (..., {len(true)}, {len(true)}) of W0, got {given.shape}.")
    if np.linalg.matrix_rank(true) < len(true):
        raise ValueError("W0 must be invertible; its rows are linearly dependent.")
    p = np.abs(given @ np.linalg.inv(true))
    excess = sum((p.sum(axis) / p.max(axis) - 1.0).sum(-1) for axis in (-1, -2))
    return np.asarray(excess / (2 * len(true) * (len(true) - 1)))
