"""The plan of a step on a plate: expansion, proposal and bounds, tried out on a short pilot run."""

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from pymc.initial_point import PointType

from pymc_austerity.acceptance.base import AcceptanceRule, Exact, with_batch_size
from pymc_austerity.bounds.jets.tape import tape_of
from pymc_austerity.exceptions import warn
from pymc_austerity.kernels.plates.cubic import no_cubic
from pymc_austerity.kernels.plates.records import (
    GroupedRows,
    GroupSums,
    Plate,
    PlateRule,
    workspace,
)
from pymc_austerity.mode.plates.center import Center, PlateSurvey, find_center
from pymc_austerity.mode.plates.cubic_sums import are_worth_while, cubic_sums
from pymc_austerity.mode.plates.effects_excess import density_of
from pymc_austerity.mode.plates.expansion import Expanded
from pymc_austerity.mode.plates.fit import SharedFit, fit_shared
from pymc_austerity.mode.plates.group_bounds import group_bounds, no_bounds
from pymc_austerity.mode.plates.proposal import shared_proposal
from pymc_austerity.mode.plates.rounding import with_rounding
from pymc_austerity.model.factorisation import FEWEST_IF_SLOW, Factorisation, point_of, vector_of
from pymc_austerity.model.graph.log_density import fingerprint
from pymc_austerity.model.plates.plate_model import PlateModel
from pymc_austerity.model.starting_point import density_of_block, require_finite
from pymc_austerity.progress import stage
from pymc_austerity.step_methods.base import floats
from pymc_austerity.step_methods.metropolis.engine.base import CompiledKernel
from pymc_austerity.step_methods.metropolis.engine.plates import PlateEngine
from pymc_austerity.step_methods.metropolis.mixing_pilot import warn_of_poor_mixing
from pymc_austerity.step_methods.metropolis.options import MetropolisOptions
from pymc_austerity.step_methods.metropolis.plan import Plan, Recipe
from pymc_austerity.step_methods.metropolis.plate_pilot import (
    KAPPAS,
    PlatePrediction,
    announced,
    best_pilot,
    pilot,
    starts_of,
    with_kappa,
)
from pymc_austerity.target import Vector

logger = logging.getLogger(__name__)

_SEED = 2021
# Numbers that a likelihood is a function of, at most, if rows are drawn: bounds in more take too long.
MOST_BOUNDED = 2
# States that are further out than all but very few draws of the fitted distribution.
_FAR = 5.0
# Below this acceptance rate chains mix badly.
_POOR = 0.2


@dataclass(frozen=True)
class PlateSweeps:
    """How a plate is moved, as the configuration says it."""

    effects: str  # The value variables of the effects
    n_groups: int
    kappa: float  # So many times the rows are drawn for the shared move, which makes its decision less noisy


@dataclass(frozen=True, kw_only=True)
class PlateRecipe(Recipe):
    """What of the plan travels to other processes: constants of size G, none of size N."""

    is_plate: ClassVar[bool] = True
    columns: ClassVar[dict[str, tuple[type, list[int]]]] = floats(
        "shared_n_used", "plate_n_used", "plate_acceptance"
    )

    proposal: PlateSweeps
    fit: SharedFit
    prediction: PlatePrediction
    reads_all: bool
    certificate: str

    @property
    def n_watched(self) -> int:
        """Coordinates that tell how well a chain mixes: the effects are drawn anew at almost every sweep."""
        return self.prediction.n_shared

    def tell(self, plan: Plan) -> None:
        """Warn if the shared variables will mix badly, or if all rows are read where few were asked for."""
        found, mixing, fact = self.prediction, self.prediction.mixing, plan.factorisation
        if found.shared_acceptance < _POOR:
            warn(
                f"Moves of what the {found.n_groups:,} groups share are accepted at a rate of about "
                f"{found.shared_acceptance:.2f}: {found.why_few(self.n_local)}. The chain is exact, and "
                "mixes slowly. pm.NUTS may suit the model better."
            )
        elif mixing is not None and mixing.is_poor:
            name = fact.graph.variables[fact.coordinate(mixing.dimension)[0]]
            warn_of_poor_mixing(mixing, name, is_plate=True)
        if self.reads_all and plan.options.switch_above > 0.0:
            warn(
                f"TunaMH would draw many of {self.n_local:,} rows for a sweep over {found.n_groups:,} "
                "groups: all are read instead."
            )

    def fitted_draw(
        self, fact: Factorisation, engine: CompiledKernel, point: PointType, rng: np.random.Generator
    ) -> Vector:
        """A draw of the distribution that is fitted to the plate."""
        assert isinstance(engine, PlateEngine)
        return engine.starts(self.fit, point, density_of_block(fact, point))(rng)

    def start(
        self,
        fact: Factorisation,
        engine: CompiledKernel,
        point: PointType,
        default: Callable[[], PointType],
        rng: np.random.Generator,
        names: str,
    ) -> PointType:
        """A draw of the fitted distribution, or `point` if somebody has chosen it; see `Recipe.start`."""
        q = vector_of(fact, point)
        if np.allclose(q, vector_of(fact, default())):
            logger.info("%s: the chain starts from a draw of the fitted distribution.", names)
            return point_of(fact, self.fitted_draw(fact, engine, point, rng), point)
        found, n = self.distance(engine, q, point)
        if found**2 > n + _FAR * math.sqrt(2.0 * n):
            warn(
                f"The chain starts {found:.3g} standard deviations from the distribution that was fitted to "
                f"the shared variables of {names}, at a point that is not the model's initial point and was "
                "therefore kept. Proposals may be rejected there for long. Without initvals the chain starts "
                "from a draw of the fitted distribution."
            )
        return point

    def distance(self, engine: CompiledKernel, q: Vector, point: PointType) -> tuple[float, int]:
        """How many standard deviations theta is from its fitted distribution in a state, and its length."""
        assert isinstance(engine, PlateEngine)
        fit = self.fit
        scores = np.linalg.solve(fit.slopes @ fit.factor, engine.theta_of(q, point) - fit.theta)
        return float(np.linalg.norm(scores)), len(scores)

    def statistics(self, found: dict[str, float], outcome: Any, n: int, engine: CompiledKernel) -> None:
        """Add rows and acceptance of either move to the sample statistics `found` of n sweeps."""
        if "clipped" in found:  # a share of the decisions of a sweep
            found["clipped"] /= 1 + self.prediction.n_groups
        found |= {
            "exhausted": outcome.whole_groups / n / engine.n_readings,  # share of what was read whole
            "shared_n_used": outcome.shared_n_used / n,
            "plate_n_used": outcome.plate_n_used / n,
            "plate_acceptance": outcome.plate_accepted / n,
        }

    @property
    def rate(self) -> float:
        """Effective draws of the shared variables in a second of CPU time, roughly."""
        mixing = self.prediction.mixing
        assert mixing is not None
        return 1e9 * mixing.efficiency / self.prediction.sweep


