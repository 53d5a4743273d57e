"""SCIR through `pm.sample`: posteriors in closed form, and the predicted inflation by minibatches."""

import arviz as az
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import special, stats

from pymc_austerity.step_methods.categorical_gibbs import MinibatchCategoricalGibbs
from pymc_austerity.step_methods.gamma.scir import SCIR
from pymc_austerity.step_methods.gamma.variable_chain import VariableChain
from tests.statistical.errors import LIMIT, error_of_mean

pytestmark = pytest.mark.filterwarnings("ignore:Minibatches of:pymc_austerity.SubsamplingWarning")
K = 4
SHARES = np.array([0.5, 0.3, 0.15, 0.05])


def categorical(n, rng):
    z = rng.choice(K, n, p=SHARES)
    with pm.Model() as model:
        pm.Categorical("y", pm.Dirichlet("x", np.full(K, 0.5)), observed=z)
    a = 0.5 + np.bincount(z, minlength=K)
    return model, [stats.beta(a_j, a.sum() - a_j) for a_j in a]


def multinomial(n, rng):
    table = rng.multinomial(6, SHARES, size=n)
    with pm.Model() as model:
        pm.Multinomial("y", 6, pm.Dirichlet("x", np.full(K, 0.5)), observed=table)
    a = 0.5 + table.sum(axis=0)
    return model, [stats.beta(a_j, a.sum() - a_j) for a_j in a]


def poisson(n, rng):
    exposure = rng.gamma(2.0, 1.0, n)
    y = rng.poisson(0.3 * exposure)
    with pm.Model() as model:
        pm.Poisson("y", pm.Gamma("x", 2.0, 3.0) * exposure, observed=y)
    return model, [stats.gamma(2.0 + y.sum(), scale=1.0 / (3.0 + exposure.sum()))]


def exponential(n, rng):
    """In three groups. There is no noise in the shapes but for how many rows of a group are drawn."""
    group, y = rng.choice(3, n), rng.exponential(size=n)
    with pm.Model() as model:
        pm.Exponential("y", pm.Exponential("x", 2.0, shape=3)[group], observed=y)
    shape, rate = 1.0 + np.bincount(group), 2.0 + np.bincount(group, y)
    return model, [stats.gamma(a, scale=1.0 / b) for a, b in zip(shape, rate, strict=True)]


