"""How `TunaMH` draws rows, what a bound is, and what is left of a row."""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def sigmoid(t: Floats) -> Floats:
    """Inverse of the logit."""
    return np.asarray(1 / (1 + np.exp(-t)), float)


def softplus_remainder(t: Floats, eta: float) -> Floats:
    """Remainder of order two of -log(1 + exp(eta + t))."""
    p = float(sigmoid(np.array(eta)))
    return np.asarray(
        -np.logaddexp(0, eta + t) + np.logaddexp(0, eta) + p * t + 0.5 * p * (1 - p) * t**2, float
    )


def regression(n: int, dim: int, seed: int = 1) -> tuple[Floats, Floats, Floats]:
    """Whitened rows v of a logistic regression, its predictors, and constants c of the bounds."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, dim))
    eta = x @ rng.normal(0, 0.5, dim)
    weight = sigmoid(eta) * (1 - sigmoid(eta))
    v = np.linalg.solve(np.linalg.cholesky((x.T * weight) @ x), x.T).T
    # The largest third derivative of the logistic term anywhere is 1 / (6 sqrt 3).
    return v, eta, np.linalg.norm(v, axis=1) ** 3 / (6 * np.sqrt(3))


def rows_drawn() -> Figure:
    """The constants of 60 rows, those that are drawn in a move, and those that are kept."""
    v, eta, c = regression(60, 3)
    rng = np.random.default_rng(4)
    w, w_new = rng.normal(size=(2, 3))
    m = (np.linalg.norm(w) ** 3 + np.linalg.norm(w_new) ** 3) / 6
    change = np.array(
        [
            float(softplus_remainder(r @ w_new, e) - softplus_remainder(r @ w, e))
            for r, e in zip(v, eta, strict=True)
        ]
    )
    drawn = rng.poisson(c * m)
    kept = rng.binomial(drawn, (1 - change / (c * m)) / 2)
    figure, axes = plt.subplots(figsize=(8, 3), layout="constrained")
    row = np.arange(len(c))
    axes.bar(
        row,
        c * m,
        color="0.85",
        width=0.9,
        label="bound $c_i M$: the mean number of times that row i is drawn",
    )
    axes.bar(row, np.abs(change), color="C0", width=0.9, label=r"$|\Delta_i|$: what the move changes")
    top = 1.12 * (c * m).max()
    for once, colour, label in ((drawn > 0, "0.5", "drawn"), (kept > 0, "C3", "drawn and kept")):
        axes.plot(row[once], np.full(once.sum(), top), "v", color=colour, ms=7, label=label)
    axes.set(xlabel="row", ylim=(0, 1.75 * top))
    axes.legend(frameon=False, loc="upper right", ncols=2)
    return figure


def bound() -> Figure:
    """A remainder, and the cubic bounds that contain it."""
    t = np.linspace(-3, 3, 301)
    figure, axes = plt.subplots(1, 2, figsize=(8, 2.8), layout="constrained")
    for ax, eta in zip(axes, (0.0, 1.5), strict=True):
        r = softplus_remainder(t, eta)
        limit = np.abs(t) ** 3 / 6 / (6 * np.sqrt(3))
        ax.fill_between(t, -limit, limit, color="0.88", label=r"$\pm K |t|^3 / 6$")
        ax.plot(t, r, color="C3", label="remainder $r_i(t)$")
        ax.set(
            xlabel="change t of the linear predictor", title=f"logistic term, predictor {eta} at the centre"
        )
    axes[0].legend(frameon=False, loc="upper left")
    return figure


def aligned() -> Figure:
    """What a row sees of a move, as a share of what the bound allows for."""
    rng = np.random.default_rng(1)
    figure, axes = plt.subplots(figsize=(6, 2.8), layout="constrained")
    for dim in (2, 10, 100):
        w, u = rng.normal(size=(2, 20_000, dim))
        u /= np.linalg.norm(u, axis=1, keepdims=True)
        share = np.abs((u * w).sum(axis=1)) / np.linalg.norm(w, axis=1)
        axes.hist(share, bins=60, range=(0, 1), density=True, histtype="step", lw=1.5, label=f"D = {dim}")
    axes.set(xlabel=r"$|u_i \cdot w| \,/\, |w|$: the bound takes it for one", yticks=[])
    axes.legend(frameon=False)
    return figure


def remainder() -> Figure:
    """A sum of terms, its polynomial, and what is left, over the posterior."""
    rng = np.random.default_rng(3)
    figure, axes = plt.subplots(1, 2, figsize=(8, 2.8), layout="constrained")
    z = np.linspace(-3, 3, 121)
    for n, colour in ((100, "C0"), (10_000, "C3")):
        x = rng.normal(size=n)
        eta = 0.5 * x
        weight = sigmoid(eta) * (1 - sigmoid(eta))
        sd = 1 / np.sqrt((weight * x**2).sum())
        left = np.array([sum(softplus_remainder(x[eta == e] * sd * k, e).sum() for e in eta) for k in z])
        axes[1].plot(z, left, color=colour, label=f"N = {n:,}")
        if n == 100:
            axes[0].plot(z, -0.5 * z**2 + left, color="k", label="log likelihood")
            axes[0].plot(z, -0.5 * z**2, "--", color=colour, label="its polynomial, summed once")
    axes[0].set(xlabel="coefficient, in posterior sds from the mode", title="N = 100")
    axes[1].set(xlabel="coefficient, in posterior sds from the mode", title="the sum of all remainders")
    for ax in axes:
        ax.legend(frameon=False)
    return figure


def heavy_rows() -> Figure:
    """The constants of the bounds of all rows, in order, and the rows that are always read."""
    rng = np.random.default_rng(5)
    n, always = 10_000, 100
    x = rng.standard_t(3, (n, 4))
    eta = x @ np.full(4, 0.3)
    weight = sigmoid(eta) * (1 - sigmoid(eta))
    v = np.linalg.solve(np.linalg.cholesky((x.T * weight) @ x), x.T).T
    c = np.sort(np.linalg.norm(v, axis=1) ** 3)[::-1]
    share = np.cumsum(c) / c.sum()
    figure, axes = plt.subplots(figsize=(6, 2.8), layout="constrained")
    axes.semilogx(np.arange(1, n + 1), share, color="C0")
    axes.axvline(always, color="C3", ls="--")
    text = f"{always} rows that are always read:\n{share[always - 1]:.0%} of the sum"
    axes.annotate(text, (always, 0.2), (6, 0), textcoords="offset points", color="C3")
    axes.set(xlabel="rows, those with the largest bounds first", ylabel="share of all bounds", ylim=(0, 1))
    return figure


def surrogate() -> Figure:
    """Inner moves on a cheap density, and one decision on the posterior at their end."""
    rng = np.random.default_rng(11)
    figure, axes = plt.subplots(figsize=(5, 3.4), layout="constrained")
    a, b = np.meshgrid(np.linspace(-3, 3, 101), np.linspace(-3, 3, 101))
    cheap = -0.5 * (a**2 + b**2 - 1.2 * a * b) / 0.64
    axes.contour(a, b, cheap, levels=[-4, -2, -0.5], colors="0.6", linestyles="--", linewidths=1)
    axes.contour(
        a,
        b,
        cheap + 0.12 * a**3 - 0.05 * b**3,
        levels=[-4, -2, -0.5],
        colors="k",
        linestyles="-",
        linewidths=1,
    )
    q = np.array([-1.5, -1.2])
    path = [q]
    for _ in range(8):
        new = q + rng.normal(0, 0.7, 2)
        gain = [-0.5 * (p @ p - 1.2 * p[0] * p[1]) / 0.64 for p in (q, new)]
        q = new if np.log(rng.random()) < gain[1] - gain[0] else q
        path.append(q)
    line = np.array(path)
    axes.plot(*line.T, "-o", color="C0", ms=3, lw=1, label="inner moves on exp(P + Q), without data")
    axes.plot(*line[[0, -1]].T, "o", color="C3", ms=7, label="one decision, on remainders")
    axes.set(xlabel="$q_1$", ylabel="$q_2$", title="dashed: P + Q; solid: the posterior", ylim=(-3, 4.4))
    axes.legend(frameon=False, loc="upper left", fontsize=8)
    return figure
