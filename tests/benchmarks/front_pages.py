"""From the record of `tests.benchmarks.front` to a figure and to the tables of README and page.

Tables stand between two comments, `<!-- table: NAME -->` and `<!-- end -->`, and are written anew.
"""

import re
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.ticker import FuncFormatter, NullLocator

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", ROOT / "docs" / "explanation" / "benchmarks.md")
FIGURE = ROOT / "docs" / "_static" / "front.png"
STYLES = {
    "tuna": ("TunaMH()", "#c1440e", 2.5),
    "exact-laplace": ("exact, all rows", "#444444", 1.3),
    "nutpie": ("nutpie", "#2a6f97", 1.3),
}
GOAL, FEW = 1000, 100  # effective draws: fewer than few are named
NAMES = {
    "correlated": "correlated covariates",
    "few-positives": "1 % positives",
    "rare-feature": "a feature that 20 rows have",
    "heavy-tails": "heavy-tailed covariates",
    "poisson": "Poisson",
    "standard": "50 coefficients",
}

LONG = {
    "regression": "a Poisson regression",
    "hierarchy": "200 groups, logistic",
    "ordered": "ordered answers",
    "choices": "choices, conditional logit",
    "censored": "censored Weibull lifetimes",
    "slopes": "slopes of 200 groups, normal",
    "areas": "200 areas, BYM2",
    "mixture": "a mixture of two",
}


def figures(value):
    """Two significant figures, and commas."""
    digits = f"{float(f'{value:.1e}'):,.10f}".rstrip("0").rstrip(".")
    return digits


def size_of(run):
    """Effective draws of a run of either kind."""
    return run.get("min_ess", run.get("effective"))


def seconds(run):
    """Seconds to 1,000 effective draws; a star where they are extrapolated, a > where they are a bound."""
    bound = run.get("every_draw_counted_as_effective")
    star = "\\*" if size_of(run) < GOAL else ""
    star += f" (from {size_of(run):.0f})" if size_of(run) < FEW else ""
    return ("> " if bound else "") + figures(run.get("to_1000", run.get("seconds"))) + star


def runs(record, part):
    """Runs by problem, N, D and method."""
    return {(r["problem"], r["n"], r["dim"], r["method"]): r for r in record[part]["found"]}


