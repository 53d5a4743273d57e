"""A draw enters the files that the page for developers lists, and no others."""

import re
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pymc as pm
import pytest

import pymc_austerity
from pymc_austerity import SCIR, AusterityMH, RandomWalk, TunaMH
from pymc_austerity.model.compile.backend import interpreted

PACKAGE = Path(pymc_austerity.__file__).parent
PAGE = Path(__file__).parents[2] / "docs" / "developer" / "architecture_draw.md"
N = 2000
# The first draws ask more: is the start possible, have forms of likelihoods been verified.
N_COLD, N_WARM = 60, 60

# Files on the way, of draws with known statistics for SCIR. The aim of the design was 8, 9 and 8.
COUNTS = {"AusterityMH": 11, "TunaMH": 13, "SCIR": 6}


@cache
def logistic():
    rng = np.random.default_rng(1)
    x = rng.normal(size=(N, 2))
    y = (rng.random(N) < 1 / (1 + np.exp(-x @ [0.5, -1.0]))).astype(float)
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 2, shape=2)
        pm.Bernoulli("y", logit_p=pm.math.dot(x, beta), observed=y)
    return model


@cache
def counts():
    group = np.arange(N) % 3
    y = np.random.default_rng(1).poisson(2.0, N)
    with pm.Model() as model:
        rate = pm.Gamma("rate", 2, 1, shape=3)
        pm.Poisson("y", rate[group], observed=y)
    return model


def austerity():
    return AusterityMH(proposal=RandomWalk(0.05), model=logistic())


def tuna():
    return TunaMH(model=logistic())


def scir():
    return SCIR(model=counts())


def scir_from_minibatches():
    return SCIR(batch_size=1000, step_size=0.01, model=counts())


def entered(step):
    """Functions of the package that warm draws call, by file."""
    called = {}

    def look(frame, event, arg):
        file = frame.f_code.co_filename
        if event == "call" and file.startswith(str(PACKAGE)):
            called.setdefault(Path(file).relative_to(PACKAGE).as_posix(), set()).add(frame.f_code.co_name)

    step.setup_chain(np.random.default_rng(1), tune=0, draws=N_COLD + N_WARM)
    point = step.model.initial_point()
    for _ in range(N_COLD):
        point, _ = step.step(point)
    before = sys.getprofile()
    sys.setprofile(look)
    try:
        for _ in range(N_WARM):
            point, _ = step.step(point)
    finally:
        sys.setprofile(before)
    return called


def tables(title):
    """Tables below a title of the page: the functions that it names, by file."""
    text = PAGE.read_text().split(f"\n### {title}\n")[1]
    below = re.split(r"\n##", text)[0]
    found = []
    for table in re.findall(r"^\| File .*\n\|.*\n((?:\|.*\n)+)", below, re.MULTILINE):
        rows = re.findall(r"^\| `(\S+)` \| (.*?) \|", table, re.MULTILINE)
        found.append({file: set(re.findall(r"`(\w+)`", functions)) for file, functions in rows})
    return found


@pytest.mark.parametrize(
    ("title", "n_tables", "make"),
    [
        ("AusterityMH", 1, austerity),
        ("TunaMH", 1, tuna),
        ("SCIR", 1, scir),
        ("SCIR", 2, scir_from_minibatches),
    ],
    ids=["AusterityMH", "TunaMH", "SCIR", "SCIR, minibatch"],
)
@pytest.mark.covering(1)
def test_a_draw_enters_the_files_that_the_page_lists(title, n_tables, make):
    listed = tables(title)[:n_tables]
    with interpreted():
        called = entered(make())
    assert set(called) == {file for table in listed for file in table}
    # With a minibatch some functions of the first table have a deputy in the second.
    assert {file: names - called[file] for file, names in listed[-1].items() if names - called[file]} == {}


@pytest.mark.parametrize(("title", "count"), COUNTS.items())
def test_the_files_are_as_many_as_the_page_says(title, count):
    assert len(tables(title)[0]) == count
    assert re.search(rf"^### {title}\n\n{count} files", PAGE.read_text(), re.MULTILINE)
