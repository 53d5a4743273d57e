"""Priors of the effects' scale with infinite mass near zero are refused, and no others."""

import numpy as np
import pymc as pm
import pytest

from pymc_austerity import TunaMH
from pymc_austerity.exceptions import NoNormalApproximationError
from pymc_austerity.mode.plates.center import PlateSurvey, require_mass
from tests.model.plates.plates import GROUPS, G, X, bernoulli, beta, built, plate_in

LOG = pm.distributions.transforms.log

IMPROPER = {
    "1/tau": lambda: pm.CustomDist("tau", logp=lambda v: -pm.math.log(v), transform=LOG, initval=1.0),
    "flat logarithm": lambda: pm.math.exp(pm.Flat("log_tau")),
    "squared": lambda: pm.math.sqrt(
        pm.CustomDist("variance", logp=lambda v: -pm.math.log(v), transform=LOG, initval=1.0)
    ),
}
PROPER = {
    "HalfNormal": lambda: pm.HalfNormal("tau"),
    "HalfFlat": lambda: pm.HalfFlat("tau"),  # the data bound it from above
    "HalfCauchy": lambda: pm.HalfCauchy("tau", 1.0),
    "Gamma": lambda: pm.Gamma("tau", 0.1, 0.1),
    "InverseGamma": lambda: pm.InverseGamma("tau", 2.0, 1.0),
    "Uniform": lambda: pm.Uniform("tau", 0.0, 5.0),
    "bounded": lambda: pm.TruncatedNormal("tau", 1.0, 1.0, lower=0.1),
    "LogNormal": lambda: pm.LogNormal("tau"),
    "logarithm": lambda: pm.math.exp(pm.Normal("log_tau")),
    "precision": lambda: pm.Gamma("precision", 0.5, 0.5) ** -0.5,
    "product": lambda: pm.HalfNormal("tau") * pm.HalfCauchy("global", 1.0),
}


def survey_of(scale):
    def define():
        bernoulli(X @ beta() + pm.Normal("u", pm.Normal("mu"), scale(), shape=G)[GROUPS])

    model = built(define)
    survey = PlateSurvey(plate_in(model), model.initial_point())
    return survey, np.setdiff1d(np.arange(survey.plate.n_shared), survey.linear)


@pytest.mark.parametrize("name", IMPROPER)
def test_improper(name):
    survey, hyper = survey_of(IMPROPER[name])
    with pytest.raises(NoNormalApproximationError, match="'y' is improper: as .* falls, the scale of the"):
        require_mass("y", survey.shared, survey.start, hyper)


@pytest.mark.parametrize("name", PROPER)
@pytest.mark.covering(1)
def test_proper(name):
    survey, hyper = survey_of(PROPER[name])
    require_mass("y", survey.shared, survey.start, hyper)


def test_a_step_refuses_it():
    def define():
        bernoulli(X @ beta() + pm.Normal("u", pm.Normal("mu"), IMPROPER["1/tau"](), shape=G)[GROUPS])

    with pytest.raises(NoNormalApproximationError, match="such as pm.HalfNormal"):
        TunaMH(model=built(define))
