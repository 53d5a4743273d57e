"""Times beside the last release, paired, and kept: `make bench-release`, or with BASE=COMMIT another commit.

The timings of `tests.golden.bench` run on both versions of the package in turns, A B B A, in worktrees that
have the benchmarks of the present tree. Prints ratios, adds them to docs/_static/benchmarks_over_time.json,
a line for each timing, and writes the page docs/developer/benchmarks_over_time.md.
"""

import argparse
import datetime
import json
import re
import signal
import sys
from contextlib import ExitStack

import numpy as np

from tests.benchmarks import front, front_pages
from tests.benchmarks.everyone.worker import machine
from tests.golden import bench
from tests.golden.worktrees import PACKAGE, GitError, checked_out, git, resolve

RECORD = front.ROOT / "docs" / "_static" / "benchmarks_over_time.json"
PAGE = front.ROOT / "docs" / "developer" / "benchmarks_over_time.md"
RUN = ("date", "version", "commit", "base", "base_commit")


def last_release():
    """The last tag; without one there is nothing to choose."""
    try:
        return git(front.ROOT, "describe", "--tags", "--abbrev=0")
    except GitError:
        raise SystemExit("There is no tag yet: give a commit, `make bench-release BASE=COMMIT`.") from None


def commit_of(name):
    """Short hash; a plus if the package has changes that are not committed."""
    commit = "HEAD" if name == "WORKTREE" else name
    changed = "+" if resolve(name).content != resolve(commit).content else ""
    return git(front.ROOT, "rev-parse", "--short=8", f"{commit}^{{commit}}") + changed


def lines_of(found, base, version):
    """What is kept: a line for each timing."""
    about = {
        "date": datetime.date.today().isoformat(), "version": version, "commit": commit_of("WORKTREE"),
        "base": base, "base_commit": commit_of(base), "machine": machine()["processor"],
    }  # fmt: skip
    kept = []
    for name, (before, after) in found.items():
        ratio, low, high = (round(float(x), 4) for x in bench.interval(after / before))
        times = {"microseconds_before": float(f"{1e6 * np.median(before):.4g}"), "pairs": len(before)}
        kept.append({**about, "timing": name, **times, "ratio": ratio, "low": low, "high": high})
    return kept


def table(record):
    """A row for each run, newest first."""
    timings = list(dict.fromkeys(one["timing"] for one in record))
    runs = dict.fromkeys(tuple(one[key] for key in RUN) for one in record)
    rows = []
    for run in reversed(runs):
        cells = {one["timing"]: one for one in record if tuple(one[key] for key in RUN) == run}
        beside = run[4] if run[3].startswith(run[4][:7]) else f"{run[3]} ({run[4]})"
        told = [
            "{ratio:.2f} ({low:.2f}, {high:.2f})".format(**cells[t]) if t in cells else "" for t in timings
        ]
        rows.append([f"{run[1]} ({run[2]}), {run[0]}", beside, *told])
    return front_pages.markdown(["version", "beside", *timings], rows)


def main(given=None):
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.over_time", description=__doc__)
    parser.add_argument("--base", help="a tag or commit; default: the last tag")
    parser.add_argument("--pairs", type=int, default=9)
    options = parser.parse_args(given)
    if options.pairs < 6:
        parser.error(f"--pairs must be at least 6, got {options.pairs}: fewer have no 95 % interval")
    base = options.base or last_release()
    with ExitStack() as stack:
        both = [stack.enter_context(checked_out(resolve(name))) for name in (base, "WORKTREE")]
        found = bench.timed(*both, options.pairs)
        text = (both[1].path / PACKAGE / "_version.py").read_text()
    print(bench.told(*both, found))
    version = re.search(r'__version__ = "(.*)"', text).group(1)
    record = json.loads(RECORD.read_text()) if RECORD.exists() else []
    record += lines_of(found, base, version)
    RECORD.write_text("[\n" + ",\n".join(json.dumps(one) for one in record) + "\n]\n")
    PAGE.write_text(front_pages.filled(PAGE.read_text(), record, {"over_time": table}))


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # worktrees are removed then, too
    main()
