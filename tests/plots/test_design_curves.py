"""Figures 1 and 10 of Korattikara et al."""

import numpy as np

from pymc_austerity.design import data_usage, error
from pymc_austerity.plots import plot_design_curves
from tests.plots.artists import inside, levels, line


def test_known_numbers():
    left, right = plot_design_curves(0.05, [0.01, 0.2], mu_std=[0.0, 1.0, 4.0])
    first = line(left, "$\\epsilon$ = 0.01")
    np.testing.assert_allclose(first[:, 1], [0.083790, 0.014055, 0.000712], atol=1e-4)
    second = line(right, "$\\epsilon$ = 0.2")
    np.testing.assert_allclose(second[:2, 1], [19.2982, 16.8521], atol=1e-2)
    np.testing.assert_allclose(levels(left), [0.083790, 0.492774], atol=1e-4)
    np.testing.assert_allclose(levels(right), [90.7288, 19.2982], atol=1e-2)


def test_boundaries_have_their_own_style():
    left, right = plot_design_curves(0.05, 0.05, boundaries=[0.5, 0.75, 1.0])
    for k, (axes, function, unit) in enumerate([(left, error, 1.0), (right, data_usage, 100.0)]):
        for boundary in (0.5, 0.75, 1.0):
            x, y = line(axes, f"$\\epsilon$ = 0.05, boundary {boundary:g}").T
            np.testing.assert_allclose(y, unit * function(x, 0.05, 0.05, boundary=boundary), err_msg=str(k))
        curves = [c for c in axes.lines if c.get_label().startswith("$")]
        assert len({str(c._unscaled_dash_pattern) for c in curves}) == 3
        assert len({c.get_color() for c in curves}) == 1


def test_labels_have_room():
    assert inside(plot_design_curves(0.04)[0].figure)
