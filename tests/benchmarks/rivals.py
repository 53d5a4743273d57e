"""Rivals on one page: measures, writes docs/_static/rivals.json, and prints docs/explanation/rivals.md.

    python -m tests.benchmarks.rivals                               # all, some hours
    python -m tests.benchmarks.rivals --sizes 1e6 --methods nutpie  # a part; what was measured before stays
    python -m tests.benchmarks.rivals --write                       # only the page

Each sampler runs in processes of its own, with one thread: first from empty caches, and then for what counts.
"""

import argparse
import importlib.util
import json
import re
import tempfile

import matplotlib.pyplot as plt
import numpy as np

from tests.benchmarks import front, front_pages, rival_models
from tests.benchmarks.everyone import run
from tests.benchmarks.front_pages import figures, markdown

RECORD = front.ROOT / "docs" / "_static" / "rivals.json"
PAGE = front.ROOT / "docs" / "explanation" / "rivals.md"
FIGURE = RECORD.with_suffix(".png")
METHODS, SIZES = rival_models.METHODS, (100_000, 1_000_000)
REGRESSIONS, HIERARCHIES = list(rival_models.REGRESSIONS), list(rival_models.HIERARCHIES)
# What cannot be stated is explained on the page.
OF_KIND = {
    **dict.fromkeys(REGRESSIONS, ("ours", "nutpie", "laplace", "hmcecs", "sgld")),
    **dict.fromkeys(HIERARCHIES, ("ours", "nutpie", "gpboost", "hmcecs")),
}
ABSENT = "not measured"
INSTALL = 'pip install -e ".[bench]"'


def measured(model, n, method, budget):
    """What a process tells, and how long the set-up takes with empty caches."""
    spec = {"model": model, "n": n, "method": method, "budget": budget}
    with tempfile.TemporaryDirectory() as folder:
        more = {key: text for key, text in front.environment(folder).items() if folder in text}

        def work(cold):
            return run.work(
                front.sys.executable, folder, module="rival_models", more=more, cold=cold, **spec
            )[0]

        try:
            cold = work(True) if method in ("ours", "nutpie", "hmcecs", "sgld") else {}
            found = cold if cold.get("note", "compiled") != "compiled" else work(False)
        except run.FailedError as error:
            limit = f"no result within {2 * budget:g} CPU seconds"
            found, cold = {"note": limit if "exit code -24" in str(error) else str(error)}, {}
    return {"model": model, "n": n, "method": method, **found, "cold": cold.get("set_up")}


def reference(found, model, n):
    """Moments to compare with, and whose: the best that there are for this model."""
    for method in ("reference", "nutpie", "ours"):
        one = found.get((model, n, method), {})
        one = one.get("reference", one) if method == "nutpie" else one
        if one.get("mean"):
            return one, method
    return None, None


def difference(one, true):
    """Largest shift, in posterior standard deviations, and ratio of standard deviations; errors of both."""
    sd, error, ratios = np.array(true["sd"]), np.hypot(one["mean_error"], true["mean_error"]), []
    shift = np.subtract(one["mean"], true["mean"]) / sd
    worst = np.abs(shift).argmax()
    for x, x_error, of, of_error in zip(one["sd"], one["sd_error"], sd, true["sd_error"], strict=True):
        if x is not None:
            ratios.append((abs(np.log(x / of)), f"{x / of:.3f} ({np.hypot(x_error, of_error) / of:.3f})"))
    return f"{shift[worst]:.3f} ({error[worst] / sd[worst]:.3f})", max(ratios, default=(0.0, ""))[1]


def row(found, model, n, method):
    one = found.get((model, n, method), {"note": ABSENT})
    first = [f"{n:,}" if method == OF_KIND[model][0] else "", METHODS[method].label]
    if "note" in one:
        return [*first, "", "", "no figure" if one["note"] != ABSENT else ABSENT, "", ""]
    cold = f" ({figures(one['cold'])})" if one["cold"] else ""
    rate = figures(one["ess"] / one["sampling"]) if one["ess"] and not one.get("bound") else ""
    star = "\\*" if one["ess"] and one["ess"] < 1000 and not one.get("bound") else ""
    total = "> " * bool(one.get("bound")) + figures(rival_models.to_1000(one)) + star
    true, whose = reference(found, model, n)
    apart = difference(one, true) if true and one.get("mean") else ("", "")
    set_up = figures(one["set_up"]) + cold
    return [*first, set_up, rate, total, *(("reference", "") if whose == method else apart)]


