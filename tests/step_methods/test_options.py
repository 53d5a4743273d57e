"""Options that steps refuse, by their name and their value, before anything is built; and those they take."""

import math
from functools import cache, partial

import numpy as np
import pymc as pm
import pytest

import pymc_austerity as pma
from pymc_austerity.acceptance import Exact, TTest
from pymc_austerity.exceptions import UnboundedError
from pymc_austerity.proposals import Laplace, Surrogate
from pymc_austerity.step_methods.step_size import DecreasingStepSize
from tests.models import as_model
from tests.statistical.fields import field
from tests.statistical.selection import normal_model, normal_rows

from .conftest import N, line_data
from .test_elementwise import groups
from .test_particle_gibbs import linear_gaussian

pytestmark = pytest.mark.usefixtures("interpreted")
NAN, INF = math.nan, math.inf
X, Y = line_data(N)


@as_model
def regression():
    beta = pm.Normal("beta", 0, 10, shape=2)
    pm.Normal("y", beta[0] + beta[1] * X, 1.0, observed=Y)


@as_model
def mixture():
    z = pm.Categorical("z", pm.Dirichlet("w", np.ones(3)), shape=N)
    pm.Normal("y", pm.Normal("mu", shape=3)[z], 1.0, observed=Y)


# Models of the steps, and their variables there.
MODELS = {
    pma.AusterityGibbs: (lambda: field(6, 0.5, 3), ["X"]),
    pma.MinibatchCategoricalGibbs: (mixture, ["z"]),
    pma.ParticleGibbs: (lambda: linear_gaussian(n=5).model, ["h"]),
    pma.ReversibleJump: (lambda: normal_model(normal_rows(150, 4)), None),
    pma.SCIR: (mixture, ["w"]),
}


@cache
def model_of(build):
    return build()


def made(kind, **options):
    build, names = MODELS.get(kind, (regression, ["beta"]))
    return kind(**{"vars": names, "model": model_of(build), **options})


SGLD = partial(made, pma.SGLD, step_size=1e-5)
BOTH = (TypeError, ValueError)
SHARE = "None, a positive integer, or a share"
SIZE = "a positive number or DecreasingStepSize"

