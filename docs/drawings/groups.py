"""Coordinates of a field, its trees and turns, the clock that passes its cells, and a gamma process."""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure


def coordinates() -> Figure:
    """Draws of a funnel with some data, in the model's coordinates and in those of a field."""
    rng = np.random.default_rng(2)
    figure, axes = plt.subplots(1, 3, figsize=(8.5, 2.9), layout="constrained")
    # One group with a normal likelihood of precision b, level a / b: exact draws of (tau, u) by weights.
    tau = np.exp(rng.uniform(np.log(0.02), np.log(3), 40_000))
    b, level = 4.0, 0.6
    weight = (
        np.exp(-0.5 * level**2 / (1 / b + tau**2)) / np.sqrt(1 / b + tau**2) * tau * np.exp(-0.5 * tau**2)
    )
    tau = rng.choice(tau, 3000, p=weight / weight.sum())
    sd = 1 / np.sqrt(b + 1 / tau**2)
    epsilon = rng.normal(size=tau.size)
    u = sd**2 * b * level + sd * epsilon
    for ax, value, label in zip(
        axes,
        (u, u / tau, epsilon),
        ("effect u", r"non-centred $u / \tau$", r"of a field: $\varepsilon$"),
        strict=True,
    ):
        ax.plot(value, np.log(tau), ".", ms=2, alpha=0.4, color="C0")
        ax.set(xlabel=label)
    axes[0].set(ylabel=r"$\log \tau$")
    return figure


def crossed() -> Figure:
    """Paths of the intercept and the mean effect of a factor: variables one by one, and in two turns."""
    rng = np.random.default_rng(11)
    sd_u, sd_v, sd = (
        0.7,
        1.0,
        0.15,
    )  # of the mean effects of both factors, and of what the rows say of the sum
    n, state = 60, np.zeros(3)
    paths = np.empty((2, n, 3))
    for k in range(n):  # intercept, mean of u and mean of v; rows say that they add up to about zero
        state[0] = -state[1] - state[2] + sd * rng.standard_normal()
        for j, own in ((1, sd_u), (2, sd_v)):
            share = 1.0 / (1.0 + (sd / own) ** 2)
            state[j] = -share * (state[0] + state[3 - j]) + sd * np.sqrt(share) * rng.standard_normal()
        paths[0, k] = state
    state = np.zeros(3)
    for k in range(n):  # the intercept with u, then with v
        for j, own in ((1, sd_u), (2, sd_v)):
            state[j] = own * rng.standard_normal()
            state[0] = -state[1] - state[2] + sd * rng.standard_normal()
        paths[1, k] = state
    figure, axes = plt.subplots(1, 2, figsize=(8.5, 2.9), layout="constrained", sharex=True, sharey=True)
    for ax, path, title in zip(axes, paths, ("one by one", "in two turns"), strict=True):
        ax.plot(path[:, 0], path[:, 2], "-o", ms=2.5, lw=0.5, color="C0")
        ax.set_title(title, fontsize=9)
        ax.set(xlabel="intercept")
    axes[0].set(ylabel="mean of all $v_h$")
    return figure


def clock() -> Figure:
    """Total rates of cells, and the events of one exponential clock."""
    rng = np.random.default_rng(9)
    rates = rng.gamma(0.5, 0.3, size=40)
    ends = np.cumsum(rates)
    events = []
    at = rng.exponential()
    while at < ends[-1]:
        events.append(at)
        at += rng.exponential()
    figure, axes = plt.subplots(figsize=(8, 1.9), layout="constrained")
    hit = set(np.searchsorted(ends, events))
    for k, (left, width) in enumerate(zip(ends - rates, rates, strict=True)):
        axes.barh(
            0, width, left=left, height=0.6, color="C3" if k in hit else "0.85", edgecolor="white", lw=0.8
        )
    axes.plot(events, np.full(len(events), 0.45), "v", color="k", ms=7)
    axes.set(yticks=[], ylim=(-0.4, 0.8), xlabel="cells side by side, as wide as their total rates")
    axes.set_title(
        f"{len(events)} events of the clock; {len(hit)} of {len(rates)} cells look at a row", fontsize=9
    )
    return figure


