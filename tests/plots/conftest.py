"""Figures are drawn without a display, and closed."""

import numpy as np
import pytest
import xarray as xr

pytest.importorskip("matplotlib").use("Agg")
plt = pytest.importorskip("matplotlib.pyplot")


@pytest.fixture(autouse=True)
def _figures():
    """A plot makes at most the figure that it returns."""
    plt.close("all")
    yield
    drawn = [plt.figure(number) for number in plt.get_fignums()]
    for figure in drawn:
        figure.canvas.draw()  # what cannot be drawn warns here, and warnings are errors
    plt.close("all")


@pytest.fixture
def run():
    """A result with the given statistics of shape (chain, draw) or (chain, draw, sampler)."""

    def make(n_used, n_local, **others):
        n_used = np.asarray(n_used, dtype=float)
        stats = {"n_used": n_used, "fraction_used": n_used / n_local} | others
        draws = np.random.default_rng(7).normal(size=n_used.shape[:2])
        return tree({"a": draws}, stats)

    return make


def tree(posterior, stats=None):
    """A DataTree as PyMC makes it, of arrays of shape (chain, draw, ...)."""
    groups = {"posterior": posterior} | ({"sample_stats": stats} if stats is not None else {})
    return xr.DataTree.from_dict({f"/{name}": dataset(group) for name, group in groups.items()})


def dataset(arrays):
    variables = {}
    for name, values in arrays.items():
        values = np.asarray(values)
        more = [f"{name}_dim_{k}" for k in range(values.ndim - 2)]
        variables[name] = (("chain", "draw", *more), values)
    result = xr.Dataset(variables)
    return result.assign_coords({d: np.arange(n) for d, n in result.sizes.items()})