def markdown(head, rows):
    first, *others = head
    lines = [[first, *others], ["---", *["---:"] * len(others)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def groups_row(found):
    """Rows and seconds of the hierarchical model."""
    read = found["TunaMH"]["shared_n_used"] + found["TunaMH"]["effects_n_used"]
    cells = [seconds(found[name]) for name in ("TunaMH", "all rows", "nutpie")]
    name = f"hierarchical logistic, {found['groups']:,} groups, N = {found['rows']:,}"
    return [name, figures(read), *cells]


def row(found, name, problem, n, dim=10):
    """Rows and seconds of a regression."""
    three = [found[problem, n, dim, method] for method in STYLES]
    return [name, figures(three[0]["terms_per_step"]), *map(seconds, three)]


HEAD = ("seconds to 1,000 effective draws", "rows a draw", "`TunaMH()`", "exact, all rows", "nutpie")


def front(record):
    sizes, problems = runs(record, "sizes"), runs(record, "problems")
    return markdown(
        HEAD,
        [
            row(sizes, "logistic, N = 10,000", "standard", 10_000),
            row(sizes, "logistic, N = 1,000,000", "standard", 1_000_000),
            row(problems, "Poisson, N = 100,000", "poisson", 100_000),
            groups_row(record["groups"]["found"]),
        ],
    )


def by_size(record):
    rows = []
    for r in record["sizes"]["found"]:
        error = f"{r['bias']:.3f} ({r['bias_error']:.3f})"
        ratio = f"{r['sd_ratio']:.3f} ({r['sd_ratio_error']:.3f})"
        name = r["label"] if r["exact"] else f"{r['label']}, not exact"
        effort = [
            figures(r[key]) if r[key] else "0" for key in ("terms_per_step", "ess_per_second", "set_up")
        ]
        rows.append([f"{r['n']:,}", name, *effort, seconds(r), f"{r['min_ess']:,.0f}", error, ratio])
    head = ["N", "sampler", "rows a draw", "ESS a second", "set-up", "to 1,000", "ESS", "shift", "sd ratio"]
    return markdown(head, rows)


def by_problem(record):
    found = runs(record, "problems")
    tables = [(name, problem, 50 if problem == "standard" else 10) for problem, name in NAMES.items()]
    return markdown(HEAD, [row(found, name, problem, 100_000, dim) for name, problem, dim in tables])


def groups(record):
    found = record["groups"]["found"]
    rows = []
    for name in ("TunaMH", "all rows"):
        r = found[name]
        cells = [r["shared_n_used"], r["effects_n_used"], r["set_up"], r["ms_a_draw"]]
        rows.append([name, *map(figures, cells), f"{r['effective']:,.0f} of {r['draws']:,}", seconds(r)])
    r = found["nutpie"]
    gradients = f"{figures(r['leapfrogs_a_draw'])} gradients"
    effort = f"{r['effective']:,.0f} of {r['draws']:,}"
    rows.append(["nutpie", gradients, "", figures(r["compilation"] + r["warm_up"]), "", effort, seconds(r)])
    head = ["", "rows, shared move", "rows, effects", "set-up", "ms a draw", "effective draws", "to 1,000"]
    return markdown(head, rows)


def structure(found):
    """What a hierarchy is, in words."""
    size, rows = f"{found['groups']:,}", f"N = {found['rows']:,}"
    kind = {
        "slopes": f"{size} groups with random slopes",
        "nested": f"{size} groups in {found['second']:,}",
        "crossed": f"{size} by {found['second']:,} crossed",
    }[found["effects"]]
    return f"{kind}, {found['likelihood']}, {rows}"


def hierarchies(record):
    rows = []
    for found in record["hierarchies"]["found"]:
        ours, other = found["TunaMH"], found["nutpie"]
        read = sum(ours.get(name, 0.0) for name in ("shared_n_used", "effects_n_used"))
        cells = [figures(read) if read else "0", figures(ours["set_up"]), seconds(ours)]
        rows.append([structure(found), *cells, seconds(other) if other["seconds"] else "no draw"])
    return markdown(
        ["seconds to 1,000 effective draws", "rows a draw", "set-up", "`TunaMH()`", "nutpie"], rows
    )


def script(record):
    rows = []
    for state, name in (("cold", "empty caches"), ("warm", "compiled code kept")):
        r = record["readme"]["found"][state]
        rows.append([name, figures(r["ready"]), figures(r["all"]), f"{r['ess']:,.0f}", figures(r["rows"])])
    head = [
        "the script of the README",
        "seconds to the step",
        "seconds in all",
        "effective draws",
        "rows a draw",
    ]
    return markdown(head, rows)


def kinds(record):
    rows = [
        [LONG[kind], figures(found["first"]), figures(found["again"])]
        for kind, found in record["cold"]["found"].items()
    ]
    return markdown(["20,000 rows", "first model of the kind", "another process"], rows)


def reasons(record):
    return f"```text\n{record['readme']['found']['printed']}\n```"


TABLES = {
    "front": front,
    "reasons": reasons,
    "sizes": by_size,
    "problems": by_problem,
    "groups": groups,
    "hierarchies": hierarchies,
    "kinds": kinds,
    "script": script,
}


def filled(text, record, tables=TABLES):
    """`text` with its tables written anew."""

    def table(found):
        return f"{found[1]}\n{tables[found[2]](record)}\n{found[3]}"

    return re.sub(r"(<!-- table: (\w+) -->)\n.*?(<!-- end -->)", table, text, flags=re.DOTALL)


def draw(record, path=FIGURE):
    """Seconds to 1,000 effective draws against N."""
    found = runs(record, "sizes")
    figure, axes = plt.subplots(figsize=(7, 3.6), layout="constrained")
    for method, (name, colour, width) in STYLES.items():
        line = sorted((key[1], r) for key, r in found.items() if key[3] == method)
        x, y = [n for n, _ in line], [r["to_1000"] for _, r in line]
        axes.loglog(x, y, color=colour, lw=width)
        for (n, r), value in zip(line, y, strict=True):
            axes.plot(n, value, "o", ms=6, mec=colour, mfc="white" if size_of(r) < GOAL else colour)
        label = f"{name}: {figures(y[-1])} s"
        axes.annotate(label, (x[-1], y[-1]), (10, 0), textcoords="offset points", color=colour, va="center")
    axes.spines[["top", "right"]].set_visible(False)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticks(sorted({key[1] for key in found}))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.15g}"))
    axes.set(xlabel="rows of data", ylabel="CPU seconds, set-up included")
    axes.set_title("Seconds to 1,000 effective draws (hollow: extrapolated)", loc="left", fontsize=11)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def write(record):
    """The figure, and the tables of both pages."""
    draw(record)
    for page in PAGES:
        page.write_text(filled(page.read_text(), record))