@dataclass(frozen=True)
class PlatePlan(Plan):
    """A step that sweeps over a plate. It has size N."""

    recipe: PlateRecipe
    rows: PlateSurvey
    engine: PlateEngine  # Compiled already: the pilot has used it

    def compile(self, point: PointType) -> CompiledKernel:
        """The compiled sweeps."""
        return self.engine


def rule_of_remainders(options: MetropolisOptions) -> AcceptanceRule | None:
    """The rule that decides the moves of a plate on a subsample of remainders; None for exact decisions."""
    return None if isinstance(options.acceptance, Exact) else options.acceptance


def once_found(options: MetropolisOptions) -> MetropolisOptions:
    """Options of a step on a plate: it stays one when data with fewer groups come."""
    return replace(options, fewest_groups=FEWEST_IF_SLOW)


def plan_plates(
    options: MetropolisOptions, point: PointType, plate: PlateModel, recipe: PlateRecipe | None = None
) -> PlatePlan:
    """Fit the plate, try it out, and fit it again about the mean of the pilot, where remainders are smaller.

    Where more than a share `switch_above` of the rows is read, all are, which makes decisions less noisy.
    """
    if recipe is not None:
        return _plan_again(options, point, plate, recipe)
    rule = rule_of_remainders(options)
    require_finite(plate.factorisation, point)
    stage("order of rows", f", {plate.n_groups:,} groups")
    survey = PlateSurvey(plate, point, nested=rule is None)
    center, _ = find_center(survey)
    stage("fit", f" 1/2, {plate.n_groups:,} groups")
    fit, at, sums = fit_shared(survey, center)
    if rule is not None:
        rule = with_batch_size(rule, plate.rows.n_rows, options.default_batch)
    reads_all = rule is not None or options.switch_above <= 0.0 or plate.n_predictors > MOST_BOUNDED
    arrays = plate_arrays(survey, fit, at, sums, reads_all=reads_all, debug=options.debug)
    rng, fact = np.random.default_rng(_SEED), plate.factorisation
    engine = PlateEngine(survey.of_kernel, arrays, vector_of(fact, point), point, rule)
    q = engine.starts(fit, point, density_of_block(fact, point))(rng)
    found = pilot(engine, survey, fit.theta, q, point, rng)
    del arrays, at, engine.plate  # room of size N for the next
    stage("fit", f" 2/2, {plate.n_groups:,} groups")
    fit, at, sums = fit_shared(survey, Center(fit.theta, found.effects), found.eps, rounds=2)
    engine.plate = plate_arrays(survey, fit, at, sums, reads_all=reads_all, debug=options.debug)
    found = best_pilot(engine, survey, fit.theta, found.q, point, rng)
    if not reads_all and found.prediction.terms > options.switch_above * plate.rows.n_rows:
        reads_all = True
        engine.plate = _reading_all(survey, engine.plate)
        found = pilot(engine, survey, fit.theta, found.q, point, rng)
    prediction = announced(engine, found.prediction, starts_of(engine, fit, found.q, fact, point), point)
    recipe = PlateRecipe(
        data=fingerprint(fact.graph),
        n_local=plate.rows.n_rows,
        n_dim=len(q),
        rule=options.acceptance if rule is None else rule,
        proposal=PlateSweeps(", ".join(plate.effects), plate.n_groups, engine.plate.rule.kappa),
        proposal_state=engine.new_state(),
        mode_fit=None,
        fit=fit,
        prediction=prediction,
        reads_all=engine.reads_all,
        certificate=certificate_of(plate, reads_all=reads_all, power=engine.plate.bounds.power),
    )
    return PlatePlan(once_found(options), fact, recipe, survey, engine)


