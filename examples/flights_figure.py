"""The figure of flights.py: effects with intervals by one sampler or two, and the rows that a draw reads."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

SHOWN = 20  # planes with an interval of their own


def intervals(idata, variable):
    """Mean and 90 % interval of each entry."""
    draws = idata.posterior[variable].stack(sample=("chain", "draw"))
    index = next(d for d in draws.dims if d != "sample")
    values = draws.transpose(index, "sample").values
    low, high = np.quantile(values, [0.05, 0.95], axis=1)
    return pd.DataFrame({"mean": values.mean(1), "5 %": low, "95 %": high}, index=draws[index].values)


def plot_intervals(ax, names, samplers):
    """One line for each name, from above, and one colour for each sampler."""
    for k, (label, table) in enumerate(samplers.items()):
        position = np.arange(len(names)) + 0.3 * (k - 0.5 * (len(samplers) - 1))
        ax.hlines(position, table["5 %"], table["95 %"], color=f"C{k}")
        ax.plot(table["mean"], position, "o", color=f"C{k}", ms=4, label=label)
    ax.axvline(0, color="k", lw=0.8)
    ax.set_yticks(np.arange(len(names)), names, fontsize=8)
    ax.set(ylim=(len(names) - 0.5, -0.5), xlabel="effect on the log odds, 90 % intervals")


def plot_rows(ax, rows, n):
    names = list(rows)
    ax.barh(names, list(rows.values()), color=[f"C{k}" for k in range(len(names))], height=0.4)
    for position, value in enumerate(rows.values()):
        ax.annotate(f"{value:,.0f}", (value, position), (4, 0), textcoords="offset points", va="center")
    ax.axvline(n, color="k", lw=0.8, ls=":")
    ax.set(xscale="log", xlim=(1, 5000 * n), xlabel="rows read for a draw (dotted: all)")
    ax.invert_yaxis()
    ax.set_title("(c) What a draw reads", fontsize=11)


def plot(planes, idata, others, rows, n, path):
    """Effects by both samplers, and the rows that they read."""
    figure, axes = plt.subplots(1, 3, figsize=(15, 5.5), layout="constrained", width_ratios=[1.1, 0.8, 0.8])
    shown, carriers = planes.head(SHOWN), intervals(idata, "carrier")
    samplers = {"plane": {"TunaMH()": shown}, "carrier": {"TunaMH()": carriers}}
    for name, found in others.items():
        for variable, chosen in (("plane", shown["position"]), ("carrier", slice(None))):
            table = pd.DataFrame(found[variable])
            samplers[variable][f"{name} ({found['row']['draws']:,} draws)"] = table.iloc[chosen]
    names = [f"{name} ({r.flights:.0f}, {r.late:.0%})" for name, r in shown.iterrows()]
    plot_intervals(axes[0], names, samplers["plane"])
    axes[0].set_title(f"(a) The {SHOWN} latest of {len(planes):,} planes (flights, late)", fontsize=11)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower left", ncols=2, frameon=False)
    plot_intervals(axes[1], list(carriers.index), samplers["carrier"])
    axes[1].set_title("(b) Carriers", fontsize=11)
    plot_rows(axes[2], rows, n)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=75)
    plt.close(figure)
