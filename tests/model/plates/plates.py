"""Rows and a way to build small models with a plate."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pymc as pm

from pymc_austerity.model.compile.backend import interpreted
from pymc_austerity.model.factorisation import FEWEST_GROUPS
from pymc_austerity.model.plates.any_spelling import find_plates, why_none
from pymc_austerity.model.plates.gathers import NoPlate
from pymc_austerity.model.plates.plate_model import PlateModel, plate_model
from pymc_austerity.step_methods.metropolis.options import checked_options
from pymc_austerity.step_methods.metropolis.plan import factorised
from pymc_austerity.step_methods.metropolis.tuna_plan import EXACT, TAYLOR

N, G = 1200, 32
RNG = np.random.default_rng(31)
X = RNG.normal(size=(N, 2))
GROUPS = RNG.integers(0, G, N)
EXPOSURE = RNG.gamma(2.0, size=N)
TRIALS = RNG.integers(1, 5, N)
DESIGN = RNG.normal(size=(G, 2))  # of the groups
U = RNG.normal(0.0, 0.5, G)
ETA = X @ [0.5, -0.3] + U[GROUPS]
Y = (RNG.random(N) < 1 / (1 + np.exp(-ETA))).astype(int)
COUNTS = RNG.poisson(np.exp(ETA))
REALS = ETA + RNG.normal(size=N)
POSITIVE = RNG.gamma(3.0, np.exp(ETA) / 3.0)


def built(define: Callable[[], Any]) -> pm.Model:
    """The model that a function defines."""
    with pm.Model(coords={"group": range(G), "column": range(2)}) as model:
        define()
    return model


def plate_in(model: pm.Model, names: list[str] | None = None) -> PlateModel | None:
    """Its plate, for a step that moves the variables of these names, or all."""
    with interpreted():
        vars = None if names is None else [model[name] for name in names]
        options = checked_options(vars, EXACT, control_variate=TAYLOR, model=model)
        return plate_model(model, factorised(options, model.initial_point()))


def plates_of(define: Callable[[], Any]) -> PlateModel | None:
    """The plate of a model that a function defines, on any spelling."""
    model = built(define)
    with interpreted():
        options = checked_options(None, EXACT, control_variate=TAYLOR, model=model)
        return find_plates(model, factorised(options, model.initial_point()), FEWEST_GROUPS)


def reason(define: Callable[[], Any], names: list[str] | None = None) -> str:
    """Why a model has none."""
    model = built(define)
    vars = None if names is None else [model[name] for name in names]
    with interpreted():
        options = checked_options(vars, EXACT, control_variate=TAYLOR, model=model)
        fact = factorised(options, model.initial_point())
        try:
            if find_plates(model, fact, FEWEST_GROUPS) is not None:
                return ""
        except NoPlate as error:
            return str(why_none(model, fact, FEWEST_GROUPS, error))
        return str(why_none(model, fact, FEWEST_GROUPS, None) or "nothing like a plate")


def beta() -> Any:
    return pm.Normal("beta", 0.0, 2.0, shape=2)


def scale() -> Any:
    return pm.HalfNormal("tau", 1.0)


def bernoulli(eta: Any) -> Any:
    return pm.Bernoulli("y", logit_p=eta, observed=Y)


def regression(effects: Callable[[], Any]) -> Callable[[], Any]:
    """A logistic regression with these effects in the predictor."""
    return lambda: bernoulli(X @ beta() + effects())
