"""Compare draws of hierarchies with those on file, for issues that change draws: means, sds, errors, costs.

What `tests.golden` compares bit for bit, this compares as distributions. From the root of the repository::

    python -m tests.golden.statistical                # runs all cases and prints what it found
    python -m tests.golden.statistical --compare      # exit code 1 if a case does not agree with the file
    python -m tests.golden.statistical --compare --only plain 'c*'
    python -m tests.golden.statistical --write        # the file anew, statistical.json beside this script

A case has thin groups, of which few rows are read, but whose remainders are not small, so that a
wrong bound or ratio shows. Many short chains are run. Errors are those between chains, which need no estimate
of an autocorrelation. Compared are means and log sds of all variables that groups share, scales on the log
scale, and of effects of five groups, from the smallest to the largest. The test is Student's, with the
degrees of freedom of the side that has fewer chains, which is on the safe side. The smallest p-value is
multiplied by how many there are: a right sampler fails with a probability of at most `LEVEL` in a case.

Acceptances, rows and costs are told beside those on file and not judged. Costs are CPU seconds for a draw,
divided by those of the plain model in the same run; what is compiled and set up is not in them.

What changes a posterior on purpose, such as another model, needs `--write`. No change of a sampler does.
"""

import argparse
import json
import logging
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
from scipy import stats

import pymc_austerity as pa
from tests.golden import hierarchies
from tests.golden.hierarchies import EFFECTS, THETA, Size

FILE = Path(__file__).with_suffix(".json")
# The probability, at most, that a right sampler fails in a case.
LEVEL = 1e-3
CHAINS, DRAWS, TUNE = 16, 1500, 100
POSITIVE = ("tau", "tau_b", "tau_v", "nu", "alpha", "sigma")
THIN, CROSSED = Size(400, 40), Size(2500, 264)


def exact(model: pm.Model) -> Any:
    """Exact decisions from few rows, however many would be cheaper."""
    return pa.TunaMH(model=model, switch_above=np.inf, threshold=50, progressbar=False)


def tested(model: pm.Model) -> Any:
    """Decisions by a test on remainders."""
    options = {"batch_size": 10, "threshold": 50, "progressbar": False}
    return pa.AusterityMH(model=model, control_variate=pa.Taylor(), **options)


class Case(NamedTuple):
    """A model of some size, and the step that samples it."""

    model: Callable[[Size], Any]
    step: Callable[[pm.Model], Any] = exact
    size: Size = THIN


CASES = {
    **{name: Case(model) for name, model in hierarchies.MODELS.items()},
    "crossed": Case(hierarchies.crossed, size=CROSSED),
    "stored": Case(hierarchies.stored),
    "tested": Case(hierarchies.plain, tested),
}


class Moments(NamedTuple):
    """Of one quantity: the mean and the log of the sd, each with its standard error."""

    mean: float
    mean_error: float
    log_sd: float
    log_sd_error: float


class Result(NamedTuple):
    """What a case gave: moments by name, and what it took."""

    chains: int
    draws: int
    moments: dict[str, Moments]
    acceptance: float
    effects_acceptance: float
    rows: float
    cost: float


def moments_of(draws: np.ndarray) -> Moments:
    """Of the draws (chains, draws) of one quantity; errors are those between chains."""
    n = len(draws)
    means, mean = draws.mean(axis=1), draws.mean()
    squares = ((draws - mean) ** 2).mean(axis=1)
    variance = squares.mean()
    return Moments(
        float(mean),
        float(means.std(ddof=1) / np.sqrt(n)),
        float(0.5 * np.log(variance)),
        float(0.5 * squares.std(ddof=1) / np.sqrt(n) / variance),
    )


def quantities(posterior: Mapping[str, Any], size: Size) -> dict[str, np.ndarray]:
    """Draws (chains, draws) by name: elements of theta, and of the effects of five groups."""
    found = {}
    for name in (*THETA, *EFFECTS):
        if name not in posterior:
            continue
        draws = np.asarray(posterior[name])
        draws = np.log(draws) if name in POSITIVE else draws
        if name in EFFECTS:
            five = np.linspace(0, draws.shape[2] - 1, 5).astype(int)
            places = [(g, *rest) for g in five for rest in np.ndindex(draws.shape[3:])]
        else:
            places = list(np.ndindex(draws.shape[2:]))
        for place in places:
            label = f"log {name}" if name in POSITIVE else name
            index = ", ".join(map(str, place))
            found[f"{label}[{index}]" if place else label] = draws[:, :, *place]
    return found


def run(name: str, chains: int = CHAINS, draws: int = DRAWS, seed: int = 1) -> Result:
    """Run the chains of a case; its cost is in CPU seconds for a draw."""
    case = CASES[name]
    quietly = {"progressbar": False, "quiet": True, "compute_convergence_checks": False, "cores": 1}
    with case.model(case.size) as model:
        step = case.step(model)
        pm.sample(2, tune=2, chains=1, step=step, random_seed=seed, **quietly)  # what is compiled first
        start = time.process_time()
        idata = pm.sample(draws, tune=TUNE, chains=chains, step=step, random_seed=seed, **quietly)
        seconds = time.process_time() - start
    told = idata["sample_stats"]
    if "effects_acceptance" not in told:
        raise ValueError(f"No field was found for the case {name!r}.")
    found = quantities(idata["posterior"], case.size)
    return Result(
        chains,
        draws,
        {key: moments_of(values) for key, values in found.items()},
        *(float(told[key].mean()) for key in ("acceptance_rate", "effects_acceptance", "n_used")),
        cost=seconds / chains / (draws + TUNE),
    )


