"""`compare`: what is right agrees, what is wrong differs, and what happened is told."""

import json
import pickle
import signal
import sys
import warnings
from copy import deepcopy
from dataclasses import replace

import numpy as np
import pymc as pm
import pytest
from xarray import Dataset, DataTree

from pymc_austerity import AusterityMH, Laplace, MetropolisHastings
from pymc_austerity.exceptions import SubsamplingWarning, UnsuitableError, warn
from pymc_austerity.proposals import AdaptiveRandomWalk
from pymc_austerity.report import compare
from pymc_austerity.report.run import named
from tests.report.conftest import N

compare_module = sys.modules["pymc_austerity.report.compare"]  # the function has the name of its module
START = {"beta": np.zeros(2)}
QUICK = {"tune": 20, "chains": 2, "n_pairs": 0, "random_seed": 1, "initvals": START}
STACKED = DataTree.from_dict({"posterior": Dataset({"beta": (("sample", "k"), np.zeros((9, 2)))})})


def row_of(comparison, name):
    return comparison.to_dataframe().loc[name]


@pytest.fixture
def of_hot(normal_model, steps):
    """A short comparison of one step."""
    return lambda **options: compare(normal_model, {"hot": steps["hot"]}, **{**QUICK, **options})


# Verdicts -------------------------------------------------------------------------------------------


@pytest.mark.slow("samples with another step, too")
def test_a_right_step_agrees(comparison):
    assert comparison.verdicts["right"] == "agrees", comparison


@pytest.mark.slow("a planted fault, in steps of its own")
def test_a_wrong_likelihood_is_noticed(comparison):
    """Temperature 0.64 makes posterior sds 0.8 times as large."""
    # Planted fault: a tempered likelihood.
    assert comparison.verdicts["hot"] == "differs", comparison
    row = row_of(comparison, "hot")
    assert abs(row["sd_ratio"] - 0.8) < 4 * row["sd_ratio_error"]
    assert "the sd of beta[" in row["reason"]


@pytest.mark.slow("a planted fault, in steps of its own")
def test_a_large_epsilon_is_noticed(comparison):
    """Planted fault: a tolerance that is too large."""
    assert comparison.verdicts["sloppy <b>"] == "differs", comparison
    assert row_of(comparison, "sloppy <b>")["sd_ratio"] > 1.5


def test_normal_batch_means_do_not_make_a_step_cheap(comparison):
    """What is too wide has no effective draws of the posterior."""
    row, (_, _, probe) = row_of(comparison, "sloppy <b>"), comparison.results[2]
    assert row["normality"] == "normal enough"
    assert row_of(comparison, "right")["normality"] == "not needed"
    assert probe.log_ratios["log_ratios"].sizes["pair"] == 3
    assert row["too_wide"]
    assert "By a heuristic of the design theory" in probe.reason
    assert not row_of(comparison, "right")["too_wide"]


def test_a_step_that_fails_is_part_of_the_result(comparison):
    assert comparison.verdicts["failing"] == "failed"
    assert comparison.failures == {"failing": "RuntimeError: planted <failure> & more"}
    assert set(comparison.runs) == {"right", "hot", "sloppy <b>"}
    assert row_of(comparison, "failing")["draws"] == 0


def test_warnings_are_collected_once(comparison):
    run = comparison.results[0][0]
    assert run.messages == ("planted warning | with a bar",)
    assert "1 warning while sampling" in repr(comparison)


# The table ------------------------------------------------------------------------------------------


def test_rows_and_costs(comparison):
    table = comparison.to_dataframe()
    assert list(table.index) == ["exact (reference)", "right", "hot", "sloppy <b>", "failing"]
    for name in ("exact (reference)", "right", "hot"):
        assert table.loc[name, "draws"] == 4000
        # The exact rule evaluates all terms at each draw.
        assert table.loc[name, "terms"] == 4000 * N
        assert table.loc[name, "fraction_used"] == 1.0
    share = table.loc["sloppy <b>", "terms"] / (4000 * N)
    assert 0.05 < share < 0.9
    np.testing.assert_allclose(table.loc["sloppy <b>", "fraction_used"], share)
    ok = table.iloc[:4]
    np.testing.assert_allclose(ok["terms_per_effective_draw"], ok["terms"] / ok["ess"])
    np.testing.assert_allclose(ok["ess_per_second"], ok["ess"] / ok["seconds"])
    assert np.all(ok[["seconds", "tuning_seconds"]] > 0.0)
    assert np.all(ok["rhat"] < 1.05)


