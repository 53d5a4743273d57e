"""Figures are drawn without a display, and closed."""

import numpy as np
import pytest

from tests.diagnostics.results import result

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
        draws = np.random.default_rng(7).normal(size=n_used.shape[:2])
        return result({"a": draws}, n_used=n_used, fraction_used=n_used / n_local, **others)

    return make