def precision(n, rng):
    """Every other row is known twice as precisely."""
    y, weight = rng.normal(size=n), np.tile([1.0, 2.0], n // 2)
    with pm.Model() as model:
        pm.Normal("y", 0.1, tau=pm.Gamma("x", 2.0, 3.0) * weight, observed=y)
    return model, [stats.gamma(2.0 + n / 2, scale=1.0 / (3.0 + 0.5 * (weight * (y - 0.1) ** 2).sum()))]


def beta_binomial(n, rng):
    trials = rng.integers(1, 9, n)
    y = rng.binomial(trials, 0.2)
    with pm.Model() as model:
        pm.Binomial("y", trials, pm.Beta("x", 1.0, 2.0), observed=y)
    return model, [stats.beta(1.0 + y.sum(), 2.0 + (trials - y).sum())]


REFERENCES = [categorical, multinomial, poisson, exponential, precision, beta_binomial]
OPTIONS = {
    "chains": 1,
    "cores": 1,
    "tune": 50,
    "progressbar": False,
    "quiet": True,
    "compute_convergence_checks": False,
}


def sampled(model, step, draws, seed=7):
    with model:
        found = pm.sample(draws=draws, step=step, random_seed=seed, **OPTIONS)
    x = found.posterior["x"].values[0]
    return x.reshape(draws, -1), found.sample_stats


def ks_pvalues(x, laws):
    return [stats.kstest(column, law.cdf).pvalue for column, law in zip(x.T, laws, strict=True)]


def effective_size(draws, step_size):
    """A linear process: correlations are e^(-h lag)."""
    rho = np.exp(-step_size)
    return draws * (1.0 - rho) / (1.0 + rho)


def compare_with_theory(x, laws, predicted, n_effective):
    """Ratios of means (in Monte Carlo errors) and of standard deviations to what they should be."""
    mean, sd = np.array([law.mean() for law in laws]), np.array([law.std() for law in laws])
    errors = (x.mean(axis=0) - mean) / (x.std(axis=0) / np.sqrt(n_effective))
    return errors, x.std(axis=0) / sd / predicted


@pytest.mark.parametrize("define", REFERENCES, ids=lambda define: define.__name__)
def test_exact_statistics(define):
    """Full batch: draws six relaxation times apart have the law of the posterior."""
    model, laws = define(200, np.random.default_rng(200))
    with model:
        step = SCIR([model["x"]], step_size=6.0)
    x, found = sampled(model, step, 1000)
    assert min(ks_pvalues(x, laws)) > 1e-3
    assert np.all(found["n_used"] == 0)
    assert np.all(found["variance_inflation"] == 1.0)


@pytest.mark.parametrize(
    ("define", "n"),
    [
        *((define, 2000) for define in REFERENCES),
        pytest.param(poisson, 1_000_000, marks=pytest.mark.full_size("a million rows in place of 2,000")),
    ],
)
def test_minibatches(define, n):
    """The mean is that of the posterior; the standard deviation is larger as predicted, within 12 %."""
    h, draws = 1.0, 2500
    model, laws = define(n, np.random.default_rng(n))
    with model:
        step = SCIR([model["x"]], step_size=h, batch_size=100)
    x, found = sampled(model, step, draws)
    predicted = np.sqrt(float(found["variance_inflation"].mean()))
    errors, ratios = compare_with_theory(x, laws, predicted, effective_size(draws, h))
    assert np.all(np.abs(errors) < 4.0), errors
    assert np.all(np.abs(ratios - 1.0) < 0.12), ratios
    if define not in (precision,):  # there every row has the same statistic
        assert predicted > 1.3


def test_a_forgotten_inflation_is_noticed():
    """Planted fault: predictions without the noise of minibatches."""
    model, laws = categorical(2000, np.random.default_rng(2000))
    with model:
        step = SCIR([model["x"]], step_size=1.0, batch_size=100)
    x, _ = sampled(model, step, 2000)
    _, ratios = compare_with_theory(x, laws, 1.0, effective_size(2000, 1.0))
    assert np.all(ratios > 1.12)


def test_a_wrong_scale_of_minibatches_is_noticed(monkeypatch):
    """Planted fault: counts of a minibatch without the factor N / n."""
    import pymc_austerity.step_methods.gamma.variable_chain as module

    plus = module.Totals.plus
    monkeypatch.setattr(module.Totals, "plus", lambda self, other, weight=1.0: plus(self, other, 1.0))
    model, laws = poisson(2000, np.random.default_rng(2000))
    with model:
        step = SCIR([model["x"]], step_size=1.0, batch_size=100)
    x, _ = sampled(model, step, 1000)
    errors, _ = compare_with_theory(x, laws, 1.0, effective_size(1000, 1.0))
    assert np.all(np.abs(errors) > 4.0)


def test_anchor_takes_the_noise_away():
    """Statistics of observed data do not change, so their differences from the anchor are zero."""
    model, laws = beta_binomial(2000, np.random.default_rng(1))
    with model:
        step = SCIR([model["x"]], step_size=6.0, batch_size=20, control_variate="anchor")
    x, found = sampled(model, step, 1000)
    assert min(ks_pvalues(x, laws)) > 1e-3
    np.testing.assert_allclose(found["variance_inflation"], 1.0)


@pytest.mark.slow("10,000 draws or more, each a step of Python")
def test_estimated_rates_have_the_two_errors_that_are_told():
    """Minibatched b: the mean is too large by c^2 h / 2, the sd by sqrt(1 + tanh(h / 2) a c^2)."""
    h, draws, n = 0.5, 15_000, 400
    rng = np.random.default_rng(4)
    y = rng.exponential(size=n)
    with pm.Model() as model:
        pm.Exponential("y", pm.Gamma("x", 1.0, 1.0), observed=y)
        with pytest.warns(UserWarning, match="is estimated from minibatches"):
            step = SCIR([model["x"]], step_size=h, batch_size=20, minibatch_rate=True)
    x, found = sampled(model, step, draws)
    law = stats.gamma(1.0 + n, scale=1.0 / (1.0 + y.sum()))
    c2 = n * (n - 20) / 20 * y.var(ddof=1) / (1.0 + y.sum()) ** 2
    predicted = np.sqrt(1.0 + np.tanh(h / 2) * (1.0 + n) * c2)
    np.testing.assert_allclose(np.sqrt(found["variance_inflation"].mean()), predicted, rtol=0.03)
    np.testing.assert_allclose(x.std() / law.std(), predicted, rtol=0.06)
    error = x.std() / np.sqrt(effective_size(draws, h))
    expected = law.mean() * (1.0 + c2 * h / 2)
    assert abs(x.mean() - expected) < 4.0 * error
    assert abs(x.mean() - law.mean()) > 4.0 * error


def test_frozen_drift_of_a_gamma_variable():
    """Not conjugate: y ~ N(theta, 1). The bias falls with the step size."""
    y = np.random.default_rng(1).normal(3.0, 1.0, 20)
    grid = np.linspace(1e-3, 6.0, 20_000)
    density = stats.gamma(2.0).logpdf(grid) - 0.5 * ((y[:, None] - grid) ** 2).sum(axis=0)
    weight = np.exp(density - density.max())
    weight /= weight.sum()
    mean = weight @ grid
    sd = np.sqrt(weight @ (grid - mean) ** 2)
    found = {}
    for h in (1.0, 0.5, 0.1):
        with pm.Model() as model:
            pm.Normal("y", pm.Gamma("x", 2.0, 1.0, initval=3.0), 1.0, observed=y)
            with pytest.warns(UserWarning, match="frozen"):
                step = SCIR([model["x"]], step_size=h, shift=30.0, steps_per_draw=max(1, round(0.5 / h)))
        x, _ = sampled(model, step, 4000)
        found[h] = x.std() / sd
        assert abs(x.mean() - mean) < 0.1 * sd
    assert abs(found[0.1] - 1.0) < 0.05
    assert found[0.1] < found[0.5] < found[1.0]
    assert found[1.0] > 1.2  # the bias of a drift frozen for too long


@pytest.mark.slow("15,000 draws, each a step of Python")
def test_frozen_drift_of_a_dirichlet_variable():
    """y ~ Bernoulli(w_0) with three components: w_0 and w_1 / (w_1 + w_2) are independent beta variables."""
    y = np.arange(30) < 10
    with pm.Model() as model:
        pm.Bernoulli("y", pm.Dirichlet("x", np.array([1.0, 1.0, 2.0]))[0], observed=y)
        with pytest.warns(UserWarning, match="frozen"):
            step = SCIR([model["x"]], step_size=0.1, shift=40.0, steps_per_draw=8)
    x, _ = sampled(model, step, 3000)
    pairs = [(x[:, 0], stats.beta(11.0, 23.0)), (x[:, 1] / (x[:, 1] + x[:, 2]), stats.beta(1.0, 2.0))]
    means = [(u.mean() - law.mean()) / (law.std() / np.sqrt(float(az.ess(u[None])))) for u, law in pairs]
    ratios = np.array([u.std() / law.std() for u, law in pairs])
    assert np.all(np.abs(means) < 4.0), means
    assert np.all(np.abs(ratios - 1.0) < 0.1), ratios


@pytest.mark.slow("10,000 draws or more, each a step of Python")
def test_weights_of_a_mixture_beside_a_step_for_allocations():
    """On a minibatch of allocations that is drawn anew the sd is larger, as predicted."""
    h, draws, n = 0.2, 8000, 2000
    rng = np.random.default_rng(6)
    y = np.where(rng.random(n) < 0.3, rng.normal(-1.2, 1.0, n), rng.normal(1.2, 1.0, n))
    log_odds = stats.norm(-1.2, 1.0).logpdf(y) - stats.norm(1.2, 1.0).logpdf(y)
    grid = np.linspace(0.2, 0.4, 4001)
    density = np.array([np.logaddexp(np.log(w) + log_odds, np.log1p(-w)).sum() for w in grid])
    weight = np.exp(density - density.max())
    weight /= weight.sum()
    mean = weight @ grid
    sd = np.sqrt(weight @ (grid - mean) ** 2)
    with pm.Model():
        w = pm.Dirichlet("x", np.ones(2), initval=[0.3, 0.7])
        z = pm.Categorical("z", w, shape=n, initval=(y > 0).astype(int))
        pm.Normal("y", pt.as_tensor([-1.2, 1.2])[z], 1.0, observed=y)
        steps = [SCIR([w], step_size=h, batch_size=100), MinibatchCategoricalGibbs([z])]
        found = pm.sample(draws=draws, step=steps, random_seed=3, var_names=["x"], **OPTIONS)
    x = found.posterior["x"].values[0, :, 0]
    predicted = np.sqrt(float(found.sample_stats["variance_inflation"].mean()))
    assert predicted > 1.3
    error = x.std() / np.sqrt(float(az.ess(x[None])))
    assert abs(x.mean() - mean) < 4.0 * error
    assert abs(x.std() / sd / predicted - 1.0) < 0.12


# Beside latent allocations ----------------------------------------------------------------------------

WORDS = np.array([0, 0, 1, 2, 2, 2])


def law_of_partitions(beta):
    """Probabilities of which of six tokens are in the topic of the first; topics are integrated out."""
    states = (np.arange(2**5)[:, None] >> np.arange(5)) & 1
    z = np.concatenate([np.zeros((2**5, 1), dtype=int), states], axis=1)
    log_p = np.zeros(2**5)
    for topic in range(2):
        counts = np.stack([((z == topic) & (w == WORDS)).sum(axis=1) for w in range(3)], axis=1)
        log_p += special.gammaln(counts + beta).sum(axis=1) - special.gammaln(counts.sum(axis=1) + 3 * beta)
    return np.exp(log_p - special.logsumexp(log_p))


@pytest.mark.slow("10,000 draws or more, each a step of Python")
def test_topics_whose_number_of_tokens_changes():
    expected = law_of_partitions(0.5)
    states = ((np.arange(2**5)[:, None] >> np.arange(5)) & 1).astype(float)
    with pm.Model():
        phi = pm.Dirichlet("phi", np.full(3, 0.5), shape=(2, 3))
        z = pm.Categorical("z", p=[0.5, 0.5], shape=6)
        pm.Categorical("y", p=phi[z], observed=WORDS)
        steps = [SCIR([phi], step_size=0.5), MinibatchCategoricalGibbs([z])]
        found = pm.sample(10_000, step=steps, random_seed=3, **OPTIONS)
    z = found.posterior["z"].values[0]
    apart = (z[:, 1:] != z[:, :1]).astype(float)
    # Which tokens are apart from the first, and how many.
    figures = [(apart[:, j], states[:, j]) for j in range(5)]
    figures += [(apart.sum(axis=1), states.sum(axis=1)), (apart.sum(axis=1) ** 2, states.sum(axis=1) ** 2)]
    z_scores = np.array([abs(x.mean() - expected @ f) / error_of_mean(x) for x, f in figures])
    assert z_scores.max() < LIMIT, z_scores
    other = law_of_partitions(2.0)
    assert max(abs(x.mean() - other @ f) / error_of_mean(x) for x, f in figures) > 2 * LIMIT


@pytest.mark.slow("10,000 draws or more, each a step of Python")
@pytest.mark.parametrize("carried", [False, True])
def test_hyperparameters_of_a_simplex(carried, monkeypatch):
    """Planted fault: totals carried along while the concentration of their prior changes; h is small."""
    if carried:
        monkeypatch.setattr(VariableChain, "_renews_total", lambda *_: False)
    choices, y, n = np.array([1.0, 8.0]), np.array([0, 1, 1, 2, 1]), 2
    with pm.Model() as model:
        concentration = pt.as_tensor(choices)[pm.Bernoulli("k", 0.5)]
        p = pm.Beta("p", concentration / 2, concentration / 2, shape=5)
        pm.Binomial("y", n, p, observed=y)
        step = SCIR([p], step_size=0.2, rng=1)
    half = choices[:, None] / 2
    log_p = (special.betaln(half + y, half + n - y) - special.betaln(half, half)).sum(axis=1)
    expected = special.softmax(log_p)[1]
    log_norm = 5 * special.betaln(half, half)[:, 0]
    rng, point, found = np.random.default_rng(2), model.initial_point(), np.empty(30_000)
    for m in range(len(found)):
        point, _ = step.step(point)
        logs = special.log_expit(point["p_logodds__"]).sum() + special.log_expit(-point["p_logodds__"]).sum()
        log_prior = (half[:, 0] - 1) * logs - log_norm
        found[m] = rng.random() < special.expit(log_prior[1] - log_prior[0])
        point = {**point, "k": np.array(int(found[m]), dtype=point["k"].dtype)}
    z = abs(found.mean() - expected) / error_of_mean(found)
    assert z > 2 * LIMIT if carried else z < LIMIT