def test_draws_are_stamped(comparison):
    for idata in comparison.runs.values():
        assert idata.attrs["pymc_austerity_version"]
        json.loads(idata.attrs["pymc_austerity_steps"])
    assert comparison.reference.attrs["pymc_austerity_steps"]


def test_a_seed_gives_the_same_draws(of_hot, comparison):
    results = [of_hot(reference=comparison.reference, budget={"draws": 30}) for _ in range(2)]
    for group in ("posterior", "sample_stats"):
        one, two = (r.runs["hot"][group].to_dataset() for r in results)
        assert one.equals(two)


# Budgets --------------------------------------------------------------------------------------------


def test_a_budget_of_terms_is_kept(of_hot):
    table = of_hot(budget={"terms": 100 * N}).to_dataframe()
    assert list(table["draws"]) == [100, 100]
    assert list(table["terms"]) == [100 * N, 100 * N]


def test_few_draws_are_made_even_if_the_budget_is_spent(of_hot):
    result = of_hot(reference_budget={"draws": 50}, budget={"terms": 10})
    assert list(result.to_dataframe()["draws"]) == [100, 40]
    (note,) = result.results[0][0].notes
    assert "a chain makes at least 20 draws" in note


def test_a_budget_of_seconds_ends_at_max_draws(of_hot, comparison):
    result = of_hot(reference=comparison.reference, budget=1e6, max_draws=25)
    assert result.to_dataframe().loc["hot", "draws"] == 50
    (note,) = result.results[0][0].notes
    assert note.startswith("Stopped at max_draws = 25 draws of each chain")


def test_a_step_that_counts_no_terms_cannot_have_a_budget_of_them(normal_model, comparison):
    with normal_model:
        step = pm.Slice()
    options = {"reference": comparison.reference, **QUICK}
    result = compare(normal_model, {"slice": step}, budget={"terms": 1e5}, **options)
    assert "does not count the local terms" in result.failures["slice"]


@pytest.mark.parametrize(
    ("at", "chains"),
    [(15, 2), (30, 2), (75, 2), (15, 1), (21, 1)],
    ids=["while tuning", "first chain", "last chain", "only chain, while tuning", "only chain, no draw"],
)
@pytest.mark.covering(1)
def test_an_interrupt_by_the_user_ends_the_comparison(ctrl_c, normal_model, comparison, at, chains):
    class Interrupted(MetropolisHastings):
        made = 0

        def step(self, point):
            Interrupted.made += 1
            if Interrupted.made == at:
                signal.raise_signal(signal.SIGINT)
            return super().step(point)

    steps = {name: Interrupted(model=normal_model) for name in ("one", "two")}
    options = {"reference": comparison.reference, **QUICK, "chains": chains}
    with pytest.raises(KeyboardInterrupt):
        compare(normal_model, steps, budget={"draws": 20}, **options)
    assert Interrupted.made <= at + 1


def test_one_draw_without_tuning(of_hot):
    result = of_hot(budget={"draws": 1}, tune=0)
    assert result.verdicts == {"hot": "cannot tell"}
    assert np.isnan(row_of(result, "hot")["ess_per_second"])
    assert result.to_markdown()


def test_a_comparison_can_be_pickled_without_the_data(comparison):
    copy = pickle.loads(pickle.dumps(comparison))
    assert copy.verdicts == comparison.verdicts
    for run, _, probe in comparison.results:
        if probe.log_ratios is not None:
            assert max(x.nbytes for x in probe.log_ratios["log_ratios"].data_vars.values()) < 8 * N
        assert len(pickle.dumps(run.configuration)) < 8 * N


# References -----------------------------------------------------------------------------------------


def test_draws_may_be_the_reference(of_hot, comparison):
    result = of_hot(reference=comparison.reference, budget={"draws": 30})
    table = result.to_dataframe()
    assert list(table.index) == ["given (reference)", "hot"]
    assert result.verdicts == {"hot": "cannot tell"}  # with 30 draws
    assert np.isnan(table.loc["given (reference)", "seconds"])


def test_given_draws_of_another_shape(of_hot):
    posterior = {"beta": (("chain", "draw", "k"), np.zeros((2, 30, 3)))}
    other = DataTree.from_dict({"posterior": Dataset(posterior)})
    result = of_hot(reference=other, budget={"draws": 30})
    assert result.verdicts == {"hot": "cannot tell"}
    assert "could not be compared with the reference" in row_of(result, "hot")["reason"]