# The step, the option, what it must be, and wrong values; of a `ValueError`, unless it says another error.
VALUES = [
    (pma.AusterityMH, "epsilon", "", (-0.01, 0.51, NAN, INF, True, False)),
    (pma.AusterityMH, "epsilon", "", ("0.1", None), BOTH),
    (pma.AusterityMH, "batch_size", "", (1, 0, -500, 100.0, 100.5, NAN, True, N + 1)),
    (pma.AusterityMH, "batch_size", "", ("500",), BOTH),
    (pma.AusterityMH, "growth", "", (1, 1.0, 0.5, -2.0, NAN, INF, True)),
    (pma.AusterityMH, "growth", "", ("geometric", None), BOTH),
    (pma.AusterityMH, "boundary", "", (0.49, 1.01, NAN, True)),
    (pma.AusterityMH, "boundary", "", ("pocock", None), BOTH),
    (pma.AusterityMH, "steps_per_draw", "a positive integer", (0, -1, 1.0, NAN, True)),
    (pma.AusterityMH, "steps_per_draw", "", ("1",), BOTH),
    (pma.AusterityMH, "threshold", "", (2, 1, 0, -1, 1000.0, NAN, True)),
    (pma.AusterityMH, "threshold", "", (None,), BOTH),
    (pma.AusterityMH, "elementwise", "True or False, got", ("yes",)),
    (pma.AusterityMH, "subsample", '"gather", "block" or None, got', ("blocks",)),
    (pma.AusterityMH, "control_variate", r"None or Taylor\(\), got", ("taylor", True, {}), TypeError),
    (pma.AusterityMH, "control_variate", r"None or Taylor\(\), got", (pma.Taylor,), TypeError),
    (pma.AusterityMH, "proposal", "RandomWalk", (3, "random walk", [0.1], np.eye(1), object()), BOTH),
    (pma.AusterityMH, "proposal", "RandomWalk", (pma.RandomWalk, pma.proposals.AdaptiveRandomWalk), BOTH),
    *(
        (step, "temperature", "a positive number, got", (0.0, -1.0, INF, NAN, "2", True))
        for step in (pma.AusterityMH, pma.MinibatchBarker, pma.MetropolisHastings)
    ),
    (pma.MHSubLhd, "range_bound", "", ("approximate", 3.0, pma.MHSubLhd)),
    (pma.TunaMH, "chi", "a number >= 0", (-0.1, INF, NAN, "0", True)),
    (pma.TunaMH, "switch_above", "a positive share of the rows, or inf", (0.0, -1, NAN, None)),
    (pma.TunaMH, "curvature", "a dict from names of terms to functions", (3.0, {"y": 3.0}), TypeError),
    (pma.TunaMH, "curvature", "a dict from names of terms to functions", (np.ones_like,), TypeError),
    (pma.TunaMH, "debug", "True or False", ("yes", 1)),
    (pma.TunaMH, "control_variate", r"a Taylor\(\), got None: TunaMH has", (None,)),
    (pma.TunaMH, "control_variate", "", ("taylor", pma.Taylor), TypeError),
    (pma.TunaMH, "proposal", "", (3,), TypeError),
    (pma.TunaMH, "steps_per_draw", "a positive integer", (0,)),
    (pma.TunaMH, "set_up_budget", "a positive number", (0,)),
    (pma.recommend, "set_up_budget", "a positive number", ("a minute",)),
    *((pma.recommend, name, "True or False", ("no",)) for name in ("approximate", "verbose", "progressbar")),
    (pma.AusterityGibbs, "epsilon", r"in \[0, 0.5\], got", (0.6,)),
    (pma.AusterityGibbs, "batch_size", "an integer of at least 2, got", (1,)),
    (pma.AusterityGibbs, "min_terms", "an integer of at least 0, got", (-1,)),
    (pma.AusterityGibbs, "subsample", "", ("all",)),
    (pma.MinibatchCategoricalGibbs, "batch_size", SHARE, (0, -1, 0.0, 1.0, 1.5, -0.1, NAN, "all", True)),
    (pma.MinibatchCategoricalGibbs, "batch_size", "at most 2000, .* got", (N + 1,)),
    (pma.MinibatchCategoricalGibbs, "steps_per_draw", "a positive integer", (0, 1.5, None, True)),
    (pma.ParticleGibbs, "particles", "an integer of at least 2", (1, 0, 2.5, True, "many")),
    (pma.ReversibleJump, "jump", r"in \(0, 1\], got", (0.0, "often")),
    (pma.ReversibleJump, "swap", r"in \[0, 1\], got", (1.5,)),
    (pma.ReversibleJump, "redraw", '"all" or "one", got', ("some",)),
    (pma.ReversibleJump, "acceptance", "a decision rule", (TTest,), TypeError),
    (pma.ReversibleJump, "steps_per_draw", "a positive integer, got", (0,)),
    (pma.SCIR, "step_size", SIZE, (0.0, -1, INF, lambda m: 0.1)),
    (pma.SCIR, "batch_size", f"at most {N}, .*'w' .*'z'.* got", (N + 1,)),
    (pma.SCIR, "batch_size", SHARE, (0, 1.5, True)),
    (partial(made, pma.SCIR, batch_size=10), "control_variate", 'None or "anchor"', ("taylor",)),
    (pma.SCIR, "refresh", "a positive integer", (0,)),
    (pma.SCIR, "shift", "None or", (-1.0,)),
    (pma.SCIR, "minibatch_rate", "True or False", (3,)),
    (pma.SCIR, "steps_per_draw", "a positive integer", (0,)),
    (pma.SCIR, "threshold", "None or", (2,)),
    (pma.SGLD, "step_size", SIZE, (0, 0.0, -1e-3, INF, NAN, "a", True, None)),
    (SGLD, "batch_size", "at most 2000.*got", (5000,)),
    (SGLD, "batch_size", "None, a positive integer", (0,)),
    (SGLD, "steps_per_draw", "a positive integer", (0,)),
    (SGLD, "preconditioner", "None or Laplace", ("mode",)),
    (SGLD, "control_variate", "None or Taylor", (2,), TypeError),
]


def with_error(row, n):
    """The row and its error, which comes last; all others are `ValueError`."""
    return row if len(row) > n else (*row, ValueError)


def step_of(make, **options):
    return make(**options) if isinstance(make, partial) else made(make, **options)


def named(make):
    return (make.args[0] if isinstance(make, partial) else make).__name__


@pytest.mark.parametrize(
    ("make", "name", "said", "value", "error"),
    [
        pytest.param(make, name, said, value, error, id=f"{named(make)}-{name}-{k}")
        for make, name, said, values, error in (with_error(row, 4) for row in VALUES)
        for k, value in enumerate(values)
    ],
)
def test_values(make, name, said, value, error):
    with pytest.raises(error, match=rf"^{name} must .*{said}") as caught:
        step_of(make, **{name: value})
    assert repr(value) in str(caught.value)


def walk_of(q):
    return q, 0.0


def failing(q, rng):
    raise ZeroDivisionError("mine")


