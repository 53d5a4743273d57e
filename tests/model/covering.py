"""Choose few models of the catalogue that reach all that the whole catalogue reaches.

``python -m tests.model.covering`` runs the test of every model once, notes which branches of
`pymc_austerity/model` it takes and which operations it takes apart, and writes two files:
`catalogue_names.txt`, a line for each model, and `covering.txt`, the names of those that `make test` runs.
The others are marked slow. A model that is not recorded yet is run by `make test` until this is run again.

``--check`` writes nothing, and fails if a record is out of date or the models chosen miss anything.
"""

import argparse
import sys
import time
import warnings
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytensor
import pytest
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import Elemwise

from pymc_austerity import FactorisationError, factorise, model

from .catalogue import REFUSED
from .catalogue_record import COVERING, COVERING_FILE, ENTRIES, NAMES_FILE, RECORDED, Recorded
from .factorise_checks import Case, check

PACKAGE = str(Path(model.__file__).parent)
EVENTS = sys.monitoring.events
# Functions that meet every operation, and the local variable that holds it or its result.
MEET = {"_take": "var", "_take_points": "var", "_rebuild_node": "node"}

NAMES_HEADER = """\
# The models of the catalogue: name, file, outcome; of those that are split, the number of local terms and
# the size of each vector of them. How many models are handled is counted over this list, so names are only
# added, at the end; none is changed or removed.
# To add a model, write it in a catalogue file, under a decorator of catalogue.py, and run
# python -m tests.model.covering
"""
COVERING_HEADER = """\
# Models that together take every branch and every operation that the whole catalogue takes: `make test` runs
# these, `make test-slow` the others too. Written by python -m tests.model.covering
"""


@dataclass(frozen=True)
class Run:
    """One model: its record, the core-seconds of its test, and what it reached."""

    record: Recorded
    seconds: float
    items: frozenset


class Recorder:
    """Notes the functions, lines, branches and operations that a model reaches."""

    def __init__(self):
        self.items = set()
        self._tool = sys.monitoring.COVERAGE_ID

    @contextmanager
    def on(self):
        """Within it, items are noted."""
        monitoring = sys.monitoring
        monitoring.use_tool_id(self._tool, "covering")
        for event, callback in (
            (EVENTS.PY_START, self._start),
            (EVENTS.LINE, self._line),
            (EVENTS.BRANCH, self._branch),
        ):
            monitoring.register_callback(self._tool, event, callback)
        monitoring.set_events(self._tool, EVENTS.PY_START)
        try:
            yield
        finally:
            monitoring.set_events(self._tool, EVENTS.NO_EVENTS)
            monitoring.free_tool_id(self._tool)

    def of(self, function, *args):
        """What `function` returns, and the items that it reached."""
        self.items = set()
        sys.monitoring.restart_events()
        return function(*args), frozenset(self.items)

    def _start(self, code, _offset):
        if not code.co_filename.startswith(PACKAGE):
            return sys.monitoring.DISABLE
        sys.monitoring.set_local_events(self._tool, code, EVENTS.LINE | EVENTS.BRANCH)
        self._note(code)
        if code.co_name not in MEET:
            return sys.monitoring.DISABLE
        met = sys._getframe(1).f_locals[MEET[code.co_name]]
        node = met.owner if code.co_name != "_rebuild_node" else met
        if node is not None:
            self.items.add(("operation", code.co_name, operation(node.op)))
        return None

    def _line(self, code, line):
        self._note(code, line)
        return sys.monitoring.DISABLE

    def _branch(self, code, source, destination):  # either way may come: it stays on
        self._note(code, source, destination)

    def _note(self, code, *where):
        self.items.add((Path(code.co_filename).name, code.co_qualname, code.co_firstlineno, *where))


def operation(op):
    """Name of an operation: of the function of numbers, or of the core, where it is applied to arrays."""
    inner = op.scalar_op if isinstance(op, Elemwise) else op.core_op if isinstance(op, Blockwise) else None
    return type(op).__name__ + (f" of {type(inner).__name__}" if inner is not None else "")


def run_test(entry):
    """Do what the test of a model does; return its local vectors."""
    if entry not in REFUSED:
        case = Case(entry)
        check(case)
        return case.local
    with pytest.raises(FactorisationError):
        factorise(entry.build()[0])
    return None


def run_all(entries):
    """Run the test of every model."""
    runs, recorder = [], Recorder()
    with recorder.on(), pytensor.config.change_flags(mode="FAST_COMPILE", cxx=""), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for entry in entries:
            start = time.process_time()
            local, items = recorder.of(run_test, entry)
            runs.append(Run(Recorded.of(entry, local), time.process_time() - start, items))
    return runs


def covering_set(runs):
    """The fewest core-seconds, nearly: take what is reached by most, for its cost, then drop what is idle."""
    missing, chosen = frozenset().union(*(run.items for run in runs)), []
    while missing:
        chosen.append(max(runs, key=lambda run: len(run.items & missing) / run.seconds))
        missing -= chosen[-1].items
    for run in sorted(chosen, key=lambda run: -run.seconds):
        others = [other for other in chosen if other is not run]
        if run.items <= frozenset().union(*(other.items for other in others)):
            chosen = others
    return chosen


def report(runs, chosen):
    """Print what the chosen models reach of what all reach, by file; return what they miss."""
    everything = frozenset().union(*(run.items for run in runs))
    reached = frozenset().union(*(run.items for run in chosen))
    of_file = Counter(item[0] for item in reached)
    for file, number in sorted(Counter(item[0] for item in everything).items()):
        print(f"{file:<24}{of_file[file]:6} of {number:6}")
    lifted = {name for kind, met, name, *_ in reached if kind == "operation" and met == "_take"}
    print("operations lifted:", ", ".join(sorted(lifted)))
    seconds, total = (sum(run.seconds for run in some) for some in (chosen, runs))
    print(f"{len(chosen)} of {len(runs)} models, {seconds:.0f} of {total:.0f} core-seconds")
    missed = everything - reached
    print("all is reached" if not missed else f"{len(missed)} are missed: {sorted(missed, key=str)}")
    return missed


def in_recorded_order(runs):
    """Records, those of before first. A change of one is printed: it is hardly ever right."""
    gone = sorted(RECORDED.keys() - ENTRIES.keys())
    if gone:
        raise SystemExit(f"models were recorded and are no longer in the catalogue: {', '.join(gone)}")
    new = {run.record.name: run.record for run in runs}
    for name, record in new.items():
        if RECORDED.get(name, record) != record:
            print(f"changed: {RECORDED[name]} -> {record}")
    return [new[name] for name in [*RECORDED, *(name for name in new if name not in RECORDED)]]


def main(arguments=None):
    """Run all models, then write or check the two files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing, fail if a file is out of date")
    check_only = parser.parse_args(arguments).check
    runs = run_all(ENTRIES.values())
    records = in_recorded_order(runs)
    if check_only:
        missed = report(runs, [run for run in runs if run.record.name in COVERING])
        return int(bool(missed) or records != list(RECORDED.values()))
    chosen = covering_set(runs)
    report(runs, chosen)
    NAMES_FILE.write_text(NAMES_HEADER + "".join(f"{record}\n" for record in records))
    names = sorted(run.record.name for run in chosen)
    COVERING_FILE.write_text(COVERING_HEADER + "".join(f"{name}\n" for name in names))
    return 0


if __name__ == "__main__":
    sys.exit(main())
