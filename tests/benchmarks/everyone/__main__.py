"""Effective draws per CPU second, set-up costs and errors of subsampled MCMC, beside exact chains and peers.

Results are added to results.json in the directory that is given, so a long list of runs can be made in parts.
NumPyro and BlackJAX may live in a virtualenv of their own, made with `pip install numpyro blackjax`.
"""

import argparse
import sys
from pathlib import Path

from tests.benchmarks.everyone import figure, run
from tests.benchmarks.everyone.methods import METHODS
from tests.benchmarks.everyone.problems import MAKERS


def whole(text):
    return int(float(text))


def arguments(given=None):
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.everyone", description=__doc__)
    parser.add_argument("--sizes", nargs="+", type=whole, default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--huge", action="store_true", help="N = 1e7, too")
    parser.add_argument("--dims", nargs="+", type=int, default=[10, 50])
    parser.add_argument("--problems", nargs="+", choices=MAKERS, default=list(MAKERS), metavar="PROBLEM")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS), metavar="METHOD")
    parser.add_argument("--draws", type=whole, default=20_000, help="of methods that read few rows")
    parser.add_argument("--seconds-per-run", type=float, default=60.0, help="CPU budget, without set-up")
    parser.add_argument("--peer-python", help="interpreter that has NumPyro and BlackJAX")
    parser.add_argument("--out", type=Path, required=True, help="directory of results.json and figure.png")
    parser.epilog = f"problems: {', '.join(MAKERS)}. methods: {', '.join(METHODS)}."
    return parser.parse_args(given)


def main(given=None):
    options = arguments(given)
    sizes = options.sizes + [10_000_000] * options.huge
    failures = run.run(
        options.problems,
        sizes,
        options.dims,
        options.methods,
        options.out,
        draws=options.draws,
        budget=options.seconds_per_run,
        peer_python=options.peer_python,
    )
    figure.draw(run.load(options.out), options.out / "figure.png")
    return failures > 0


if __name__ == "__main__":
    sys.exit(main())
