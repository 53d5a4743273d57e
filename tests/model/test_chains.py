"""Chains of states are found on the graph of a model, or refused by name."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

from pymc_austerity.exceptions import FactorisationError, SelfCheckError
from pymc_austerity.model.chains.chain_model import ChainModel, check_chain
from pymc_austerity.model.chains.found import find_chain
from pymc_austerity.model.compile.backend import interpreted
from pymc_austerity.model.field.of_model import factorise

T = 12
Y = np.random.default_rng(0).normal(size=T)
COUNTS = np.arange(T) % 4
START = pm.Normal.dist(0, 1)


def ar(**options):
    return pm.AR("h", **{"rho": [0.8], "sigma": 0.5, "init_dist": START, "shape": T, **options})


def walk(**options):
    return pm.GaussianRandomWalk("h", **{"sigma": 0.5, "init_dist": START, "shape": T, **options})


def flat(shape, mean, *, start=0.0):
    """States along the first axis, each normal around a function of the one before."""
    h = pm.Flat("h", shape=shape)
    pm.Potential("transition", pm.logp(pm.Normal.dist(mean(h[:-1]), 0.4), h[1:]))
    pm.Potential("start", pm.logp(pm.Normal.dist(start, 1.0), h[0]))
    return h


def volatility():
    phi, sigma = pm.Beta("phi", 5, 1), pm.HalfNormal("sigma", 1)
    pm.Normal("x", 0, pm.math.exp(ar(rho=[phi], sigma=sigma) / 2), observed=Y)


def level():
    pm.Normal("y", walk(mu=0.1), 1, observed=Y)


def missing():
    seen = np.array([0, 1, 5, 11])
    pm.Normal("y", walk()[seen], 1, observed=Y[seen])


def several_rows():
    time = np.array([0, 0, 0, 4, 7, 7, 11])
    pm.Poisson("y", pm.math.exp(walk()[time]), observed=np.arange(7))


def several_terms():
    h = ar()
    pm.Poisson("y", pm.math.exp(h), observed=COUNTS)
    pm.Normal("z", 2 * h + 1, 2.0, observed=Y)
    pm.Potential("smooth", -0.25 * (h[1:] - h[:-1]) ** 2)


def custom():
    """The series one after the other in one vector; a factor of zero hides what the first of each reads."""
    t = np.arange(T) % 4
    previous = np.where(t > 0, np.arange(T) - 1, 0)

    def transition(h, phi, sigma):
        return pm.logp(pm.Normal.dist(phi * (t > 0) * h[previous], sigma), h)

    h = pm.CustomDist("h", 0.9, 0.4, logp=transition, shape=T, signature="(),()->()")
    pm.Normal("y", 0, pm.math.exp(h / 2), observed=Y)


def in_two_parts():
    def transition(h, phi):
        later = pm.logp(pm.Normal.dist(phi[1:] * h[:-1], 0.4), h[1:])
        return pt.concatenate([pm.logp(pm.Normal.dist(0, 1), h[:1]), later])

    h = pm.CustomDist("h", np.full(T, 0.9), logp=transition, shape=T, signature="()->()")
    pm.Poisson("y", pm.math.exp(h), observed=COUNTS)


def sd_of_the_state():
    h = pm.Flat("h", shape=T)
    pm.Potential("transition", pm.logp(pm.Normal.dist(0.9 * h[:-1], pm.math.exp(h[:-1] / 4)), h[1:]))
    pm.Potential("start", pm.logp(pm.Normal.dist(0, 1), h[0]))
    pm.Normal("y", h, 1, observed=Y)


def vectors():
    matrix = np.array([[0.8, 0.2], [-0.1, 0.7]])
    pm.Poisson("y", pm.math.exp(flat((6, 2), lambda h: h @ matrix.T)), observed=COUNTS.reshape(6, 2))


def walk_of_vectors():
    start = pm.MvNormal.dist(np.zeros(2), np.eye(2))
    h = pm.MvGaussianRandomWalk("h", mu=np.zeros(2), chol=np.eye(2) * 0.5, init_dist=start, shape=(6, 2))
    pm.Poisson("y", pm.math.exp(h[:, 0] + h[:, 1]), observed=COUNTS[:6])


def coupled_walks():
    h = walk(shape=(2, 6))
    pm.Normal("y", h[0] + np.arange(6) * h[1], 1, observed=Y[:6])


# Series, components of a state, and whether transitions are linear.
MODELS = {
    "volatility": (volatility, (1, 1, True)),
    "constant": (
        lambda: pm.Poisson("y", pm.math.exp(ar(rho=[0.1, 0.8], constant=True)), observed=COUNTS),
        (1, 1, True),
    ),
    "batch": (lambda: pm.Normal("y", ar(shape=(3, 4)), 1, observed=Y.reshape(3, 4)), (3, 1, True)),
    "transposed": (lambda: pm.Normal("y", ar(shape=(3, 4)).T, 1, observed=Y.reshape(4, 3)), (3, 1, True)),
    "two_times": (
        lambda: pm.Poisson("y", pm.math.exp(ar(shape=(6, 2))), observed=COUNTS.reshape(6, 2)),
        (6, 1, True),
    ),
    "level": (level, (1, 1, True)),
    "walks": (lambda: pm.Normal("y", walk(shape=(3, 4)), 1, observed=Y.reshape(3, 4)), (3, 1, True)),
    "missing": (missing, (1, 1, True)),
    "masked": (lambda: pm.StudentT("y", 3, walk(), observed=np.where(COUNTS == 2, np.nan, Y)), (1, 1, True)),
    "several_rows": (several_rows, (1, 1, True)),
    "several_terms": (several_terms, (1, 1, True)),
    "custom": (custom, (3, 1, True)),
    "in_two_parts": (in_two_parts, (1, 1, True)),
    "nonlinear": (
        lambda: pm.StudentT("y", 3, flat(T, lambda h: 0.5 * h + pt.sin(h)) ** 2, observed=Y),
        (1, 1, False),
    ),
    "sd_of_the_state": (sd_of_the_state, (1, 1, False)),
    "vectors": (vectors, (1, 2, True)),
    "trend": (
        lambda: pm.Normal(
            "y",
            flat((6, 2), lambda h: pt.stack([h[:, 0] + h[:, 1], h[:, 1]], axis=1))[:, 0],
            1,
            observed=Y[:6],
        ),
        (1, 2, True),
    ),
    "walk_of_vectors": (walk_of_vectors, (1, 2, True)),
    "coupled_walks": (coupled_walks, (1, 2, True)),
    "flat_start": (lambda: pm.Normal("y", walk(init_dist=pm.Flat.dist()), 1, observed=Y), (1, 1, True)),
}


def chain_of(build, name="h"):
    with pm.Model() as model:
        build()
    with interpreted():
        found = find_chain(model, model.rvs_to_values[model[name]], model.initial_point())
        return ChainModel(found), model


@pytest.mark.filterwarnings("ignore:Data in y contains missing values")
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.covering(1)
def test_chains_are_found(name):
    build, expected = MODELS[name]
    chain, model = chain_of(build)
    layout = chain.found.layout
    assert (len(layout.starts) - 1, layout.n_components, chain.is_linear) == expected
    assert sorted(layout.elements.ravel()) == list(range(layout.elements.size))
    check_chain(chain, model)


def test_a_wrong_term_is_noticed():
    chain, model = chain_of(volatility)
    chain._outputs["log_terms"] = 1.1 * chain._outputs["log_terms"]
    with pytest.raises(SelfCheckError, match="'h'"):
        check_chain(chain, model)


@pytest.mark.slow("builds and compiles several steps")
def test_normal_observations_are_part_of_the_proposal():
    assert not chain_of(level)[0].weighted.any()
    assert chain_of(volatility)[0].weighted.all()
    assert chain_of(several_rows)[0].weighted.sum() == 4


def two_apart():
    h = ar()
    pm.Potential("far", -((h[2:] - h[:-2]) ** 2))


def student_steps():
    h = pm.Flat("h", shape=T)
    pm.Potential("transition", pm.logp(pm.StudentT.dist(3, h[:-1]), h[1:]))
    pm.Potential("start", pm.logp(pm.Normal.dist(0, 1), h[0]))


REFUSED = {
    "second_order": (
        lambda: ar(rho=[0.5, 0.2], init_dist=pm.Normal.dist(0, 1, shape=2)),
        r"row 0 of the term 'h' contains h\[0\], h\[1\], h\[2\]",
    ),
    "two_apart": (two_apart, r"row 0 of the term 'far' contains h\[0\], h\[2\]"),
    "of_all": (lambda: pm.Potential("sum", -(ar().sum() ** 2)), "the term 'sum' takes all of them"),
    "accumulated": (lambda: pm.Normal("y", pt.cumsum(ar()), 1, observed=Y), "'y'.*accumulates"),
    "independent": (lambda: pm.Normal("h", 0, 1, shape=T), "no row of a term contains two of its elements"),
    "single": (lambda: pm.Normal("h", 0, 1, shape=1), r"'h' of shape \(1,\) is not a chain"),
    "student_start": (
        lambda: pm.Poisson("y", pm.math.exp(ar(init_dist=pm.StudentT.dist(3))), observed=COUNTS),
        r"first state h\[0\] cannot be drawn.*init_dist",
    ),
    "student_steps": (student_steps, "transitions of 'h' in the term 'transition'"),
    "five_components": (
        lambda: flat((6, 5), lambda h: h + 0.1 * h.sum(axis=1, keepdims=True)),
        "5 components",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.covering(6)
def test_what_is_no_chain_is_refused_by_name(name):
    build, message = REFUSED[name]
    with pytest.raises(FactorisationError, match=message):
        check_chain(*chain_of(build))


def test_transitions_of_a_batch_are_one_population():
    """A table of 20 by 59 transitions is no long vector along either side."""
    with pm.Model() as model:
        phi, sigma = pm.Beta("phi", 5, 1), pm.HalfNormal("sigma", 1)
        ar(rho=[phi], sigma=sigma, shape=(20, 60))
    fact = factorise(model, ["phi", "sigma"])
    assert fact.local_terms == [("h", 20 * 59)]
    point = {
        "phi_logodds__": np.array(1.0),
        "sigma_log__": np.array(-0.5),
        "h": np.random.default_rng(0).normal(size=(20, 60)),
    }
    fact = factorise(model)
    assert ("h", 20 * 59) in fact.local_terms
    assert fact.log_density_terms(point).sum() + fact.global_log_density(point) == pytest.approx(
        model.compile_logp()(point)
    )


def test_tables_whose_cells_are_coupled_are_no_population():
    with pm.Model() as model:
        score = pm.Normal("score", shape=(40, 40))
        pm.Potential("share", pt.log(pt.special.softmax(score, axis=0)))
    assert factorise(model).local_terms == [("score", 1600)]