def with_all_rows(plan: PlatePlan, point: PointType) -> PlatePlan:
    """The same fit with decisions on all rows, tried out anew."""
    survey, fit = plan.rows, plan.recipe.fit
    plate, arrays = survey.plate, _reading_all(survey, plan.engine.plate)
    rng, fact = np.random.default_rng(_SEED), plate.factorisation
    engine = PlateEngine(survey.of_kernel, arrays, vector_of(fact, point), point)
    q = engine.starts(fit, point, density_of_block(fact, point))(rng)
    found = pilot(engine, survey, fit.theta, q, point, rng)
    prediction = announced(engine, found.prediction, starts_of(engine, fit, found.q, fact, point), point)
    recipe = replace(
        plan.recipe,
        prediction=prediction,
        reads_all=True,
        certificate=certificate_of(plate, reads_all=True),
    )
    return replace(plan, recipe=recipe, engine=engine)


def _reading_all(survey: PlateSurvey, arrays: Plate) -> Plate:
    """A plate whose decisions read all rows."""
    bounds, weights = no_bounds(survey, arrays.sums)
    rows = arrays.rows._replace(thirds=np.zeros(0))
    return with_kappa(arrays._replace(rows=rows, cubic=no_cubic(), bounds=bounds, weights=weights), KAPPAS[0])


def _plan_again(
    options: MetropolisOptions, point: PointType, plate: PlateModel, recipe: PlateRecipe
) -> PlatePlan:
    """The same plan in another process."""
    rule = None if rule_of_remainders(options) is None else recipe.rule
    survey = PlateSurvey(plate, point, nested=rule is None)
    at, sums = survey.expand(recipe.fit.center)
    reads_all = rule is not None or recipe.reads_all
    arrays = plate_arrays(survey, recipe.fit, at, sums, reads_all=reads_all, debug=options.debug)
    arrays = with_kappa(arrays, recipe.proposal.kappa)
    engine = PlateEngine(survey.of_kernel, arrays, vector_of(plate.factorisation, point), point, rule)
    return PlatePlan(options, plate.factorisation, recipe, survey, engine)


def certificate_of(plate: PlateModel, *, reads_all: bool, power: int = 2) -> str:
    """Where the bounds of a plate come from."""
    if plate.is_normal:
        return f"{plate.name!r}: normal, sums are sufficient and no row is read"
    if reads_all:
        return "not needed, as all rows are read"
    n = plate.n_predictors
    predictors = "1 predictor" if n == 1 else f"{n} predictors"
    which = f"{'third' if power == 2 else 'fourth'} derivatives"
    return f"{which} of {plate.name!r}, a function of {predictors} of each row, by interval arithmetic"


def plate_arrays(
    survey: PlateSurvey,
    fit: SharedFit,
    at: Expanded,
    sums: GroupSums,
    *,
    reads_all: bool,
    debug: bool,
) -> Plate:
    """All that the kernel needs."""
    plate, rows = survey.plate, survey.rows
    if not reads_all:
        stage("bounds", f" of {survey.plate.rows.n_rows:,} rows")
    program = tape_of(plate.expression, plate.n_predictors, 0)
    has_remainders = not plate.is_normal
    cubic, thirds = no_cubic(), np.zeros(0)
    if reads_all or not has_remainders:
        bounds, weights = no_bounds(survey, sums)
    else:
        if are_worth_while(plate, sums):
            cubic, thirds = cubic_sums(plate.expression, rows, at, sums)
        bounds, weights = group_bounds(survey, fit, at, sums, cubic)
    arrays = Plate(
        rows=GroupedRows(
            starts=rows.starts,
            x=rows.x,
            covariates=rows.covariates,
            levels=rows.levels,
            predictors=at.predictors,
            slopes=at.slopes,
            curvatures=at.curvatures,
            thirds=thirds,
            dispersions=at.dispersions,
            data=rows.data,
            program=program,
        ),
        sums=sums,
        cubic=cubic,
        bounds=bounds,
        weights=weights,
        effects=density_of(plate.priors[0]),
        proposal=shared_proposal(fit, sums.linear[survey.outer.columns]),
        outer=survey.outer,
        rule=PlateRule(
            kappa=KAPPAS[0],
            is_centered=plate.is_centered,
            n_vectors=plate.n_vectors,
            scaled=plate.scaled.coordinates,
            scaled_by=plate.scaled.features,
            has_remainders=has_remainders,
            debug=debug,
            violations=np.zeros(1, dtype=np.int64),
        ),
        room=workspace(program, plate.n_predictors, len(rows.data)),
    )
    return arrays if reads_all or not has_remainders else with_rounding(arrays, plate.expression)