def curved(by_row):
    """A step with this function in the place of a bound on third derivatives."""
    return {"curvature": {"y": lambda low, high, rows: by_row(len(low))}}


def centered(**center):
    return {"control_variate": pma.Taylor(center=center)}


ALONE = {"model": groups().model, "vars": ["v"], "elementwise": True}
ELEMENTS, AUSTERITY_ELEMENTS, LHD_ELEMENTS = (
    partial(made, kind, **ALONE) for kind in (pma.MetropolisHastings, pma.AusterityMH, pma.MHSubLhd)
)
NO_BLOCKS = "guarantee of the decision rule holds for single rows"
CURVATURE = r"curvature\['y'\] must return a number >= 0 .* each of the 2000 rows"
RETURNED = r"The proposal must return .*\(q_new, log_hastings\)"
RESULTS = [
    (np.zeros(1), 0.0),
    (np.zeros((2, 1)), 0.0),
    (0.0, 0.0),
    (np.zeros(2), np.zeros(2)),
    (np.zeros(2), None),
    (np.zeros(2), "0"),
    (np.zeros(2), 0.0, 1.0),
    np.zeros(2),
    None,
    (np.array(["a", "b"]), 0.0),
    # The chain stays in float64.
    (np.zeros(2, np.float32), 0.0),
    (np.zeros(2, np.int64), 0.0),
    ([0.0, 0.0], 0.0),
]
# The step, its options, and what it says.
OPTIONS = [
    # A typo is one also where all rows are read.
    (pma.AusterityMH, {"epsilon": 0.0, "growth": 0.5}, "^growth must be"),
    (pma.AusterityMH, {"proposal": pma.RandomWalk([0.1, 0.2, 0.3])}, "^scale must have"),
    (pma.AusterityMH, {"proposal": pma.RandomWalk(cov=np.eye(3))}, "^cov must have"),
    (pma.AusterityMH, {"proposal": walk_of}, "argument", TypeError),
    (pma.AusterityMH, {"proposal": failing}, "mine", ZeroDivisionError),
    (pma.AusterityMH, {"proposal": Surrogate()}, r"Surrogate moves on .*control_variate=Taylor\(order=2\)"),
    *((pma.AusterityMH, {"proposal": lambda q, rng, x=x: x}, RETURNED, BOTH) for x in RESULTS),
    (pma.AusterityMH, {"control_variate": pma.Taylor(exact_rows=N - 1)}, "=1999 leaves too few of the 2000"),
    (pma.AusterityMH, {"control_variate": pma.Taylor(exact_rows=N + 5)}, "exact_rows=2005 leaves too few"),
    (pma.AusterityMH, centered(b=np.zeros(2)), "center has no value for beta"),
    (pma.AusterityMH, centered(beta=np.zeros(3)), r"center\['beta'\] must have shape \(2,\), got \(3,\)"),
    (pma.AusterityMH, centered(beta=0.0), r"must have shape \(2,\), got \(\)"),
    (pma.AusterityMH, centered(beta=np.full(2, NAN)), "not finite at the given center"),
    *((pma.MHSubLhd, {"range_bound": lambda q, q_new, x=x: x}, "^range_bound must") for x in (INF, -1.0)),
    (pma.MHSubLhd, {"subsample": "block"}, NO_BLOCKS),
    (pma.MHSubLhd, {"subsample": "block", "control_variate": pma.Taylor()}, NO_BLOCKS),
    (pma.MinibatchBarker, {"skew_correction": True}, "skew_correction=True needs pilot=True"),
    (pma.TunaMH, {"subsample": "gather"}, "TunaMH has no option 'subsample'", TypeError),
    (pma.TunaMH, {"acceptance": Exact()}, "acceptance", TypeError),
    (pma.TunaMH, {"control_variate": pma.Taylor(exact_rows=7)}, "exact_rows=7 is not for TunaMH"),
    (pma.TunaMH, {"curvature": {"z": np.add}}, "given for 'z', but the local terms of the model are 'y'"),
    (pma.TunaMH, {"threshold": N + 1}, "nothing to subsample"),
    (pma.TunaMH, {"proposal": Surrogate(), "control_variate": pma.Taylor(order=1)}, "Surrogate moves on the"),
    (pma.TunaMH, curved(lambda n: 1.0), CURVATURE),
    (pma.TunaMH, curved(lambda n: -np.ones(n)), CURVATURE),
    (ELEMENTS, {"control_variate": pma.Taylor()}, "moved faster by TunaMH, as a field"),
    (ELEMENTS, {"proposal": Laplace()}, r"AdaptiveRandomWalk\(\) or RandomWalk\(scale\)"),
    (ELEMENTS, {"proposal": pma.RandomWalk([0.1, 0.2])}, "each of the 7 elements"),
    (ELEMENTS, {"proposal": pma.RandomWalk(cov=np.eye(7))}, r"RandomWalk\(scale\)"),
    (LHD_ELEMENTS, {}, 'range_bound="exact"', UnboundedError),
    (LHD_ELEMENTS, {"range_bound": lambda q, q_new: 9.0, "subsample": "block"}, "gather"),
    (AUSTERITY_ELEMENTS, {"threshold": 5}, "threshold=5 has no meaning"),
    (AUSTERITY_ELEMENTS, {"steps_per_draw": 0}, "steps_per_draw must be a positive integer, got 0"),
    (pma.MinibatchCategoricalGibbs, {"vars": None}, "One step draws one vector .* w_simplex__, z, mu"),
    (pma.MinibatchCategoricalGibbs, {"vars": ["mu"]}, "'mu' is a NormalRV, and must be a pm.Categorical"),
    (pma.ReversibleJump, {"proposal": Surrogate()}, "Between jumps move by RandomWalk"),
    (pma.ReversibleJump, {"proposal": pma.RandomWalk([1.0, 2.0])}, "scale must have length 5"),
    (pma.ReversibleJump, {"threshold": 1000}, "longest term .* is 'y' with 150 rows"),
    (pma.ReversibleJump, {"threshold": 4}, "threshold=4 makes the prior of 4 coefficients"),
    (pma.ReversibleJump, {"control_variate": None}, "ReversibleJump has no option 'control_var", TypeError),
    (pma.ReversibleJump, {"elementwise": True}, "ReversibleJump has no option 'elementwise'", TypeError),
    (pma.SCIR, {"control_variate": "anchor"}, "give a batch_size"),
    (SGLD, {"preconditioner": Laplace("pcn")}, "its parameters are for proposals"),
    (SGLD, {"control_variate": pma.Taylor(exact_rows=5)}, "exact_rows=5 is for steps"),
    (SGLD, {"epsilon": 0.1}, "SGLD has no option 'epsilon'", TypeError),
    (SGLD, {"step_size": 4.0, "preconditioner": Laplace()}, r"The largest stable step size is 4\."),
    (SGLD, {"step_size": 1.0}, "step_size=1 is unstable for beta: .* largest stable step size is 0.00"),
    (SGLD, {"step_size": DecreasingStepSize(1.0)}, "step_size=1 is unstable"),
    (SGLD, {"threshold": 10**6}, "nothing to subsample"),
    (pma.SGLD, {}, "step_size", TypeError),
]