def gamma_process() -> Figure:
    """Exact transitions of a Cox-Ingersoll-Ross process, and Euler steps of the same size."""
    rng = np.random.default_rng(8)
    shape, h, n = 0.5, 0.5, 200_000
    exact, euler = np.full(n, shape), np.full(n, shape)
    for _ in range(60):
        keep = np.exp(-h)
        counts = rng.poisson(exact * keep / (1 - keep))
        exact = rng.gamma(shape + counts) * (1 - keep)
        euler = euler + h * (shape - euler) + np.sqrt(2 * h * np.maximum(euler, 0)) * rng.normal(size=n)
    figure, axes = plt.subplots(figsize=(6, 2.8), layout="constrained")
    x = np.linspace(0.02, 3, 300)
    axes.plot(x, x ** (shape - 1) * np.exp(-x) / np.sqrt(np.pi), color="k", label="gamma density, shape 0.5")
    for values, label in ((exact, "exact transitions"), (euler, "Euler steps")):
        axes.hist(values, bins=90, range=(-1.5, 3), density=True, histtype="step", lw=1.4, label=label)
    axes.set(xlabel=f"after 60 transitions with h = {h}", yticks=[], ylim=(0, 2.5))
    axes.legend(frameon=False)
    return figure


def trees() -> Figure:
    """Where Cholesky factors of three orders are not zero."""
    figure, axes = plt.subplots(1, 3, figsize=(8.5, 3.0), layout="constrained")
    n_schools, n_classes, n_dense = 6, 4, 4
    nested = _precision_of_classes(n_schools, n_classes, n_dense)
    n_groups = n_schools * n_classes
    good = [k for s in range(n_schools) for k in (*range(s * n_classes, (s + 1) * n_classes), n_groups + s)]
    bad = [*range(n_groups, n_groups + n_schools), *range(n_groups)]
    last = list(range(n_groups + n_schools, len(nested)))
    n = 34
    walk = 2.1 * np.eye(n) - np.eye(n, k=1) - np.eye(n, k=-1)
    orders = ((nested, [*good, *last]), (nested, [*bad, *last]), (walk, _halved(list(range(n)))))
    titles = ("classes, then their school", "schools first", "a series, cut in two")
    for ax, (matrix, order), title in zip(axes, orders, titles, strict=True):
        factor = np.linalg.cholesky(matrix[np.ix_(order, order)])
        ax.spy(np.abs(factor) > 1e-12, markersize=2.6, color="C0")
        ax.set_title(f"{title}: {int((np.abs(factor) > 1e-12).sum())}", fontsize=9)
        ax.set(xticks=[], yticks=[])
    return figure


def turns() -> Figure:
    """Who meets whom of some players, in the order of turns, and the factor of one tree of all."""
    rng, n = np.random.default_rng(3), 48
    activity = (1.0 + np.arange(n)) ** -0.6
    pairs = rng.choice(n, size=(500, 2), p=activity / activity.sum())
    meets = np.zeros((n, n), bool)
    meets[pairs[:, 0], pairs[:, 1]] = meets[pairs[:, 1], pairs[:, 0]] = True
    np.fill_diagonal(meets, True)
    left, parts = list(np.argsort(meets.sum(axis=1), kind="stable")), []
    while len(left) > 12:
        part: list[int] = []
        for v in left:
            if not meets[v, part].any():
                part.append(v)
        parts.append(part)
        left = [v for v in left if v not in part]
    parts.append(left)
    order = [v for part in parts for v in part]
    precision = np.where(meets, -1.0, 0.0)[np.ix_(order, order)]
    np.fill_diagonal(precision, n)
    figure, axes = plt.subplots(1, 2, figsize=(8.5, 4.0), layout="constrained")
    axes[0].spy(np.tril(precision) != 0.0, markersize=2.2, color="0.75")
    begin = 0
    for k, part in enumerate(parts):
        own = np.zeros((n, n), bool)
        some = slice(begin, begin + len(part))
        own[some, some] = np.tril(precision[some, some]) != 0.0
        axes[0].spy(own, markersize=2.8, color=f"C{k}")
        begin += len(part)
    axes[0].set_title(f"who meets whom, by {len(parts)} turns", fontsize=9)
    factor = np.abs(np.linalg.cholesky(precision)) > 1e-12
    axes[1].spy(factor, markersize=2.6, color="C0")
    axes[1].set_title(f"the factor of one tree: {int(factor.sum())}", fontsize=9)
    for ax in axes:
        ax.set(xticks=[], yticks=[])
    return figure


def _precision_of_classes(n_schools: int, n_classes: int, n_dense: int) -> np.ndarray:
    """A precision of effects of classes and schools, and of coefficients that all rows have."""
    n_groups = n_schools * n_classes
    n = n_groups + n_schools + n_dense
    rows = np.zeros((3 * n_groups, n))
    for i in range(len(rows)):
        g = i % n_groups
        rows[i, [g, n_groups + g // n_classes]] = 1.0
        rows[i, n - n_dense :] = np.cos(np.arange(1, n_dense + 1) * (i + 1.0))
    return rows.T @ rows + np.eye(n)


def _halved(periods: list[int]) -> list[int]:
    """Periods in an order in which the middle one comes after both halves."""
    if len(periods) <= 2:
        return periods
    middle = len(periods) // 2
    return [*_halved(periods[:middle]), *_halved(periods[middle + 1 :]), periods[middle]]
