"""CPU seconds to 1000 effective draws against N."""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import FuncFormatter, NullLocator

OURS, OTHERS, PEERS = "#c1440e", "#444444", "#2a6f97"
COLOURS = {
    **dict.fromkeys(["tuna", "tuna-mix0", "austerity", "barker"], OURS),
    **dict.fromkeys(["exact-walk", "exact-laplace", "nuts", "nutpie"], OTHERS),
    **dict.fromkeys(["hmcecs", "sgld"], PEERS),
}
LEFT_OUT = {"tuna-mix0", "laplace"}
GAP = 0.05  # between labels, as a share of the height


def draw(records, path, problem="standard", dim=10):
    """One line for each method; nothing, with a note, if there are no such records."""
    lines = {}
    for r in records:
        if (r["problem"], r["dim"]) == (problem, dim) and r["method"] not in LEFT_OUT:
            lines.setdefault(r["method"], []).append(r)
    if not lines:
        print(f"No figure: no results for {problem}, D = {dim}.")
        return
    figure, axes = plt.subplots(figsize=(8, 5), layout="constrained")
    ends = []
    for method, found in lines.items():
        found.sort(key=lambda r: r["n"])
        x, y = [r["n"] for r in found], [r["to_1000"] for r in found]
        style = {"color": COLOURS[method], "lw": 2.5 if method == "tuna" else 1.3}
        axes.loglog(x, y, "-" if found[0]["exact"] else "--", **style)
        hollow = [r["extrapolated"] for r in found]
        for a, b, h in zip(x, y, hollow, strict=True):
            axes.plot(a, b, "o", ms=5, mec=style["color"], mfc="white" if h else style["color"])
        ends.append((x[-1], y[-1], found[0]["label"], style["color"]))
    label(axes, ends)
    axes.spines[["top", "right"]].set_visible(False)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticks(sorted({r["n"] for found in lines.values() for r in found}))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.15g}"))
    axes.set_xlabel("rows of data, N")
    axes.set_title(
        f"CPU seconds to 1,000 effective draws, set-up included\nlogistic regression, D = {dim}; "
        "dashed: not exact; hollow: extrapolated",
        loc="left",
        fontsize=10,
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def label(axes, ends):
    """Names at the ends of the lines, moved apart where they would overlap."""
    low, high = np.log(axes.get_ylim())
    ends = sorted(ends, key=lambda end: end[1])
    heights = np.array([(np.log(end[1]) - low) / (high - low) for end in ends])
    for _ in range(1000):
        close = np.flatnonzero(np.diff(heights) < GAP - 1e-6)
        if not len(close):
            break
        for k in close:
            apart = (GAP - (heights[k + 1] - heights[k])) / 2
            heights[k] -= apart
            heights[k + 1] += apart
    for (last, _, name, unwhiten), height in zip(ends, heights, strict=True):
        axes.annotate(
            name,
            (last, np.exp(low + height * (high - low))),
            (10, 0),
            textcoords="offset points",
            color=unwhiten,
            va="center",
            fontsize=9,
            annotation_clip=False,
        )