@pytest.mark.parametrize(("make", "options", "said", "error"), [with_error(row, 3) for row in OPTIONS])
def test_refused(make, options, said, error):
    with pytest.raises(error, match=said):
        step_of(make, **options)


@pytest.mark.parametrize("options", [{"h": 0.0}, {"h": 1.0, "tau": -1.0}, {"h": 1.0, "kappa": 2.0}], ids=str)
def test_bad_schedules(options):
    with pytest.raises(ValueError, match="of DecreasingStepSize must be"):
        DecreasingStepSize(**options)


def test_only_vars_is_positional():
    with pytest.raises(TypeError):
        pma.AusterityMH(["beta"], 0.1, model=model_of(regression))


@pytest.mark.parametrize("kind", [pma.AusterityMH, pma.MinibatchCategoricalGibbs])
def test_compile_kwargs_are_not_used(kind):
    with pytest.warns(pma.SubsamplingWarning, match="compile_kwargs|compiles with numba") as caught:
        kind(MODELS.get(kind, (0, ["beta"]))[1], model=made(kind).model, compile_kwargs={"mode": "JAX"})
    assert len(caught) == 1
    assert caught[0].filename == __file__
    made(kind, compile_kwargs={})
    made(kind, compile_kwargs=None)


# What is taken ----------------------------------------------------------------------------------------

IN_RANGE = {
    "epsilon": (0, 0.5, np.float32(0.1)),
    "batch_size": (None, 2, np.int32(100), N),
    "growth": (2, np.int64(2), np.float32(1.5)),
    "boundary": (1, np.float64(0.7)),
    "steps_per_draw": (np.int64(2),),
    "threshold": (np.int64(N), 5, 7, 8),  # from 3 on `factorise` accepts it
}


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in IN_RANGE.items() for value in values], ids=str
)
@pytest.mark.covering(5)
def test_in_range(name, value):
    step = made(pma.AusterityMH, rng=1, **{name: value})
    assert 0 < step.step(step.model.initial_point())[1][0]["n_used"] <= N
