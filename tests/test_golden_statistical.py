"""The comparison of draws with results on file: right samplers pass, wrong ones do not; two real cases."""

import numpy as np
import pytest

from tests.golden import statistical
from tests.golden.hierarchies import Size
from tests.golden.statistical import (
    CASES,
    FILE,
    LEVEL,
    Moments,
    Result,
    agreement,
    as_text,
    compared,
    from_text,
    moments_of,
    quantities,
    run,
)

N_CHAINS, N_DRAWS, N_QUANTITIES = 16, 400, 12


def chains(rng, n_chains=N_CHAINS, rho=0.7):
    """Autoregressive chains of N(0, 1), (quantities, chains, draws)."""
    x = rng.normal(size=(N_DRAWS, N_QUANTITIES, n_chains))
    for k in range(1, N_DRAWS):
        x[k] = rho * x[k - 1] + np.sqrt(1 - rho**2) * x[k]
    return np.moveaxis(x, 0, -1)


def result_of(draws):
    moments = {f"theta[{k}]": moments_of(values) for k, values in enumerate(draws)}
    return Result(draws.shape[1], draws.shape[2], moments, 0.8, 0.9, 12.0, 1.0)


def test_moments():
    draws = np.array([[1.0, 3.0], [2.0, 6.0]])
    found = moments_of(draws)
    assert found.mean == 3.0
    assert found.mean_error == pytest.approx(np.std([2.0, 4.0], ddof=1) / np.sqrt(2))
    assert found.log_sd == pytest.approx(0.5 * np.log(np.mean([2.0, 5.0])))
    assert found.log_sd_error == pytest.approx(0.5 * np.std([2.0, 5.0], ddof=1) / np.sqrt(2) / 3.5)


def test_students_test():
    assert compared((2.0, 1.0), (0.0, 0.0), 5) == pytest.approx((2.0, 0.11611652351681555))
    assert compared((2.0, 0.6), (0.0, 0.8), 5) == pytest.approx((2.0, 0.11611652351681555))
    assert compared((1.0, 0.0), (1.0, 0.0), 5) == (0.0, 1.0)
    assert compared((1.0, 0.0), (2.0, 0.0), 5)[1] == 0.0