def table(record, model):
    found = by_key(record)
    head = ["N", "sampler", "set-up (first)", "ESS a second", "to 1,000", "shift", "sd ratio"]
    return markdown(head, [row(found, model, n, method) for n in SIZES for method in OF_KIND[model]])


def by_key(record):
    return {(one["model"], one["n"], one["method"]): one for one in record}


def missing(record):
    """Reasons why there is no figure, and commands for what was not measured."""
    found, commands = by_key(record), []
    lines = [
        f"- {METHODS[one['method']].label}, {one['model']}, N = {one['n']:,}: {one['note']}."
        for one in record
        if "note" in one
    ]
    for model in OF_KIND:
        for n in SIZES:
            if left := [method for method in OF_KIND[model] if (model, n, method) not in found]:
                given = f"--sizes {n} --models {model} --methods {' '.join(left)}"
                commands.append(f"python -m tests.benchmarks.rivals {given}")
    if commands:
        lines += ["", "Not measured yet:", "", "```bash", *commands, "```"]
    return "\n".join(lines)


def about(record):
    """Versions and machines of what was measured."""
    known = [one for one in record if "versions" in one]
    versions = {f"{k} {v}" for one in known for k, v in one["versions"].items() if k != "sources"}
    machines = {f"{one['machine']['processor']}, {one['machine']['cpus']} CPUs" for one in known}
    return f"{'; '.join(sorted(machines))}. {', '.join(sorted(versions))}."


TABLES = {
    **{f"rivals_{model}": lambda record, model=model: table(record, model) for model in OF_KIND},
    "rivals_missing": missing,
    "rivals_about": about,
}


def draw(record):
    """Seconds to 1,000 effective draws, of each sampler at both sizes."""
    found = by_key(record)
    figure, panels = plt.subplots(2, 2, figsize=(7, 4.5), layout="constrained", sharex=True)
    for axes, model in zip(panels.flat, OF_KIND, strict=True):
        methods = [m for m in OF_KIND[model] if m != "gpboost"]
        for n, fill in zip(SIZES, ("white", "#2a6f97"), strict=True):
            for k, method in enumerate(methods):
                one = found.get((model, n, method), {})
                if "set_up" in one:
                    mark = ">" if one.get("bound") else "o"
                    axes.plot(rival_models.to_1000(one), k, mark, mec="#2a6f97", mfc=fill)
        axes.set_yticks(range(len(methods)), [METHODS[m].label.strip("`") for m in methods], fontsize=9)
        axes.set(xscale="log", title=model, ylim=(len(methods) - 0.5, -0.5))
    label = (
        "CPU seconds to 1,000 effective draws\n(hollow: N = 100,000; filled: 1,000,000; triangle: a bound)"
    )
    figure.supxlabel(label, fontsize=10)
    figure.savefig(FIGURE, dpi=110)
    plt.close(figure)


def main(given=None):
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.rivals", description=__doc__)
    parser.add_argument("--sizes", nargs="+", type=lambda text: int(float(text)), default=SIZES)
    parser.add_argument("--models", nargs="+", choices=OF_KIND, default=list(OF_KIND))
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--budget", type=float, default=150.0, help="CPU seconds of each run, without set-up")
    parser.add_argument("--write", action="store_true", help="measure nothing")
    options = parser.parse_args(given)
    record = json.loads(RECORD.read_text()) if RECORD.exists() else []
    absent = [m for m in options.methods if importlib.util.find_spec(METHODS[m].needs) is None]
    for method in absent:
        print(f"{METHODS[method].label} left out: {METHODS[method].needs} is not installed ({INSTALL}).")
    for model, n in [] if options.write else [(m, n) for n in options.sizes for m in options.models]:
        wanted = [m for m in options.methods if m in OF_KIND[model] and m not in absent]
        if model in REGRESSIONS and (model, n, "reference") not in by_key(record):
            wanted.insert(0, "reference")
        for method in wanted:
            one = measured(model, n, method, options.budget)
            record = list((by_key(record) | {(model, n, method): one}).values())
            lines = ",\n".join(json.dumps(each) for each in sorted(record, key=order))
            RECORD.write_text(f"[\n{lines}\n]\n")
            told = one.get("note") or (figures(rival_models.to_1000(one)) if "set_up" in one else "kept")
            print(f"{model}, N = {n:,}, {method}: {told}", flush=True)
    draw(record)
    PAGE.write_text(front_pages.filled(PAGE.read_text(), record, TABLES))
    print(re.sub(r"<!--.*?-->\n?", "", PAGE.read_text()))


def order(one):
    return list(OF_KIND).index(one["model"]), one["n"], ["reference", *METHODS].index(one["method"])


if __name__ == "__main__":
    main()
