"""Langevin dynamics without a test: at a kink, and on a normal posterior."""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

# The example of section 6.4: step size, and the variance of the gradient of 500 of 10,000 rows.
A, V = 5e-6, 1.9e5


def kink() -> Figure:
    """Stationary densities at a kink, and how much too wide they are on a normal posterior."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(8, 2.9), layout="constrained")
    theta = np.linspace(-0.03, 0.06, 1201)
    posterior = np.exp(5000 * theta - 5000 * theta**2 - 4950 * np.abs(theta))
    slope = 5000 - 10_000 * theta - 4950 * np.sign(theta)
    width = theta[1] - theta[0]
    left.plot(theta, posterior / posterior.sum() / width, "k", label="posterior")
    for variance, colour, name in ((0.0, "C0", "all rows"), (V, "C3", "500 rows")):
        spread = A + 0.25 * A**2 * variance
        step = theta - (theta + 0.5 * A * slope)[:, None]
        chain = np.exp(-0.5 * step**2 / spread)
        chain /= chain.sum(axis=1, keepdims=True)
        stationary = np.linalg.matrix_power(chain, 2**14)[600]
        left.plot(theta, stationary / width, color=colour, label=f"SGLD, {name}")
    left.set(xlim=(-0.008, 0.045), yticks=[], xlabel="coefficient")
    left.legend(frameon=False)
    rate = np.geomspace(1e-3, 3.9, 200)
    # The data of the tests: 100,000 rows that vary twice as much as the model says.
    for n, colour in ((100, "C3"), (1000, "C1"), (100_000, "C0")):
        ratio = 2 * (100_000 / n - 1)
        wide = np.sqrt((1 + rate * ratio / 4) / (1 - rate / 4))
        right.loglog(rate, wide, color=colour, label=f"{n:,} rows" if n < 100_000 else "all, or Taylor()")
    right.axvline(4, color="k", ls="--", lw=0.8)
    right.set(xlabel="step size, in posterior variances", ylabel="sd / posterior sd")
    right.legend(frameon=False)
    return figure