@pytest.mark.parametrize("n_chains", [N_CHAINS, N_CHAINS // 2])
def test_right_samplers_pass(n_chains):
    """At most LEVEL of them fail, and no more p-values than there should be are small."""
    rng, n = np.random.default_rng(3), 100
    p = np.array([agreement(result_of(chains(rng, n_chains)), result_of(chains(rng))).p for _ in range(n)])
    assert p.min() > LEVEL
    assert np.mean(p < 0.1) < 0.1 + 3 * np.sqrt(0.1 * 0.9 / n)


@pytest.mark.parametrize(
    ("change", "worst"),
    [
        (lambda x: x + 0.25, "mean of theta[3]"),
        (lambda x: 1.25 * x, "sd of theta[3]"),
        (lambda x: np.where(x > 1.0, 1.0, x), "sd of theta[3]"),
    ],
    ids=["shifted", "wider", "cut"],
)
def test_planted_faults_are_found(change, worst):
    one, two = (chains(np.random.default_rng(seed)) for seed in (4, 5))
    assert agreement(result_of(one), result_of(two))
    two[3] = change(two[3])
    found = agreement(result_of(one), result_of(two))
    assert not found
    assert found.worst == worst


def test_other_quantities_do_not_agree():
    one = result_of(chains(np.random.default_rng(6)))
    fewer = one._replace(moments={k: v for k, v in one.moments.items() if k != "theta[2]"})
    assert agreement(one, fewer).worst == "not in both: theta[2]"
    assert not agreement(one, fewer)


def test_a_number_that_is_not_finite_does_not_agree():
    one = result_of(chains(np.random.default_rng(6)))
    nan = one._replace(moments={**one.moments, "theta[2]": Moments(*4 * [np.nan])})
    assert not agreement(one, nan)


def test_results_are_written_and_read():
    one = result_of(chains(np.random.default_rng(7)))
    again = from_text(as_text({"plain": one, "other": one}))["other"]
    assert again._replace(moments={}) == one._replace(moments={})
    np.testing.assert_allclose(list(again.moments.values()), list(one.moments.values()), rtol=1e-5)


def test_what_is_compared():
    """Theta, scales by their logarithms, and effects of five groups."""
    rng = np.random.default_rng(8)
    posterior = {
        "beta": rng.normal(size=(2, 7, 2)),
        "tau": rng.gamma(2.0, size=(2, 7)),
        "u": rng.normal(size=(2, 7, 9, 2)),
        "z": rng.normal(size=(2, 7, 9)),
    }
    found = quantities(posterior, Size(90, 9))
    assert [*found][:3] == ["beta[0]", "beta[1]", "log tau"]
    assert [*found][3:] == [f"u[{g}, {k}]" for g in (0, 2, 4, 6, 8) for k in (0, 1)]
    np.testing.assert_array_equal(found["log tau"], np.log(posterior["tau"]))
    np.testing.assert_array_equal(found["u[4, 1]"], posterior["u"][:, :, 4, 1])


# What a run prints, and its exit code ----------------------------------------------------------------


@pytest.fixture
def on_file(tmp_path, monkeypatch):
    """Results on file of two cases, and what `run` gives in place of chains, which a test may change."""
    given = {
        name: result_of(chains(np.random.default_rng(9)))._replace(cost=0.002) for name in ("plain", "slopes")
    }
    given["slopes"] = given["slopes"]._replace(cost=0.003)
    monkeypatch.setattr(statistical, "FILE", tmp_path / "results.json")
    monkeypatch.setattr(statistical, "run", lambda name, seed: given[name])
    monkeypatch.setattr(statistical, "CASES", dict.fromkeys(given))
    assert statistical.main(["--write"]) == 0
    return given


def test_what_is_told_of_agreement(on_file, capsys):
    assert from_text(statistical.FILE.read_text())["slopes"].cost == 1.5
    capsys.readouterr()
    assert statistical.main(["--compare"]) == 0
    printed = capsys.readouterr().out
    assert (
        "slopes         acceptance 0.8 (0.8), effects acceptance 0.9 (0.9), rows 12 (12), cost 1.5 (1.5)"
        in printed
    )
    assert "DIFFERS" not in printed


def test_one_that_differs_is_an_error(on_file, capsys):
    shifted = chains(np.random.default_rng(9)) + 1.0
    on_file["slopes"] = result_of(shifted)
    assert statistical.main(["--compare", "--only", "plain"]) == 0
    assert statistical.main(["--compare", "--only", "s*"]) == 1
    assert "DIFFERS        mean of theta" in capsys.readouterr().out


def test_cases_that_are_not_there(on_file, capsys, monkeypatch):
    with pytest.raises(SystemExit):
        statistical.main(["--only", "tuba*"])
    assert "there is no such case; there are plain, slopes" in capsys.readouterr().err
    monkeypatch.setattr(statistical, "CASES", dict.fromkeys(["plain", "new"]))
    with pytest.raises(SystemExit):
        statistical.main(["--compare"])
    assert "results.json has no new: use --write" in capsys.readouterr().err


# The results on file --------------------------------------------------------------------------------


def test_every_case_is_on_file():
    known = from_text(FILE.read_text())
    assert list(known) == list(CASES)
    for name, result in known.items():
        assert result.chains >= 16, name
        assert len(result.moments) >= 9
        assert all(
            np.isfinite(m).all() and m.mean_error > 0.0 < m.log_sd_error for m in result.moments.values()
        )
    assert known["plain"].cost == 1.0


@pytest.mark.slow("16 chains of two models")
@pytest.mark.parametrize("name", ["plain", "slopes"])
def test_draws_are_those_on_file(name):
    """Short runs; all of it, at full length, is `python -m tests.golden.statistical --compare`."""
    found, known = run(name, draws=300, seed=3), from_text(FILE.read_text())[name]
    print(statistical.told(name, found, known), agreement(found, known))
    assert agreement(found, known)
    # The planted fault: effects that are drawn in units of another scale.
    mean = known.moments["u[0]"]
    off = {**known.moments, "u[0]": mean._replace(log_sd=mean.log_sd + np.log(1.5))}
    assert not agreement(found, known._replace(moments=off))
