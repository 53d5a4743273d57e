"""`recommend`: which step it chooses, what it says, and that `pymc.sample` takes it."""

import re
from copy import deepcopy
from functools import cache
from itertools import cycle

import cloudpickle
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from scipy.special import expit

import pymc_austerity as pma
from pymc_austerity.exceptions import SelfCheckError, UnsuitableError, warn
from pymc_austerity.mode import mode_fit
from pymc_austerity.mode.mode_fit import fit_mode
from pymc_austerity.model.compile.backend import interpreted
from pymc_austerity.model.compile.target import CompiledTarget
from pymc_austerity.proposals.surrogate import SurrogateState
from pymc_austerity.recommendation import choice, evidence
from pymc_austerity.recommendation.evidence import as_clause, first_sentence
from pymc_austerity.recommendation.recommend import announcement
from pymc_austerity.step_methods.metropolis.engine.sequential import RuleEngine
from pymc_austerity.step_methods.metropolis.mixing_pilot import Mixing
from pymc_austerity.step_methods.metropolis.tuna_plan import TunaEngine
from pymc_austerity.step_methods.recommendation import Recommendation
from tests.models import as_model

# Whether a chain has settled after so few draws is not the question here.
pytestmark = [pytest.mark.filterwarnings("ignore:Tuning ended"), pytest.mark.usefixtures("interpreted")]

ROWS = np.random.default_rng(101).normal(size=5000)
APPROXIMATE = "AusterityMH was chosen, which is approximate"


