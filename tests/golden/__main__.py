"""Run the cases on two commits and compare them; see the docstring of the package."""

import argparse
import json
import signal
import sys
import tempfile
from contextlib import ExitStack
from fnmatch import fnmatch
from pathlib import Path

import numpy as np

import tests.golden
from tests.golden import bench
from tests.golden.cases import CASES
from tests.golden.compare import differences
from tests.golden.worktrees import Checkout, checked_out, resolve


def arguments(given: list[str] | None = None) -> argparse.Namespace:
    """Options of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.golden",
        description=tests.golden.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("commits", nargs=2, metavar="COMMIT", help="or WORKTREE: the files as they are")
    parser.add_argument("--only", nargs="+", default=["*"], metavar="CASE", help="names, or patterns")
    parser.add_argument(
        "--allow", action="append", default=[], metavar="CASE=REASON", help="a difference that is wanted"
    )
    parser.add_argument("--jobs", type=int, default=1, help="cases that run at the same time")
    parser.add_argument("--bench", action="store_true", help="ratios of times instead")
    parser.add_argument("--pairs", type=int, default=9, help="of --bench")
    options = parser.parse_args(given)
    options.names = [name for name in CASES if any(fnmatch(name, wanted) for wanted in options.only)]
    options.allowed = dict(one.partition("=")[::2] for one in options.allow)
    for wanted in (*options.only, *options.allowed):
        if not any(fnmatch(name, wanted) for name in CASES):
            parser.error(f"no case is called {wanted!r}; there are {', '.join(CASES)}")
    if not all(options.allowed.values()):
        parser.error("--allow needs a reason: --allow CASE=REASON")
    if options.jobs < 1:
        parser.error(f"--jobs must be at least 1, got {options.jobs}")
    if options.pairs < 6:
        parser.error(f"--pairs must be at least 6, got {options.pairs}: fewer have no 95 % interval")
    return options


def run(checkout: Checkout, names: list[str], jobs: int, folder: Path) -> None:
    """Run cases on one version; their results go to `folder`."""
    folder.mkdir()
    print(f"\nRunning {len(names)} cases on {checkout.version.name}")
    with checkout.start("tests.golden.child", str(folder), str(jobs), *names) as told:
        for line in told:
            name, code, seconds = line.split()
            print(f"  {name:<26}{seconds:>7} s{'' if code == '0' else '  FAILED'}", flush=True)


def load(folder: Path, name: str) -> tuple[dict[str, np.ndarray], list[str]] | str:
    """Arrays of a case and texts of its warnings, or why there are none."""
    path = folder / f"{name}.npz"
    if not path.exists():
        log = folder / f"{name}.log"
        lines = log.read_text().strip().splitlines() if log.exists() else []
        return lines[-1] if lines else "the process ended without a word"
    with np.load(path) as arrays:
        return dict(arrays), json.loads((folder / f"{name}.json").read_text())


def judge(name: str, folders: list[Path], commits: list[str], reason: str | None) -> bool:
    """Print what is to be said of a case; is it as it should be?"""
    one, two = (load(folder, name) for folder in folders)
    failed = [f"failed on {c}: {r}" for c, r in zip(commits, (one, two), strict=True) if isinstance(r, str)]
    if isinstance(one, str) or isinstance(two, str):
        found = failed
    else:
        found = differences(one[0], two[0])
        for commit, mine, other in ((commits[0], one[1], two[1]), (commits[1], two[1], one[1])):
            for text in sorted(set(mine) - set(other)):
                print(f"  {name}: only {commit} warns: {text}")
    if found:
        label = "allowed" if reason else "FAILED " if failed else "DIFFERS"
        print(f"{label}  {name}{f' ({reason})' if reason else ''}")
        print(*(f"           {line}" for line in found), sep="\n")
    elif reason:
        print(f"  {name} is the same, though a difference is allowed ({reason})")
    return not found or bool(reason)


def main(given: list[str] | None = None) -> int:
    """Compare, or measure; the exit code."""
    options = arguments(given)
    versions = [resolve(name) for name in options.commits]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        checkouts = [stack.enter_context(checked_out(version)) for version in versions]
        if options.bench:
            print(bench.told(*checkouts, bench.timed(*checkouts, options.pairs)))
            return 0
        folders = [folder / "first", folder / "second"]
        for checkout, results in zip(checkouts, folders, strict=True):
            run(checkout, options.names, options.jobs, results)
        print()
        right = [judge(n, folders, options.commits, options.allowed.get(n)) for n in options.names]
    print(f"{sum(right)} of {len(right)} cases are as they should be.")
    return int(not all(right))


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # worktrees are removed then, too
    sys.exit(main())