def test_nuts_may_be_the_reference(of_hot):
    result = of_hot(reference="nuts", budget={"draws": 30}, initvals=None)
    row = row_of(result, "nuts (reference)")
    leapfrogs = float(result.reference["sample_stats"]["n_steps"].sum())
    assert row["terms"] == leapfrogs * N
    assert result.settings.initvals is None


def test_a_reference_that_fails_is_told(of_hot, steps, monkeypatch):
    def fail(*_):
        raise UnsuitableError("planted.")

    monkeypatch.setattr(compare_module, "exact_step", fail)
    with pytest.raises(ValueError, match=r'not possible for this model. Give reference="nuts".*planted'):
        of_hot(budget={"draws": 30})
    broken = deepcopy(steps["hot"])
    monkeypatch.setattr(compare_module, "exact_step", lambda *_: (broken, []))
    monkeypatch.setattr(broken, "step", fail)
    result = of_hot(budget={"draws": 30})
    assert result.reference is None
    assert result.verdicts == {"hot": "cannot tell"}
    assert "the reference failed (UnsuitableError: planted." in row_of(result, "hot")["reason"]
    assert "**The reference failed**" in result.to_markdown()
    assert "The reference failed." in result.to_html()


def test_a_reference_is_a_walk_where_no_normal_distribution_fits():
    """Three positives in 3,000 rows for 15 coefficients: that was not noticed."""
    rng = np.random.default_rng(1)
    x = np.column_stack([np.ones(3000), rng.normal(size=(3000, 14))])
    y = np.isin(np.arange(3000), rng.choice(3000, 3, replace=False)).astype(float)
    with pm.Model() as rare:
        pm.Bernoulli("y", logit_p=pm.math.dot(x, pm.Normal("beta", 0, 2, shape=15)), observed=y)
    with pytest.warns(SubsamplingWarning, match="far from the normal distribution"):
        step, (note,) = compare_module.exact_step(rare)
    assert isinstance(step.recipe.proposal, AdaptiveRandomWalk)
    assert "independent draws would be accepted at a rate of about 0.0" in note


def test_a_reference_beside_a_step_for_discrete_variables(normal_model):
    """Its proposal is fitted all the same, without a polynomial."""
    with pm.Model() as mixed:
        pm.Normal("y", pm.Normal("a") + pm.Bernoulli("kind", 0.5), observed=np.linspace(-1.0, 1.0, N))
    for model in (normal_model, mixed):
        step, notes = compare_module.exact_step(model)
        assert isinstance(step.recipe.proposal, Laplace)
        assert notes == []


def test_what_runs_is_told(of_hot, caplog):
    with caplog.at_level("INFO", logger="pymc.austerity"):
        of_hot(budget={"draws": 5}, chains=1)
    told = [r.getMessage() for r in caplog.records if r.getMessage().startswith("compare")]
    assert told == ["compare: 1 of 2, the reference", "compare: 2 of 2, hot"]


# Several steps, names, errors -----------------------------------------------------------------------


def test_lists_of_steps_are_named_by_class_and_parameters(normal_model, steps):
    sloppy, hot = steps["sloppy <b>"], steps["hot"]
    walk = "AdaptiveRandomWalk()"
    assert list(named([sloppy, hot, [hot]], normal_model)) == [
        f"AusterityMH(epsilon=0.3, batch_size=100, {walk})",
        f"MetropolisHastings({walk}, temperature=0.64) #1",
        f"MetropolisHastings({walk}, temperature=0.64) #2",
    ]


