"""How many clusters of a mixture are occupied."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr

from pymc_austerity.validation import nearest


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
    posterior = idata["posterior"].dataset
    if name not in posterior:
        known = [str(variable) for variable in posterior.data_vars]
        raise ValueError(
            f"The posterior has no variable {name!r}.{nearest(name, known)} It has {', '.join(known)}."
        )
    z = posterior[name].transpose("chain", "draw", ...)
    if z.dtype.kind not in "iub":
        raise ValueError(f"{name!r} holds numbers of type {z.dtype}; categories are whole numbers.")
    values = np.sort(z.to_numpy().reshape(*z.shape[:2], -1), axis=-1)
    counts = (np.diff(values, axis=-1) != 0).sum(axis=-1) + (values.shape[-1] > 0)
    coords = {dim: z[dim] for dim in ("chain", "draw")}
    return xr.DataArray(counts, dims=("chain", "draw"), coords=coords, name=name)
