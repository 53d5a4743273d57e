"""Data that no parameters make possible, and starts from which no chain can start."""

import re

import numpy as np
import pymc as pm
import pymc.dims as pmd
import pytensor.tensor as pt
import pytest
import xarray as xr

from pymc_austerity.model.checks import refuse_data, require_start
from tests.models import as_model

N = 300
RNG = np.random.default_rng(1)
REAL = RNG.normal(size=N)
SHARE = RNG.uniform(0.1, 0.9, size=N)
ONES = np.ones(N, dtype=int)


def but(values, position, wrong):
    """The same array with another value at one place, or some."""
    changed = np.array(values, dtype=np.result_type(values, type(wrong)))
    changed[position] = wrong
    return changed


def normal(observed):
    pm.Normal("y", pm.Normal("mu"), 1.0, observed=observed)


def normal_by(x):
    pm.Normal("y", pm.Normal("mu") * x, 1.0, observed=REAL)


def design(x):
    pm.Normal("y", pm.math.dot(x, pm.Normal("b", shape=2)), 1.0, observed=REAL)


def poisson(observed):
    pm.Poisson("y", pm.math.exp(pm.Normal("mu")), observed=observed)


def beta(observed):
    pm.Beta("y", pm.HalfNormal("a"), pm.HalfNormal("b"), observed=observed)


def missing_in_data():
    normal(pm.Data("data", REAL))
    pm.set_data({"data": but(REAL, [3, 7], np.nan)})


def missing_count():
    poisson(pm.Data("data", np.ones(N)))
    pm.set_data({"data": but(np.ones(N), 9, np.nan)})


def missing_cell():
    design(pm.Data("x", np.ones((N, 2))))
    pm.set_data({"x": but(np.ones((N, 2)), (5, 1), np.nan)})


def missing_group():
    effect = pm.Normal("mu") * pm.Data("u", np.ones(5))
    pm.Normal("y", effect[np.arange(N) % 5], 1.0, observed=REAL)
    pm.set_data({"u": but(np.ones(5), 2, np.nan)})


def coupled():
    pm.MvNormal("y", pm.Normal("mu") * np.ones(9), np.eye(9), observed=pm.Data("data", np.ones(9)))
    pm.set_data({"data": but(np.ones(9), 3, np.nan)})


def spoilt_by_one_row():
    """PyMC checks the mean of all rows together, so that one number makes all of them impossible."""
    x = but(np.ones((N, 2)), (5, 1), np.nan)
    pm.Poisson("y", pm.math.exp(pm.math.dot(x, pm.Normal("b", shape=2))), observed=ONES)


IMPOSSIBLE = {
    "one of all": (
        spoilt_by_one_row,
        r"'y' is -inf wherever a chain may start: a covariate \(array of shape \(300, 2\)\) is nan in row 5, "
        "column 1. Leave such rows out",
    ),
    "missing": (
        missing_in_data,
        r"'y' is nan in rows 3, 7 \(2 of 300\).*the observation is nan in rows 3, 7.*PyMC does, where",
    ),
    "missing count": (missing_count, "'y' is -inf in row 9.*the observation is nan in row 9"),
    "infinite": (lambda: normal(but(REAL, 3, np.inf)), "in row 3.*the observation is inf in row 3"),
    "infinite covariate": (
        lambda: normal_by(but(REAL, 5, np.inf)),
        r"in row 5 .*a covariate \(array of shape \(300,\)\) is inf in row 5",
    ),
    "cell": (
        missing_cell,
        r"in row 5 .*the data 'x' is nan in row 5, column 1\. .*PyMC imputes observations only",
    ),
    "group": (missing_group, r"in rows 2, 7, 12, 17, 22, \.\.\. \(60 of 300\).*the data 'u' is nan in row 2"),
    "one number": (coupled, "'y' is nan wherever.*the observation is nan in row 3"),
    "count": (lambda: poisson(but(ONES, 9, -1)), "'y' is -inf in row 9 .*the observation is -1 .*outside"),
    "table": (
        lambda: poisson(but(np.ones((30, 4), dtype=int), (9, 2), -1)),
        r"in row 9, column 2 .*the observation is -1 .*outside",
    ),
    # Finite where a parameter is 1, as it is at the start, and nowhere near.
    "share of 0": (lambda: beta(but(SHARE, 4, 0.0)), "in row 4 .*the observation is 0.0, .*outside"),
    "share": (lambda: beta(but(SHARE, [4, 6], 1.2)), r"in rows 4, 6 \(2 of 300\).*is 1.2, .*outside"),
    "binary": (
        lambda: pm.Bernoulli("y", logit_p=pm.Normal("a"), observed=but(ONES, 0, 2)),
        "in row 0 .*the observation is 2, .*outside",
    ),
}


def far_start():
    pm.Normal("y", pm.Normal("mu", initval=1e200), 1.0, observed=REAL)


def start_outside():
    pm.Normal("y", 0.0, pm.HalfNormal("sigma", initval=-1.0), observed=REAL)


