"""What is decided of a step of Langevin dynamics before anything is compiled."""

import logging
from typing import NamedTuple

import numpy as np
import pymc as pm
from pymc.initial_point import PointType
from pytensor.graph.basic import Variable

from pymc_austerity.control_variates.taylor import Taylor
from pymc_austerity.exceptions import UnsuitableError
from pymc_austerity.kernels.stochastic_gradient import Dynamics
from pymc_austerity.mode.fit import expanded_again, fit_mode
from pymc_austerity.mode.mode_fit import FittedTerms, ModeFit
from pymc_austerity.model.factorisation import Factorisation, vector_of
from pymc_austerity.model.factorise import build
from pymc_austerity.model.graph.log_density import Fingerprint, fingerprint
from pymc_austerity.model.structure.term_structure import TermStructure
from pymc_austerity.proposals.laplace import Laplace
from pymc_austerity.step_methods.base import checked_steps_per_draw
from pymc_austerity.step_methods.batch_size import batch_rows, checked_batch_size
from pymc_austerity.step_methods.langevin.inflation import Inflation
from pymc_austerity.step_methods.messages import refuse_discrete, refuse_short
from pymc_austerity.step_methods.metropolis.options import control_variate_of
from pymc_austerity.step_methods.metropolis.orthonormal import refuse_orthonormal
from pymc_austerity.step_methods.step_size import DecreasingStepSize

logger = logging.getLogger(__name__)

NO_FACTOR = np.empty((0, 0))
# Dimensions up to which a prediction is worth the passes over the data that a mode takes.
_PREDICTED_UP_TO = 50


class SgldOptions(NamedTuple):
    """What a step was asked for; see `SGLD`."""

    model: pm.Model
    vars: list[Variable]
    step_size: DecreasingStepSize
    batch_size: int | float | None
    control_variate: Taylor | None
    preconditioner: Laplace | None
    steps_per_draw: int
    threshold: int


class SgldRecipe(NamedTuple):
    """What of a plan travels to other processes; nothing has size N."""

    dynamics: Dynamics
    mode_fit: ModeFit | None  # None if the posterior has no mode, or too many dimensions to look for one
    inflation: Inflation | None = None  # On the normal distribution at the mode


def checked_options(asked: SgldOptions) -> SgldOptions:
    """Check the keywords of `SGLD`; the model and the variables are known."""
    refuse_discrete(asked.vars)
    refuse_orthonormal(asked.model, asked.vars, None, has_control_variate=False)
    taylor = control_variate_of(asked.control_variate)
    if taylor is not None and taylor.exact_rows:
        raise ValueError(
            f"exact_rows={taylor.exact_rows} is for steps that decide moves. SGLD draws all rows alike: "
            "leave it out."
        )
    if asked.preconditioner not in (None, Laplace()):
        raise ValueError(
            f"preconditioner must be None or Laplace(), got {asked.preconditioner!r}. Laplace() is the "
            "inverse precision at the posterior mode; its parameters are for proposals."
        )
    return asked._replace(
        batch_size=checked_batch_size(asked.batch_size),
        control_variate=taylor,
        steps_per_draw=checked_steps_per_draw(asked.steps_per_draw),
    )


def plan_sgld(options: SgldOptions, point: PointType) -> tuple[Factorisation, Factorisation, SgldRecipe]:
    """Find the local terms, the mode, and what is expanded and preconditioned there.

    Returns the terms of the model, the same with what is expanded taken out, and the recipe.
    """
    fact = _factorised(options, point, check=True)
    if not fact.n_local:
        refuse_short(fact, options.threshold, options.model)
    rows = batch_rows(options.batch_size, fact.n_local, fact.var_names[0], fact.longest_term())
    found = _mode(options, TermStructure(fact), point)
    factor = NO_FACTOR
    if options.preconditioner is not None:
        assert found is not None
        _, factor = found.mode_fit.proxy.factors()
    size = options.step_size
    n = fact.n_local if rows is None else rows
    dynamics = Dynamics(size.h, float(size.tau), float(size.kappa), n, fact.n_local, factor)
    if found is None:
        return fact, fact, SgldRecipe(dynamics, None)
    return fact, found.expanded, SgldRecipe(dynamics, found.mode_fit)


def replan_sgld(
    options: SgldOptions, recipe: SgldRecipe, data: Fingerprint, point: PointType
) -> tuple[Factorisation, Factorisation] | None:
    """The terms of the same plan in another process; None if the data are others there."""
    fact = _factorised(options, point, check=False)
    if fingerprint(fact.graph) != data:
        return None
    if options.control_variate is None:
        return fact, fact
    assert recipe.mode_fit is not None
    return fact, expanded_again(TermStructure(fact), point, recipe.mode_fit).expanded


def _factorised(options: SgldOptions, point: PointType, *, check: bool) -> Factorisation:
    return build(options.model, options.vars, threshold=options.threshold, initial_point=point, check=check)


def _mode(options: SgldOptions, structure: TermStructure, point: PointType) -> FittedTerms | None:
    """The mode; None if there is none, and nothing but the prediction needs it."""
    taylor = options.control_variate
    is_needed = taylor is not None or options.preconditioner is not None
    n_dim = len(vector_of(structure.factorisation, point))
    if n_dim > _PREDICTED_UP_TO and not is_needed:
        return None
    try:
        return fit_mode(options.model, structure, point, taylor, whole_block=True, certify=False)
    except UnsuitableError as error:
        if is_needed:
            raise
        logger.info("sd_inflation is not predicted: %s", error)
        return None