class Agreement(NamedTuple):
    """Of two results: the worst quantity, its distance in standard errors, and a p-value of the case."""

    worst: str
    z: float
    p: float

    def __bool__(self) -> bool:
        return self.p > LEVEL


def agreement(one: Result, two: Result) -> Agreement:
    """Do two results tell of one posterior?"""
    if one.moments.keys() != two.moments.keys():
        differ = ", ".join(sorted(one.moments.keys() ^ two.moments.keys()))
        return Agreement(f"not in both: {differ}", np.inf, 0.0)
    found, chains = [], min(one.chains, two.chains)
    for name, ours in one.moments.items():
        theirs = two.moments[name]
        found.append((f"mean of {name}", *compared(ours[:2], theirs[:2], chains)))
        found.append((f"sd of {name}", *compared(ours[2:], theirs[2:], chains)))
    worst, z, p = min(found, key=lambda test: test[2])
    return Agreement(worst, z, min(1.0, p * len(found)))


def compared(one: tuple[float, ...], two: tuple[float, ...], chains: int) -> tuple[float, float]:
    """The difference of two estimates with errors from so many chains, in standard errors; its p-value."""
    (a, error_a), (b, error_b) = one, two
    error = np.hypot(error_a, error_b)
    if not error > 0.0:  # or it is not a number
        return (0.0, 1.0) if a == b else (np.inf, 0.0)
    z = (a - b) / error
    return float(z), float(2.0 * stats.t.sf(abs(z), chains - 1))


def as_text(results: Mapping[str, Result]) -> str:
    """As JSON, a line for each quantity, with six digits."""
    cases = []
    for name, result in results.items():
        head = {key: value for key, value in result._asdict().items() if key != "moments"}
        rows = [
            f'    "{key}": {json.dumps([float(f"{x:.6g}") for x in m])}' for key, m in result.moments.items()
        ]
        short = {key: x if isinstance(x, int) else float(f"{x:.4g}") for key, x in head.items()}
        moments = ",\n".join(rows)
        cases.append(f'"{name}": {{\n  {json.dumps(short)[1:-1]},\n  "moments": {{\n{moments}\n  }}\n}}')
    return "{\n" + ",\n".join(cases) + "\n}\n"


def from_text(text: str) -> dict[str, Result]:
    """The results that `as_text` has written."""
    found = {}
    for name, entry in json.loads(text).items():
        moments = {key: Moments(*values) for key, values in entry.pop("moments").items()}
        found[name] = Result(moments=moments, **entry)
    return found


def told(name: str, result: Result, known: Result | None) -> str:
    """A line on a case: what was found, and in brackets what is on file."""
    parts = []
    for what in ("acceptance", "effects_acceptance", "rows", "cost"):
        beside = f" ({getattr(known, what):.3g})" if known else ""
        parts.append(f"{what.replace('_', ' ')} {getattr(result, what):.3g}{beside}")
    return f"{name:<14} {', '.join(parts)}"


def main(given: list[str] | None = None) -> int:
    """Run cases and print, write or compare what they gave; the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.golden.statistical",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", nargs="+", default=["*"], metavar="CASE", help="names, or patterns")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--compare", action="store_true", help="with the results on file")
    what.add_argument("--write", action="store_true", help="the results to the file")
    options = parser.parse_args(given)
    names = [name for name in CASES if any(fnmatch(name, wanted) for wanted in options.only)]
    if not names:
        parser.error(f"there is no such case; there are {', '.join(CASES)}")
    known = from_text(FILE.read_text()) if FILE.exists() else {}
    if options.compare and (new := set(names) - set(known)):
        parser.error(f"{FILE.name} has no {', '.join(sorted(new))}: use --write")
    found: dict[str, Result] = {}
    right, unit = True, 1.0
    # The plain model comes first: it is the unit of costs.
    for name in ["plain", *(name for name in names if name != "plain")]:
        # A seed other than that of the file, so that equal draws are not taken for agreement.
        result = run(name, seed=2 if options.compare else 1)
        unit = result.cost if name == "plain" else unit
        found[name] = result._replace(cost=result.cost / unit)
        print(told(name, found[name], known.get(name)), flush=True)
        if options.compare and name in names:
            verdict = agreement(found[name], known[name])
            right &= bool(verdict)
            label = "" if verdict else "DIFFERS"
            print(f"{label:<14} {verdict.worst}: z = {verdict.z:.2f}, p = {verdict.p:.2g}", flush=True)
    if options.write:
        every = {**known, **found}
        FILE.write_text(as_text({name: every[name] for name in CASES if name in every}))
    return int(not right)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    sys.exit(main())