@cache
@as_model
def logistic():
    """Many rows, and a discrete variable beside them."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(20_000, 2))
    y = (rng.random(20_000) < expit(x @ [0.5, -1.0])).astype(float)
    beta = pm.Normal("beta", 0, 2, shape=2)
    pm.Bernoulli("y", logit_p=pm.math.dot(x, beta), observed=y)
    count = pm.Poisson("count", 3.0)
    pm.Normal("few", count, 1.0, observed=[2.0, 3.0])


@cache
@as_model
def overdispersed():
    rng = np.random.default_rng(2)
    x = rng.normal(size=1000)
    y = rng.poisson(rng.gamma(2.0, np.exp(1.0 + 0.3 * x) / 2.0))
    a, b, alpha = pm.Normal("a", 0, 2), pm.Normal("b", 0, 2), pm.HalfNormal("alpha", 5)
    pm.NegativeBinomial("y", mu=pm.math.exp(a + b * x), alpha=alpha, observed=y)


@cache
@as_model
def waiting():
    """Waiting times of a gamma distribution, of some of which a lower limit is known: it has no bound."""
    rng = np.random.default_rng(2)
    x, limit = rng.normal(size=1000), rng.gamma(2.5, 3.0, size=1000)
    time = rng.gamma(2.5, np.exp(1.0 + 0.3 * x) / 2.5)
    seen, is_seen = np.minimum(time, limit), time < limit
    unit = pm.math.exp(pm.Normal("a", 0, 2) + pm.Normal("b", 0, 2) * x) / 2.5
    density = pm.logp(pm.Gamma.dist(2.5, 1.0 / unit), seen)
    pm.Potential("y", pt.where(is_seen, density, pt.log(pt.gammaincc(2.5, seen / unit))))


@as_model
def rare(positives, n_dim):
    """3,000 rows, almost all of them negative."""
    rng = np.random.default_rng(1)
    x = np.column_stack([np.ones(3000), rng.normal(size=(3000, n_dim - 1))])
    y = np.zeros(3000)
    y[rng.choice(3000, positives, replace=False)] = 1.0
    pm.Bernoulli("y", logit_p=pm.math.dot(x, pm.Normal("beta", 0, 2, shape=n_dim)), observed=y)


@cache
@as_model
def groups():
    """Centred effects, and a scale that is not in the likelihood."""
    rng = np.random.default_rng(3)
    group = rng.integers(0, 8, 10_000)
    y = (rng.random(10_000) < expit(rng.normal(0, 0.5, 8)[group] - 1)).astype(float)
    effect = pm.Normal("effect", pm.Normal("mu", 0, 2), pm.HalfNormal("tau", 1), shape=8)
    pm.Bernoulli("y", logit_p=effect[group], observed=y)


@cache
@as_model
def short():
    pm.Normal("y", pm.Normal("mu"), 1.0, observed=ROWS[:50])


def process():
    scale = pm.HalfNormal("scale")
    gp = pm.gp.Marginal(cov_func=pm.gp.cov.ExpQuad(1, scale))
    gp.marginal_likelihood("gp", X=ROWS[:1000, None], y=ROWS[:1000], sigma=1.0)


def walk():
    z = pm.Normal("z", shape=1500)
    pm.Normal("y", pt.cumsum(z), 1.0, observed=ROWS[:1500])


def two_modes():
    pm.Normal("y", pm.Normal("mu") ** 2, 1.0, observed=1.0 + ROWS)


def flat():
    pm.Normal("y", pm.Flat("a") + pm.Flat("b"), 1.0, observed=ROWS[:1500])


def change():
    point = pm.DiscreteUniform("point", 0, 1500)
    mean = pm.math.switch(np.arange(1500) < point, pm.Normal("before"), pm.Normal("after"))
    pm.Normal("y", mean, 1.0, observed=ROWS[:1500])


@as_model
def model_with(*parts):
    for part in parts:
        part()


@pytest.fixture(scope="module")
def tuna():
    """Not to be moved."""
    with interpreted():
        return pma.recommend(logistic())


@pytest.fixture(scope="module")
def compiled():
    with logistic():
        return pma.recommend()


def said(step):
    """The recommendation on one line."""
    assert isinstance(step.recommendation, Recommendation)
    return " ".join(str(step.recommendation).split())


# Which step ----------------------------------------------------------------------------------------


def test_few_rows_decide(tuna):
    assert type(tuna) is pma.TunaMH
    assert isinstance(tuna._engine, TunaEngine)
    why = tuna.recommendation
    assert why.step == "TunaMH()"
    assert (why.n_local, why.n_dim, why.vars, why.others) == (20_000, 2, ("beta",), ("count",))
    assert max(map(len, str(why).splitlines())) < 80
    assert why.rows == tuna.prediction.terms < 1.0
    assert why.fit == tuna.mode_fit


def test_it_is_as_if_it_had_been_built_by_hand(tuna):
    by_hand = pma.TunaMH([logistic()["beta"]], model=logistic())
    assert vars(tuna).keys() == vars(by_hand).keys() | {"recommendation"}
    for name in ("whiten", "unwhiten", "exact", "certificate", "rounding"):
        np.testing.assert_equal(getattr(tuna.recipe.mode_fit, name), getattr(by_hand.recipe.mode_fit, name))
    assert tuna.prediction == by_hand.prediction
    assert (tuna.control_variate.exact_rows, tuna.reads_all) == (0, False)


@pytest.fixture
def told(caplog):
    """What was announced."""
    caplog.set_level("INFO", logger="pymc.austerity")
    return lambda: [r.getMessage() for r in caplog.records if r.name == "pymc.austerity"]


def test_no_bound_is_known(told, draw):
    exact, (line,) = pma.recommend(waiting()), told()
    assert type(exact) is pma.MetropolisHastings
    assert isinstance(exact._engine, RuleEngine)
    why = exact.recommendation
    assert why.step == "MetropolisHastings(proposal=Laplace())"
    assert why.certificate.startswith("none: 'a' and 'b' enter the term 'y' through GammaIncC")
    assert why.rows == why.n_local == 1000
    assert "recommend(approximate=True) gives AusterityMH" in why.otherwise
    assert "TunaMH(curvature=...)" in why.otherwise
    assert line.startswith("recommend: MetropolisHastings for a, b: all 1,000 rows a draw, because ")
    assert "'a' and 'b' enter the term 'y' through GammaIncC" in line
    assert "No number in place of one parameter gives a bound, nor does a step of its own" in line
    idata = draw(waiting(), exact)
    assert np.all(idata.sample_stats["n_used"] <= 1000)
    assert float(idata.sample_stats["accepted"].mean()) > 0.5


def test_an_approximate_step_has_to_be_asked_for():
    with pytest.warns(pma.SubsamplingWarning, match=APPROXIMATE) as caught:
        step = pma.recommend(waiting(), approximate=True)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert type(step) is pma.AusterityMH
    assert step.recommendation.rows == 150
    assert step.recommendation.guarantee.startswith("none")
    assert len(step.recipe.mode_fit.exact) == 100
    assert step.configuration["n_exact"] == 100


def test_an_exact_step_is_preferred():
    assert type(pma.recommend(rare(34, 3), approximate=True)) is pma.TunaMH


def test_too_many_rows():
    """34 positives for 13 coefficients: loose bounds, though the normal law is not bad."""
    model = rare(34, 13)
    step = pma.recommend(model)
    assert type(step) is pma.MetropolisHastings
    why = step.recommendation
    assert re.search("TunaMH would draw about .* of 3,000 rows", why.reason)
    assert "function of 1 predictor of each row, by interval arithmetic" in why.certificate
    assert "more data for each dimension" in why.otherwise
    by_hand = pma.MetropolisHastings(model=model, proposal=pma.Laplace())
    assert vars(step).keys() == vars(by_hand).keys() | {"recommendation"}
    np.testing.assert_array_equal(step.recipe.mode_fit.proxy.mode, by_hand.recipe.mode_fit.proxy.mode)
    assert step.recipe.mode_fit.expansion is by_hand.recipe.mode_fit.expansion is None
    assert step._data_seen == by_hand._data_seen


def test_a_hierarchy():
    step = pma.recommend(groups())
    assert type(step) is pma.TunaMH
    assert isinstance(step.recipe.proposal, pma.Surrogate)
    assert isinstance(step.proposal_state, SurrogateState)


def test_a_hierarchy_with_too_many_rows(monkeypatch):
    monkeypatch.setattr(evidence, "MOST_ROWS", 1e-6)
    step = pma.recommend(groups())
    assert type(step) is pma.MetropolisHastings
    assert isinstance(step.recipe.proposal, pma.Surrogate)
    assert step.control_variate.exact_rows == 0
    assert step.recipe.mode_fit.expansion is not None
    assert "proposal=Surrogate()" in step.recommendation.step


def part_of_the_model_is_coupled():
    a, b = pm.Normal("a"), pm.Normal("b")
    pm.Normal("z", pt.cumsum(pt.exp(a * ROWS[:1500])), 1.0, observed=ROWS[:1500])
    pm.Normal("y", b * ROWS[:1500], 1.0, observed=ROWS[:1500])


def coupled_by_one():
    a, b = pm.Normal("a"), pm.Normal("b")
    pm.Normal("z", b * pt.cumsum(pt.exp(a * ROWS[:1500])), 1.0, observed=ROWS[:1500])


def far_from_normal_in_one():
    """Few rows tell of `rare`."""
    x = np.zeros(3000)
    x[:3] = 1.0
    y = np.tile([0, 1], 1500)
    y[:3] = 1
    pm.Bernoulli("y", logit_p=pm.Normal("level") + pm.Normal("rare", 0, 20) * x, observed=y)


def made_of_straight_pieces():
    pm.Laplace("y", pm.Normal("a"), pm.HalfNormal("b"), observed=ROWS[:1500])


def made_of_straight_pieces_in_groups():
    u = pm.Normal("u", 0.0, pm.HalfNormal("tau"), shape=40)
    pm.AsymmetricLaplace("y", mu=u[np.arange(1500) % 40], b=pm.HalfNormal("b"), q=0.7, observed=ROWS[:1500])


def a_place_where_the_level_changes():
    place, before, after = pm.Normal("place"), pm.Normal("before"), pm.Normal("after")
    x = np.linspace(-1.0, 1.0, 3000)
    pm.Normal("y", pm.math.switch(x < place, before, after), 1.0, observed=(x > 0.3) + ROWS[:3000])


# The reason, the number of rows, and what would do better.
NUTS = {
    a_place_where_the_level_changes: (
        "'place' is only compared with data", 3000, "pm.NUTS needs a slope, too: .*as pm.Slice, or write a"
    ),
    process: ("term 'gp'", 1000, ""),
    walk: (
        r"Rows of the term 'y' \(1,500 rows\) cannot be computed from a subsample.*CumOp",
        1500,
        "for all variables, because rows of the term 'y'.*CumOp.*Neither a number in place of a "
        "parameter nor a step of its own helps: write 'y' so that",
    ),
    part_of_the_model_is_coupled: (
        "Rows of the term 'z'",
        3000,
        r"A step of its own for 'a' helps the others: step=\[recommend\(vars=\['b'\]\), "
        r"pm.NUTS\(\[model\['a'\]\]\)\]",
    ),
    coupled_by_one: (
        "CumOp", 1500, "With a number in place of 'a' the rest can be subsampled; a step of its own"
    ),
    made_of_straight_pieces: ("'y' is made of straight pieces", 1500, "Errors with a smooth density"),
    made_of_straight_pieces_in_groups: ("'y' is made of straight pieces", 1500, "Errors with a smooth"),
    two_modes: ("2 modes were found", 5000, "because 2 modes were found.*Order what can be exchanged"),
    flat: (
        "no mode to expand at.*a, b", 1500, "Give 'a' or 'b' a proper prior, or put a number in its place"
    ),
    far_from_normal_in_one: (
        "The posterior is far from the normal distribution",
        3000,
        "least like it along rare. With a number in place of 'rare' it would fit the others; a step of",
    ),
    change: (
        "point, which it contains, is discrete$",
        1500,
        "Sum 'point' out .as pm.Mixture does., or put a number in its place",
    ),
}  # fmt: skip
NUTPIE = "pma.sample() without step= is faster: it runs NUTS by nutpie"


@pytest.mark.parametrize("define", NUTS, ids=lambda define: define.__name__)
@pytest.mark.covering(2)
def test_nuts(define, told):
    reason, n_local, better = NUTS[define]
    step = pma.recommend(model_with(define))
    assert isinstance(step, pm.NUTS)
    why, (line,) = step.recommendation, told()
    assert why.step == "pm.NUTS()"
    assert why.n_local == n_local
    assert why.rows is None
    assert re.search(reason, why.reason)
    assert "Use another step" not in why.reason
    assert "leave" not in why.reason
    assert why.others == (("point",) if define is change else ())
    assert line.startswith("recommend: pm.NUTS for ")
    assert re.search(better, line)
    assert line.endswith(why.otherwise)
    takes_all = re.search(rf"{re.escape(NUTPIE)}( \(pip install nutpie\))?\.$", line)  # or nothing
    assert bool(takes_all) == (define is not change)


def test_missing_observations_are_named():
    counts = np.ma.masked_array(np.arange(4000) % 4, mask=np.arange(4000) < 2000)
    with pm.Model() as model:
        u = pm.Normal("u", 0.0, pm.HalfNormal("tau"), shape=40)
        with pytest.warns(pm.exceptions.ImputationWarning):
            pm.Poisson("y", pm.math.exp(u[np.arange(4000) % 40]), observed=counts)
    why = pma.recommend(model).recommendation
    assert why.otherwise.startswith("Leave rows out whose observation of 'y' is missing")
    assert "elementwise" not in why.otherwise


@pytest.mark.parametrize("n_missing", [30, 600])
def test_missing_real_numbers_are_named(n_missing):
    """Few are moved with the others, and many are too many dimensions; in no group."""
    y = np.ma.masked_array(ROWS[:3000], mask=np.arange(3000) < n_missing)
    with pm.Model() as model, pytest.warns(pm.exceptions.ImputationWarning):
        pm.Normal("y", pm.Normal("a"), pm.HalfNormal("s"), observed=y)
    step = pma.recommend(model)
    why = step.recommendation
    assert why.otherwise.startswith("Leave rows out whose observation of 'y' is missing")
    assert "y_unobserved" in why.otherwise
    if n_missing == 30:
        with pytest.raises(UnsuitableError, match="moves y_unobserved beside: no distribution of all"):
            pma.approximate(model, step=step, quiet=True)


def test_rows_whose_covariate_is_missing_are_not_to_be_left_out():
    """Their responses say something of the others."""
    x = np.ma.masked_array(ROWS[:3000], mask=np.arange(3000) < 30)
    with pm.Model() as model:
        with pytest.warns(pm.exceptions.ImputationWarning):
            covariate = pm.Normal("x", pm.Normal("mean"), 1.0, observed=x)
        pm.Normal("y", pm.Normal("a") + pm.Normal("b") * covariate, 1.0, observed=ROWS[:3000])
    assert "Leave rows out" not in pma.recommend(model).recommendation.otherwise


@as_model
def groups_and(column):
    """Effects of 40 groups, and a coefficient without a proper prior."""
    rng = np.random.default_rng(102)
    u = pm.Normal("u", 0.0, pm.HalfNormal("tau"), shape=40)
    eta = column * pm.Flat("b") + u[rng.integers(0, 40, 1200)]
    pm.Normal("y", eta, pm.HalfNormal("sigma"), observed=rng.normal(size=1200))


@pytest.mark.slow("a planted fault, in steps of its own")
def test_a_field_without_a_mode():
    """No row depends on the coefficient."""
    step = pma.recommend(groups_and(np.zeros(1200)))
    assert isinstance(step, pm.NUTS)
    assert step.recommendation.reason == "'b' has no proper prior, and the rows do not depend on it"
    assert "no field" not in step.recommendation.reason


@pytest.mark.slow("compiles a field, with a pilot")
def test_a_field_that_mixes_slowly(monkeypatch):
    """NUTS promises more."""
    monkeypatch.setattr(choice, "_WELL", 2.0)
    monkeypatch.setattr(choice, "_OF_NUTS", 1e-9)
    step = pma.recommend(groups_and(ROWS[:1200]))
    assert isinstance(step, pm.NUTS)
    assert "moves of what 41 effects share would be accepted at a rate" in step.recommendation.reason


def test_nothing_to_subsample():
    step = pma.recommend(short())
    why, text = step.recommendation, said(step)
    assert why.reason == (
        "There is nothing to subsample: the longest term that contains mu is 'y' with 50 rows, fewer than "
        "threshold=1000"
    )
    assert (why.n_local, why.n_dim, why.fit) == (50, 1, None)
    for fact in ("pm.NUTS() for mu", "size N = 50 rows, D = 1 dimensions", "all, at each leapfrog step"):
        assert fact in text
    assert NUTPIE in text


def test_a_poor_fit_is_told_but_not_warned_of():
    """What is said of a step that is not taken stays unsaid: a warning would be an error here."""
    step = pma.recommend(rare(3, 15))
    assert isinstance(step, pm.NUTS)
    assert "independent draws would be accepted at a rate of" in step.recommendation.reason
    assert step.recommendation.fit.remainder_sd > 3.0


def test_a_part_of_the_likelihood(told):
    step, (line,) = pma.recommend(overdispersed(), overdispersed()["a"]), told()
    assert isinstance(step, pm.NUTS)
    assert step.recommendation.reason.endswith("b, alpha_log__ would be moved by another step")
    assert step.recommendation.vars == ("a",)
    assert step.recommendation.others == ("b", "alpha")
    assert line.startswith("recommend: pm.NUTS for a, because")
    assert line.endswith("Update 'b' and 'alpha' in the same step: recommend(vars=['a', 'alpha', 'b']).")


def test_warnings_of_the_chosen_step_are_given(monkeypatch):
    def telling(*args, **options):
        warn("Told.")
        return fit_mode(*args, **options)

    monkeypatch.setattr("pymc_austerity.step_methods.metropolis.plan.fit_mode", telling)
    with pytest.warns(pma.SubsamplingWarning, match="Told.") as caught:
        pma.recommend(logistic())
    assert [w.filename for w in caught] == [__file__]


def test_a_second_search_tells_once(monkeypatch, interpreted):
    """`AusterityMH` searches anew, for the rows that it reads always: the first search is not told of."""
    monkeypatch.setattr(mode_fit, "_POOR_ACCEPTANCE", 2.0)
    with pytest.warns(pma.SubsamplingWarning) as caught:
        step = pma.recommend(rare(34, 13), approximate=True)
    assert type(step) is pma.AusterityMH
    assert sum("The posterior is far from the normal" in str(w.message) for w in caught) == 1


def test_stack_traces_are_not_kept(monkeypatch, interpreted):
    """PyTensor keeps one with each of some thousand nodes, unless told not to."""
    limits, original = [], CompiledTarget.__init__

    def looking(self, *args, **kwargs):
        limits.append(pytensor.config.traceback__limit)
        original(self, *args, **kwargs)

    monkeypatch.setattr(CompiledTarget, "__init__", looking)
    pma.recommend(rare(900, 2))
    assert set(limits) == {0}


# What is refused -----------------------------------------------------------------------------------


def test_a_discrete_variable():
    with pytest.raises(ValueError, match="discrete: count"):
        pma.recommend(logistic(), [logistic()["count"]])


def test_a_reason_is_a_whole_sentence_whose_first_name_is_kept():
    assert as_clause("Taylor(order=2) takes up to 500.") == "Taylor(order=2) takes up to 500"
    assert as_clause("The posterior has no mode.") == "the posterior has no mode"
    assert as_clause("'u' has the shape.") == "'u' has the shape"
    told = "The log density is -inf in rows [0, 1], ... at the start of the chain. Start elsewhere."
    assert first_sentence(told) == "The log density is -inf in rows [0, 1], ... at the start of the chain"


# Deep inside of the search, in the order in which it gets there.
DEEP = [
    "pymc_austerity.model.lift.rows.lift_cells",
    "pymc_austerity.model.factorise.extract_leaves",
    "pymc_austerity.model.self_check._compare_rows",
    "pymc_austerity.model.structure.scalar_graph.tensor_rule",
    "pymc_austerity.model.structure.predictor_values.direct_parts",
    "pymc_austerity.mode.newton.maximum_at",
    "pymc_austerity.mode.mode_fit.expand",
    "pymc_austerity.bounds.row_constants.BoundsByJets",
    "pymc_austerity.step_methods.metropolis.plan.BlockPlan.compile",
]


@pytest.mark.parametrize(("where", "kind"), list(zip(DEEP, cycle([ValueError, TypeError]))))
@pytest.mark.covering(3)
def test_internal_errors_are_not_reasons(where, kind, monkeypatch):
    def fails(*args, **kwargs):
        raise kind("planted")

    monkeypatch.setattr(where, fails)
    with pytest.raises(kind, match="planted") as error:
        pma.recommend(rare(900, 2))
    assert (type(error.value), error.value.args) == (kind, ("planted",))
    if where == DEEP[0]:
        assert "while the term 'y' was taken apart" in error.value.__notes__[0]


def test_a_failed_self_check_is_not_a_reason(monkeypatch):
    monkeypatch.setattr("pymc_austerity.model.self_check.same", lambda *args: False)
    with pytest.raises(SelfCheckError, match="Self-check failed for the term 'y'"):
        pma.recommend(rare(900, 2))


def tabulated_prior():
    grid = np.linspace(-3.0, 3.0, 50)
    mu = pm.Interpolated("mu", grid, np.exp(-(grid**2)))
    pm.Normal("y", mu, 1.0, observed=ROWS[:1500])


@pytest.mark.filterwarnings("ignore:SplineWrapper should implement:FutureWarning")
def test_a_prior_that_is_not_smooth_is_a_reason():
    """An error of PyTensor, of the kind that is meant."""
    step = pma.recommend(model_with(tabulated_prior))
    assert isinstance(step, pm.NUTS)
    assert "The term 'mu' cannot be differentiated twice" in step.recommendation.reason


def negative_count():
    y = np.ones(1500, dtype=int)
    y[[9, 30]] = -1
    pm.Poisson("y", pm.math.exp(pm.Normal("mu")), observed=y)


def infinite_in_a_walk():
    """A term that cannot be factorised."""
    y = ROWS[:1500].copy()
    y[7] = np.inf
    pm.Normal("y", pt.cumsum(pm.Normal("z", shape=1500)), 1.0, observed=y)


def random_draws():
    """pm.NUTS would not complain."""
    batch = pm.Minibatch(ROWS, batch_size=1200)
    pm.Normal("y", pm.Normal("mu"), 1.0, observed=batch, total_size=len(ROWS))


class Square(Op):
    """Without a gradient."""

    def make_node(self, x):
        return Apply(self, [x], [x.type()])

    def perform(self, node, inputs, outputs):
        outputs[0][0] = np.array(inputs[0] ** 2)


REFUSED = {
    "no continuous variable": (lambda: pm.Poisson("count", 3.0), "no continuous free variable"),
    "random draws": (random_draws, "total_size"),
    "no gradient": (
        lambda: pm.Normal("y", Square()(pm.Normal("mu")), 1.0, observed=ROWS[:1500]),
        "cannot be differentiated twice.*needs a gradient",
    ),
    "negative counts": (
        negative_count,
        r"'y' is -inf in rows 9, 30 \(2 of 1,500\).*the observation is -1.*outside of the support",
    ),
    "infinite in a walk": (infinite_in_a_walk, "'y' is -inf in row 7 .*the observation is inf in row 7"),
    "infinite among few": (
        lambda: pm.Normal("y", pm.Normal("mu"), 1.0, observed=[0.0, np.inf, 1.0]),
        "'y' is -inf in row 1 .*the observation is inf in row 1",
    ),
    "fractions": (
        lambda: pm.Poisson("y", pm.math.exp(pm.Normal("mu")), observed=pm.Data("counts", np.full(1500, 2.5))),
        r"observation of 'y' in rows 0, 1, .* is 2\.5",
    ),
    "far start": (
        lambda: pm.Normal("y", pm.Normal("mu", initval=1e200), 1.0, observed=ROWS[:1500]),
        "'mu' is -inf at the start.*initval",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused_before_anything_is_compiled(name, monkeypatch):
    define, said = REFUSED[name]

    def compiles(*args, **kwargs):
        raise AssertionError("compiled")

    monkeypatch.setattr(pm, "NUTS", compiles)
    monkeypatch.setattr("pymc_austerity.step_methods.metropolis.plan.BlockPlan.compile", compiles)
    with pytest.raises(ValueError, match=said):
        pma.recommend(model_with(define))


def test_a_start_that_is_not_finite_is_a_reason_where_chains_can_start_nearby():
    def uniform():
        pm.Uniform("y", 0.0, pm.HalfNormal("upper"), observed=np.linspace(0.1, 1.2, 1500))

    why = pma.recommend(model_with(uniform)).recommendation
    assert why.step == "pm.NUTS()"
    assert "'y' is -inf in rows" in why.reason


# What it says --------------------------------------------------------------------------------------


def test_the_text_of_tuna(tuna):
    text = said(tuna)
    for fact in (
        "TunaMH() for beta",
        "size N = 20,000 rows, D = 2 dimensions",
        "third derivatives of 'y', a function of 1 predictor of each row, by interval arithmetic",
        "reads a row, of 20,000",
        "% of independent draws from it would be accepted",
        "the error of its log density has a standard deviation of 0.0",
        "exact: the posterior is the stationary distribution",
        "count: left to pm.sample()",
    ):
        assert fact in text
    lines = str(tuna.recommendation).splitlines()
    assert max(map(len, lines)) <= 100
    assert len(lines) <= 16
    for unknown in ("certificate", "local terms", "remainder", "C =", "M =", "row function"):
        assert unknown not in text


def test_few_rows_are_announced(told):
    pma.recommend(rare(900, 2))
    (line,) = told()
    assert re.fullmatch(r"recommend: TunaMH for beta: one draw in \d+ reads a row, of 3,000", line)


def test_slow_mixing_is_announced():
    why = pma.recommend(rare(900, 2), verbose=False).recommendation
    slow, usual = (announcement(why._replace(mixing=Mixing(share, 0, 1000))) for share in (0.05, 0.9))
    assert slow == f"{usual}, one effective draw in 20, by a pilot run of 1,000"


def test_many_variables_are_counted(told):
    def regression():
        pm.Normal("y", sum(pm.Normal(f"b{k}") for k in range(8)), 1.0, observed=ROWS)

    pma.recommend(model_with(regression))
    assert told()[0].startswith("recommend: TunaMH for b0, b1, b2, b3, b4 and 3 others: ")


def test_nothing_is_announced(told):
    step = pma.recommend(short(), verbose=False)
    assert told() == []
    assert step.recommendation.otherwise


def test_the_advice_is_followed(told):
    """What is said to help does: the step that is named is `TunaMH` then."""
    step = pma.recommend(model_with(part_of_the_model_is_coupled), vars=["b"])
    assert type(step) is pma.TunaMH

    def without_the_rare():
        pm.Bernoulli("y", logit_p=pm.Normal("level"), observed=np.tile([0, 1], 1500))

    assert type(pma.recommend(model_with(without_the_rare))) is pma.TunaMH


# Copies, and sampling ------------------------------------------------------------------------------


@pytest.mark.parametrize("copier", [deepcopy, lambda s: cloudpickle.loads(cloudpickle.dumps(s))])
def test_copies_keep_the_recommendation(tuna, copier):
    for step in (tuna, pma.recommend(short())):
        other = copier(step)
        assert type(other) is type(step)
        assert other.recommendation == step.recommendation


@pytest.mark.parametrize("cores", [1, 2])
def test_nuts_in_pm_sample(draw, cores):
    idata = draw(short(), pma.recommend(short()), cores=cores, tune=50, draws=50)
    assert idata.posterior["mu"].shape == (2, 50)
    assert abs(float(idata.posterior["mu"].mean())) < 1.0


@pytest.mark.slow("builds and compiles several steps")
def test_a_whole_story(draw, tuna, compiled):
    """The model of the context, and all its continuous variables; PyMC has a step for the discrete one."""
    model, step = logistic(), compiled
    mode = pma.find_mode(model, vars=[model["beta"]])["beta"]
    idata = draw(model, step, draws=300, tune=100)
    sd = idata.posterior["beta"].std(("chain", "draw")).values
    assert np.all(np.abs(idata.posterior["beta"].mean(("chain", "draw")).values - mode) < sd)
    assert idata.posterior["count"].dtype.kind == "i"
    assert step.recommendation == tuna.recommendation._replace(fit=step.mode_fit, mixing=step.mixing)
    parallel = draw(model, step, draws=300, tune=100, cores=2)
    assert idata.posterior["beta"].equals(parallel.posterior["beta"])


@pytest.mark.slow("compiles kernels of two steps")
def test_effects_that_are_no_field_can_be_moved_one_at_a_time(told):
    rng = np.random.default_rng(1)
    group = np.repeat(np.arange(600), 4)

    def two_kinds_of_groups():
        effect = pm.NormalMixture("effect", w=[0.5, 0.5], mu=[-1, 1], sigma=0.3, shape=600)
        pm.Normal("y", effect[group], 3.0, observed=rng.normal(size=len(group)))

    model = model_with(two_kinds_of_groups)
    pma.recommend(model)
    line = told()[0]
    assert "pm.NUTS for all variables" in line or "pm.NUTS for effect" in line
    assert "Or try MetropolisHastings(['effect'], elementwise=True), which moves one of its 600" in line
    step = pma.MetropolisHastings(["effect"], elementwise=True, model=model)
    assert step.steps_per_draw == 600