def test_steps_are_checked(normal_model, steps):
    with normal_model:
        population = pm.DEMetropolis()
    for given, message in (
        ({}, "steps is empty"),
        ("tuna", "steps must be a dict"),
        ({"a": 3}, "must be a step method"),
        ({"a": []}, "must be a step method"),
        ([AusterityMH], "must be a step method"),
        ({"exact (reference)": steps["hot"]}, r"A step cannot be called 'exact \(reference\)'"),
        ({"population": population}, "side by side"),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            compare(normal_model, given)


def test_the_failure_of_a_reference_is_not_that_of_a_step(comparison):
    run, *rest = comparison.results[3]
    failed = replace(comparison.standard, error="of the reference")
    both = replace(comparison, results=((replace(run, name="exact"), *rest),), standard=failed)
    assert both.failures == {"exact": run.error, "exact (reference)": "of the reference"}


def test_a_warning_of_another_library_does_not_cost_the_mode(normal_model, monkeypatch):
    def chatty(model, vars):
        warnings.warn("planted", UserWarning, stacklevel=2)
        return START

    def far(model, vars):
        warn("planted: not reached.")

    notes = []
    monkeypatch.setattr(compare_module, "find_mode", chatty)
    with pytest.warns(UserWarning, match="planted"):
        assert compare_module._start(normal_model, "mode", notes, 30) is START
    assert not notes
    monkeypatch.setattr(compare_module, "find_mode", far)
    assert compare_module._start(normal_model, "mode", notes, 30) is None
    assert "no mode was found: planted: not reached." in notes[0]


def test_steps_of_other_models_are_refused(steps):
    with pm.Model() as other:
        pm.Normal("beta", shape=2)
    with pytest.raises(ValueError, match="moves 'beta' of another model"):
        compare(other, steps)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"reference": "magic"}, ValueError, 'reference must be "exact", "nuts" or a DataTree'),
        ({"reference": DataTree()}, ValueError, "reference has no group posterior"),
        ({"reference": Dataset()}, ValueError, "with draws, got Dataset"),
        ({"reference": STACKED}, ValueError, "must have the dimensions chain and draw.*sample"),
        ({"budget": "1 minute"}, TypeError, "budget must be a number of seconds"),
        ({"budget": {"hours": 1}}, TypeError, "budget must be a number of seconds"),
        ({"budget": -1}, ValueError, "seconds must be a positive number, got -1"),
        ({"budget": {"draws": 1.5}}, ValueError, "draws must be a positive integer, got 1.5"),
        ({"reference_budget": 0}, ValueError, "reference_budget: seconds"),
        ({"chains": 0}, ValueError, "chains must be an integer of at least 1, got 0"),
        ({"tune": -1}, ValueError, "tune must be"),
        ({"n_pairs": 1.5}, ValueError, "n_pairs must be"),
        ({"max_draws": 0}, ValueError, "max_draws must be"),
        ({"tolerance": 0}, ValueError, "tolerance must be a positive number"),
        ({"var_names": ["gamma"]}, ValueError, "var_names must be some of beta, got"),
        ({"initvals": "prior"}, ValueError, 'initvals must be "mode"'),
        ({"initvals": {"gamma": 1.0}}, ValueError, "initvals has values of gamma, no free variables"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, dict) else "",
)
def test_options_are_checked(normal_model, steps, options, error, message):
    with pytest.raises(error, match=message):
        compare(normal_model, steps, **options)


def test_a_reference_without_a_variable_is_refused(normal_model, steps, comparison):
    lacking = DataTree.from_dict(
        {"posterior": comparison.reference["posterior"].to_dataset().drop_vars("beta")}
    )
    with pytest.raises(ValueError, match="'beta' is not in the posterior of reference"):
        compare(normal_model, steps, reference=lacking)


@pytest.mark.slow("compiles three engines, and NUTS twice")
def test_compound_steps_and_parts_that_are_left_to_pymc():
    rng = np.random.default_rng(3)
    with pm.Model() as model:
        a, b = pm.Normal("a", 0, 10), pm.Normal("b", 0, 10)
        kind = pm.Bernoulli("kind", 0.5)
        pm.Normal("y", a + kind, pm.math.exp(b), observed=rng.normal(size=N))
    both = {
        "two": [AusterityMH([a], steps_per_draw=3, model=model), MetropolisHastings([b], model=model)],
        "one": AusterityMH([a], model=model),
    }
    result = compare(model, both, reference="nuts", budget={"draws": 40}, **{**QUICK, "initvals": None})
    assert not result.failures
    run = result.results[0][0]
    used = run.idata["sample_stats"]["n_used"].values
    np.testing.assert_allclose(run.terms, 3 * used[..., 0].sum() + used[..., 1].sum())
    assert result.results[1][0].terms == result.runs["one"]["sample_stats"]["n_used"].sum()
    assert set(result.to_dataframe()["shift_of"]) <= {"", "a", "b", "kind"}


def test_the_exact_reference_is_set_up_within_the_budget(monkeypatch):
    """Without one a search for its mode might not end."""
    from pymc_austerity import work
    from pymc_austerity.recommendation import evidence
    from pymc_austerity.report.compare import exact_step

    seen = []
    survey = evidence.survey
    monkeypatch.setattr(evidence, "survey", lambda *a, **k: seen.append(work._OPEN.get()) or survey(*a, **k))
    rng = np.random.default_rng(1)
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("mu"), observed=rng.normal(size=1500))
    exact_step(model)
    assert seen
    assert None not in seen
