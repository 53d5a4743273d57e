"""Posteriors with one mode, for which one start is enough, and posteriors of which that is not known."""

import numpy as np
import pymc as pm
import pytest

from pymc_austerity import Taylor, factorise
from pymc_austerity.mode.mode_fit import fit_mode
from pymc_austerity.mode.search import BlockPosterior, is_log_concave
from pymc_austerity.model.structure.term_structure import TermStructure

N = 3000
RNG = np.random.default_rng(1)
X = RNG.normal(size=(N, 2))
HITS, COUNTS, TIMES = RNG.integers(0, 2, N), RNG.poisson(1.0, N), RNG.gamma(2.0, size=N)
REAL = X @ [1.0, -0.5] + RNG.normal(size=N)


def predictor(beta=pm.Normal, *given, **options):
    level = pm.Normal("level", 0, 5)
    return level + pm.math.dot(X, beta("beta", *given, **options, shape=2))


def hits(eta):
    pm.Bernoulli("y", logit_p=eta, observed=HITS)


def two_terms():
    eta = predictor()
    hits(eta)
    pm.Exponential("t", pm.math.exp(eta), observed=TIMES)


CONCAVE = {
    "logistic": lambda: hits(predictor()),
    "probit": lambda: pm.Bernoulli("y", p=pm.math.invprobit(predictor()), observed=HITS),
    "poisson": lambda: pm.Poisson("y", pm.math.exp(predictor()), observed=COUNTS),
    "normal": lambda: pm.Normal("y", predictor(), 2.0, observed=REAL),
    "flat prior": lambda: hits(predictor(pm.Flat)),
    "logistic prior": lambda: hits(predictor(pm.Logistic, 0, 1)),
    "joint normal prior": lambda: hits(predictor(pm.MvNormal, np.zeros(2), np.eye(2) + 1.0)),
    "two terms": two_terms,
}


def student_errors():
    pm.StudentT("y", nu=4, mu=predictor(), sigma=1.0, observed=REAL)


def scale_in_the_block():
    hits(predictor(pm.Normal, 0, pm.HalfNormal("tau", 1.0)))


def location_in_the_block():
    hits(predictor(pm.Normal, pm.Normal("mu"), 1.0))


def potential():
    hits(predictor())
    pm.Potential("well", -((pm.modelcontext(None)["level"] ** 2 - 1.0) ** 2))


def few_rows_besides():
    hits(predictor())
    pm.Cauchy("z", pm.modelcontext(None)["level"], 1.0, observed=np.array([-3.0, 3.0]))


def one_of_two_terms():
    eta = predictor()
    hits(eta)
    pm.Cauchy("z", eta, 1.0, observed=REAL)


NOT_KNOWN = {
    "heavy tails": student_errors,
    "heavy prior": lambda: hits(predictor(pm.StudentT, nu=3, sigma=1)),
    "truncated prior": lambda: hits(predictor(pm.TruncatedNormal, 0, 1, lower=-3.0)),
    "scale in the block": scale_in_the_block,
    "location in the block": location_in_the_block,
    "free dispersion": lambda: pm.Normal("y", predictor(), pm.HalfNormal("sigma"), observed=REAL),
    "potential": potential,
    "few rows besides": few_rows_besides,
    "one of two terms": one_of_two_terms,
}


def built(make):
    with pm.Model() as model:
        make()
    return model


def known(model, **options):
    return is_log_concave(model, TermStructure(factorise(model, **options)))


def fitted(model):
    structure = TermStructure(factorise(model))
    return fit_mode(model, structure, model.initial_point(), Taylor(), whole_block=True, certify=False)


@pytest.mark.parametrize("make", CONCAVE.values(), ids=CONCAVE)
def test_one_mode(make):
    model = built(make)
    assert known(model)
    point, rng = model.initial_point(), np.random.default_rng(2)
    density = BlockPosterior(TermStructure(factorise(model)), point, whole_block=True).density()
    for _ in range(10):
        hessian = density(rng.normal(size=3))[2]
        assert np.linalg.eigvalsh(hessian).max() < 1e-6 * np.abs(hessian).max()


@pytest.mark.parametrize("make", NOT_KNOWN.values(), ids=NOT_KNOWN)
def test_it_is_not_known(make):
    assert not known(built(make))


def test_a_variable_outside_the_block_decides_nothing():
    model = built(scale_in_the_block)
    assert known(model, vars=["level", "beta"])


def test_what_the_search_starts_from():
    assert "from 1 start (1 mode)" in str(fitted(built(CONCAVE["logistic"])).mode_fit.report)
    assert "from 8 starts (1 mode)" in str(fitted(built(student_errors)).mode_fit.report)


def test_one_start_finds_what_eight_do(monkeypatch):
    model = built(CONCAVE["poisson"])
    one = fitted(model).mode_fit
    monkeypatch.setattr("pymc_austerity.mode.search.is_log_concave", lambda model, structure: False)
    eight = fitted(model).mode_fit
    assert (one.report.n_starts, eight.report.n_starts) == (1, 8)
    sd = np.sqrt(np.diag(np.linalg.inv(one.proxy.precision)))
    assert np.abs(one.proxy.mode - eight.proxy.mode).max() < 1e-8 * sd.min()