def indicators():
    """All are off where chains start, though half of them are on a priori."""
    on = pm.Bernoulli("on", 0.5, shape=N, initval=np.zeros(N, dtype=int))
    pm.Normal("y", pm.Normal("mu"), pm.math.switch(on, 1.0, 0.0), observed=REAL)


def more_than_tried():
    """The number of trials, which is data, is too small: another row could have this observation."""
    trials = np.arange(N) % 7
    pm.Binomial("y", n=trials, p=pm.Beta("p", 1, 1), observed=but(0 * ONES, 21, 3))


NO_START = {
    "far": (far_start, "term 'mu' is -inf at the start"),
    "outside": (start_outside, "sigma_log__ starts at nan"),
    "indicators": (indicators, r"'y' is -inf in all 300 rows at the start\. The observation is "),
    "trials": (more_than_tried, r"'y' is -inf in row 21 at the start\. The observation is 3\."),
}


def constructed(define):
    return as_model(define)()


def refusal(define):
    model = constructed(define)
    with pytest.raises(ValueError, match="start") as error:
        require_start(model, model.initial_point())
    return str(error.value)


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_the_data_are_named(name):
    define, said = IMPOSSIBLE[name]
    message = refusal(define)
    assert re.search(said, message)
    assert "wherever a chain may start" in message


@pytest.mark.parametrize("name", NO_START)
def test_the_start_is_named(name):
    """The data are not said to be at fault."""
    define, said = NO_START[name]
    message = refusal(define)
    assert re.search(said, message)
    assert "initval" in message
    assert "outside of the support of the likelihood" not in message


def test_the_prior_is_named():
    """Not its start, which nobody gave."""
    model = constructed(lambda: pm.Normal("y", 0.0, pm.HalfNormal("sd", np.nan), observed=REAL))
    with pytest.raises(ValueError, match="The prior of 'sd' has a parameter that is nan"):
        require_start(model, model.initial_point())


def uniform_from_the_start():
    """-inf at the start, and finite at some points near it, where pm.sample starts chains."""
    pm.Uniform("y", 0.0, pm.HalfNormal("upper"), observed=1.2 * SHARE / SHARE.max())


def missing_on_purpose():
    density = lambda value, mu: pt.switch(pt.isnan(value), 0.0, -((value - mu) ** 2))  # noqa: E731
    pm.CustomDist("y", pm.Normal("mu"), logp=density, observed=pm.Data("data", REAL))
    pm.set_data({"data": but(REAL, 3, np.nan)})


def imputed():
    normal(but(REAL, 3, np.nan))


def open_ended():
    """Infinite bounds are data, and do no harm."""
    upper = np.where(np.arange(N) % 2, np.inf, 5.0)
    pm.Truncated("y", pm.Normal.dist(pm.Normal("mu"), 1.0), upper=upper, observed=REAL)


def labelled(observed):
    """Variables and data with named dimensions, which plain tensors do not mix with."""
    pm.modelcontext(None).add_coords({"group": range(3), "row": range(len(observed))})
    level = pmd.Normal("level", 0.0, 1.0, dims="group")
    mean = pmd.math.exp(level.mean("group"))
    pmd.Exponential("y", 1.0 / mean, observed=xr.DataArray(observed, dims="row"))


def possible_with_labels():
    labelled(SHARE)


@pytest.mark.filterwarnings("ignore:Data in y contains missing values")
@pytest.mark.parametrize(
    "define", [uniform_from_the_start, missing_on_purpose, imputed, open_ended, possible_with_labels]
)
def test_possible_data_are_not_refused(define):
    model = constructed(define)
    refuse_data(model)
    require_start(model, model.initial_point())


def test_labelled_data_are_named():
    message = refusal(lambda: labelled(but(SHARE, 3, -2.0)))
    assert "'y' is -inf in row 3 wherever a chain may start: the observation is -2.0, which" in message


def test_infinite_numbers_that_do_no_harm_are_not_blamed():
    """The row that is wrong has an infinite bound, as every other row has."""

    def define():
        upper = np.where(np.arange(N) % 2, np.inf, 5.0)
        waits = pm.Exponential.dist(pm.HalfNormal("rate"))
        pm.Truncated("y", waits, upper=upper, observed=but(SHARE, 3, -2.0))

    message = refusal(define)
    assert "in row 3 wherever" in message
    assert "the observation is -2.0, which" in message


def test_fractions_of_counts():
    """PyMC cuts them off; of an array nothing is left to see."""
    with pytest.raises(ValueError, match=r"observation of 'y' in row 9 is 2\.5.*PyMC would take 2 for it"):
        refuse_data(constructed(lambda: poisson(pm.Data("data", but(np.ones(N), 9, 2.5)))))
    refuse_data(constructed(lambda: poisson(pm.Data("data", np.ones(N)))))
    refuse_data(constructed(lambda: normal(pm.Data("data", REAL))))
