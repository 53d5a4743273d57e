"""The plan of `TunaMH`: sweeps over a field of effects, if the model has one; else moves of the whole block.

For a block: bounds on Taylor remainders, and how many rows they make it draw, told before it starts.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import DTypeLike
from pymc.initial_point import PointType

from pymc_austerity.acceptance.base import Exact
from pymc_austerity.bounds.group_draws import grouped
from pymc_austerity.bounds.remainder import (
    ConstantsTable,
    InMemory,
    NewTable,
    RowDraws,
    bounded_terms,
    plain_draws,
    positions_of_largest,
    row_sampler_of,
)
from pymc_austerity.bounds.row_constants import ExpansionCoordinates
from pymc_austerity.bounds.row_function import have_one_predictor
from pymc_austerity.bounds.screened_draws import mean_share, screened
from pymc_austerity.bounds.sparsity import coordinate_groups, typical_length
from pymc_austerity.control_variates.taylor import Taylor
from pymc_austerity.data.files import ScratchTable
from pymc_austerity.exceptions import UnboundedError, UnsuitableError, warn
from pymc_austerity.kernels.tuna import TunaRule, tuna_transitions
from pymc_austerity.mode.mode_fit import FittedTerms, ModeReport, fit_with_more_rows
from pymc_austerity.model.compile.target import CompiledTarget
from pymc_austerity.model.factorisation import Factorisation, added_rows, point_of, vector_of
from pymc_austerity.model.graph.log_density import fingerprint
from pymc_austerity.model.structure.fixed_variables import in_the_way
from pymc_austerity.model.structure.local_terms import LocalTerms
from pymc_austerity.model.structure.term_structure import TermStructure
from pymc_austerity.packed import Packed
from pymc_austerity.progress import stage
from pymc_austerity.proposals.base import BoundProposal, no_adaptation
from pymc_austerity.proposals.random_walk import OPTIMAL_SCALE
from pymc_austerity.step_methods.messages import few_digits
from pymc_austerity.step_methods.metropolis.engine.base import Engine
from pymc_austerity.step_methods.metropolis.options import MetropolisOptions, TunaFields
from pymc_austerity.step_methods.metropolis.plan import (
    BlockPlan,
    Plan,
    Recipe,
    Survey,
    block_plan,
    bound_proposal,
    factorised,
    survey,
)
from pymc_austerity.step_methods.metropolis.which_plan import field_or_reason, plan_sweeps
from pymc_austerity.target import Singles, Vector
from pymc_austerity.validation import is_real, require_switches

# Expands all rows: those with large bounds are drawn the more often.
TAYLOR = Taylor(exact_rows=0)
# What is used where bounds are too loose, and for the acceptance rate that proposals aim at.
EXACT = Exact()

# Where rounding is measured: standard deviations from the center (nearer than the chain, so that what is seen
# of a wrong bound is much less than what the chain will see), and rows.
_DISTANCES, _ROWS, _SEED = (1e-4, 1e-2, 0.1), 10_000, 2019
# Where rows were added, so many times as many are expected that other coordinates of bounds are found.
_WIDER = 2.0
# Fewer rows than this are cheap however they are drawn.
_FEW_ROWS = 10.0
# More rows, in more dimensions, are tried against a bound of their own, which costs a byte for each.
_MANY_ROWS, _MANY_DIMENSIONS = 100.0, 50
# More than this, relative to a term, is not rounding; what may be met is some times what was seen.
_ROUNDING, _MARGIN = 1e-6, 16.0
# Rows that a move may draw where these are never too many, which take a tenth of a second or so.
_MOST_DRAWN = 1e6

# Moves that are tried out: so many, or fewer in many dimensions, where a move takes long in plain Python.
_MOVES, _FEWEST_MOVES, _BUDGET = 200, 20, 100_000
_PREDICTION_SEED = 2020
# Rows that are tried against their own bounds.
_TRIED_ROWS = 500
# A sum of remainders that varies by less than this is decided by a small batch.
_SMALL_SPREAD = 1.0
# Dimensions above which a loose bound is to blame for many rows.
_LOOSE_DIMENSIONS = 50
# Rows that AusterityMH reads of remainders, and how many times as many are worth a word.
_ROWS_OF_TEST, _MANY_TIMES = 150, 10


def checked_tuna_options(
    chi: object = 0.0, switch_above: object = 0.25, curvature: object = None, debug: object = False
) -> TunaFields:
    """Check the keywords of `TunaMH`."""
    if not is_real(chi) or not 0.0 <= chi < np.inf:
        raise ValueError(f"chi must be a number >= 0, got {chi!r}. Larger values draw more rows.")
    if not is_real(switch_above) or not switch_above > 0.0:
        raise ValueError(f"switch_above must be a positive share of the rows, or inf, got {switch_above!r}.")
    if curvature is not None and not (
        isinstance(curvature, Mapping) and all(callable(f) for f in curvature.values())
    ):
        raise TypeError(f"curvature must be a dict from names of terms to functions, got {curvature!r}.")
    require_switches(debug=debug)
    return TunaFields(
        chi=float(chi), switch_above=float(switch_above), curvature=dict(curvature or {}), debug=bool(debug)
    )


def checked_control_variate(given: object) -> Taylor:
    """The control variate of `TunaMH`, which reads no row at every transition."""
    if given is None:
        raise ValueError(
            "control_variate must be a Taylor(), got None: TunaMH has bounds on Taylor remainders only."
        )
    if not isinstance(given, Taylor):
        raise TypeError(f"control_variate must be a Taylor(), got {given!r}.")
    if given.exact_rows:
        raise ValueError(
            f"exact_rows={given.exact_rows} is not for TunaMH, which draws rows with large "
            "bounds the more often: leave it out."
        )
    return Taylor(given.order, given.center, exact_rows=0)


class Prediction(NamedTuple):
    """Expected cost of a transition, where the fitted normal distribution is the posterior."""

    terms: float  # Expected number of rows that are evaluated for a transition
    total: float  # C, the sum of the bounds c_i near the mode
    size: float  # Mean of C M over moves, each with the C of its tier, divided by C near the mode
    n_dim: int  # Dimensions of the normal distribution

    def __str__(self) -> str:
        return f"{few_digits(self.terms)} rows for a transition (C = {self.total:.3g}, M = {self.size:.3g})"

    def is_loose(self, report: ModeReport) -> bool:
        """Are there many more rows than the remainders need, for the number of dimensions?"""
        return (
            self.terms > _MANY_TIMES * _ROWS_OF_TEST
            and self.n_dim > _LOOSE_DIMENSIONS
            and report.remainder_sd < _SMALL_SPREAD
        )

    def advice(self, report: ModeReport, n_rows: int) -> str:
        """Why so many, and what is cheaper."""
        if not np.isfinite(self.total):
            return (
                "The remainders of some rows have no finite bound near the mode: their log density has a "
                "kink or a pole there, or what it computes is not known to stay where it is smooth."
            )
        if not report.remainder_sd < _SMALL_SPREAD:
            return (
                "The posterior is far from the normal distribution at its mode (its log density is off by "
                f"{report.remainder_sd:.2g}), as with few data for a parameter: pm.NUTS suits it better."
            )
        why = f"The bounds are loose in {self.n_dim} dimensions, not the data difficult: "
        if self.n_dim <= _LOOSE_DIMENSIONS:
            why = f"{n_rows:,} rows are few for {self.n_dim} dimensions: bounds shrink with 1/sqrt(N). "
        return (
            f"{why}AusterityMH(control_variate=Taylor()) would read some {min(_ROWS_OF_TEST, n_rows):,} "
            "rows, with a small error that is not bounded."
        )


def predict(draws: RowDraws, proposal: BoundProposal, found: FittedTerms, chi: float) -> Prediction:  # type: ignore[explicit-any]
    """Try out moves from draws of the fitted distribution.

    Moves of a `Surrogate` need a compiled model; independent draws, which are further apart, stand for them.
    A walk that is yet to learn its size is taken to have the optimal one.
    """
    rng, sampler = np.random.default_rng(_PREDICTION_SEED), draws.state
    mode_fit, features = found.mode_fit, found.features
    n_dim = len(mode_fit.unwhiten)
    moves = max(min(_MOVES, _BUDGET // n_dim**2), _FEWEST_MOVES)
    old, new = np.tile(mode_fit.proxy.mode, (2, moves, 1))
    for states in (old, new):
        states[:, mode_fit.free] += rng.standard_normal((moves, n_dim)) @ mode_fit.unwhiten.T
    if proposal.adapt is not no_adaptation and not proposal.is_surrogate:
        new[:, mode_fit.free] -= mode_fit.proxy.mode[mode_fit.free]
        new = old + OPTIMAL_SCALE / math.sqrt(n_dim) * new * mode_fit.free
    elif not proposal.is_surrogate:
        for k in range(moves):
            if proposal.plain is None:
                new[k] = proposal.propose(proposal.state, old[k].copy(), rng)[0]
            else:  # a user's function
                new[k] = proposal.plain(old[k].copy(), rng)[0]
    if proposal.is_surrogate and mode_fit.of_features is not None:
        # A surrogate follows features, whose distribution is nearer to normal than that of q.
        _, directions = mode_fit.of_features
        old, new = sampler.center + rng.standard_normal((2, moves, len(directions))) @ directions.T
    else:
        old, new = (np.array([features(q) for q in states]) for states in (old, new))
    pairs = [draws.move(sampler, a, b) for a, b in zip(new, old, strict=True)]
    expected = np.array([move.expected for move in pairs])
    rows = rng.integers(sampler.constants.shape[1], size=_TRIED_ROWS)
    read = np.array([mean_share(sampler, move, rows) for move in pairs])
    bounded = np.isfinite(expected)  # the others are decided on all rows
    n_local = float(sampler.constants.shape[1])
    drawn = np.full(moves, n_local)
    n_drawn = expected[bounded] * (1.0 + chi * expected[bounded])
    drawn[bounded] = np.where(n_drawn <= sampler.most, read[bounded] * n_drawn, n_local)
    some = expected[bounded].mean() if np.any(bounded) else 0.0
    size = float(some / sampler.totals[0]) if sampler.totals[0] > 0.0 else 0.0
    return Prediction(float(np.mean(drawn)), float(sampler.totals[0]), size, n_dim)


@dataclass(frozen=True, kw_only=True)
class TunaRecipe(Recipe):
    """What of the plan travels to other processes."""

    prediction: Prediction  # Rows that are expected for a transition

    @property
    def rows_a_draw(self) -> float:
        """Rows that are read for a transition, roughly."""
        return float(self.n_local if self.reads_all else self.prediction.terms)

    def tell(self, plan: Plan) -> None:
        """Warn if the exact test on all data is cheaper, or bounds are loose, and say why."""
        assert self.mode_fit is not None
        if self.n_local < plan.options.threshold:  # equal rows are joined, and few are left
            return
        prediction, report = self.prediction, self.mode_fit.report
        if self.reads_all or prediction.is_loose(report) or prediction.terms > self.n_local:
            n_rows = plan.factorisation.n_rows
            instead = "the exact test on all data is used instead. " if self.reads_all else ""
            warn(
                f"TunaMH {'would draw' if self.reads_all else 'draws'} about "
                f"{few_digits(prediction.terms)} of {n_rows:,} rows for a transition: "
                f"{instead}{prediction.advice(report, n_rows)}"
            )


def plan_exact(
    options: MetropolisOptions, point: PointType, recipe: Recipe | None = None, client: object = None
) -> Plan:
    """The plan of `TunaMH`: sweeps over a field, if the model has one; else moves of the whole block."""
    if isinstance(recipe, TunaRecipe):
        return plan_tuna(options, point, recipe)
    if recipe is not None:
        return plan_sweeps(options, point, recipe)
    fact = factorised(options, point)
    scratch_folder(fact)  # an error before a long search
    field, why_not = (None, "") if options.chi or options.curvature else field_or_reason(options, fact, point)
    if field is not None:
        if client is not None:
            warn("The set-up of a field of effects is not distributed: client= has had no effect.")
        return plan_sweeps(options, point, found=field)
    with ExitStack() as opened:
        elsewhere = None
        if client is not None:
            # The cluster is imported where there is one.
            from pymc_austerity.step_methods.metropolis.sums_elsewhere import sums_by

            elsewhere = opened.enter_context(closing(sums_by(client, options, point)))
        try:
            surveyed = survey(options, point, certify=False, factorisation=fact, elsewhere=elsewhere)
            plan = plan_tuna(options, point, surveyed=surveyed)
        except UnsuitableError as error:
            if why_not:
                error.add_note(
                    f"The model has effects of many groups, which are not moved as a field: {why_not}."
                )
            raise
    if why_not and plan.recipe.reads_all:
        warn(f"Effects of many groups are not moved as a field: {why_not}.")
    return plan


def plan_with_more_rows(
    options: MetropolisOptions, point: PointType, before: Factorisation, recipe: Recipe, engine: Engine
) -> Plan | None:
    """The plan of `TunaMH` for the rows of an earlier plan and others; None if it takes another search."""
    if not isinstance(engine, TunaEngine) or not isinstance(recipe, TunaRecipe):
        return None
    fact = factorised(options, point)
    positions = added_rows(fact, before)
    if positions is None or not len(positions):
        return None
    assert recipe.mode_fit is not None
    structure = TermStructure(fact)
    stage("expansion", f" of {len(positions):,} more rows")
    found = fit_with_more_rows(structure, point, recipe.mode_fit, positions)
    if found is None:
        return None
    ends = np.cumsum([size for _, size in before.local_terms])
    known = np.split(engine.rows.state.constants, ends[:-1], axis=1) if engine.rows.has_all_radii else ()
    plan = plan_tuna(options, point, surveyed=Survey(structure, recipe.proposal, found), known=known)
    # Coordinates of bounds are those of earlier rows: where they are no longer tight, others are found.
    is_wide = plan.recipe.prediction.terms > _WIDER * (1.0 + recipe.prediction.terms)
    return None if plan.recipe.reads_all or is_wide else plan


def plan_tuna(
    options: MetropolisOptions,
    point: PointType,
    recipe: TunaRecipe | None = None,
    surveyed: Survey | None = None,
    known: Sequence[Singles] = (),
) -> BlockPlan[TunaRecipe]:
    """Find mode and expansion, unless there is a survey, and bound what is left of each row.

    `known` are bounds of the first rows of each term, if there are any; see `row_sampler_of`.
    """
    surveyed = survey(options, point, recipe, certify=False) if surveyed is None else surveyed
    bound = bound_proposal(options, surveyed, EXACT, point)
    fact, found = surveyed.factorisation, surveyed.found
    assert found is not None
    if recipe is None:
        rows, sources = bounded_rows(options, surveyed, point, known)
        stage("rows that will be drawn")
        prediction = predict(rows, bound, found, options.chi)
        recipe = TunaRecipe(
            data=fingerprint(fact.graph),
            n_local=fact.n_local,
            n_dim=len(vector_of(fact, point)),
            rule=EXACT,
            proposal=surveyed.proposal,
            proposal_state=bound.state,
            mode_fit=surveyed.mode_fit,
            prediction=prediction,
            reads_all=bool(prediction.terms > options.switch_above * fact.n_local),
            certificate=sources,
        )
    elif not recipe.reads_all:
        rows, _ = bounded_rows(options, surveyed, point)
    if recipe.reads_all:
        # A surrogate moves on the Taylor polynomial, others on the terms of the model.
        terms = found.expanded if bound.is_surrogate else fact
        return block_plan(options, surveyed, terms, bound, recipe)

    def engine(bound: BoundProposal, q: Vector, point: PointType) -> TunaEngine:
        return TunaEngine(bound, q, point, found.expanded, rows, options.chi, options.debug)

    return BlockPlan(options, fact, recipe, bound, engine)


class TunaEngine(Engine):
    """Transitions of `kernels.tuna`: the local terms are remainders."""

    kernel = staticmethod(tuna_transitions)
    functions = ("global_log_ratio", "log_ratios", "features")

    def __init__(  # type: ignore[explicit-any]
        self,
        proposal: BoundProposal,
        q: Vector,
        point: PointType,
        factorisation: Factorisation,
        rows: RowDraws,
        chi: float,
        debug: bool,
    ) -> None:
        self.n_local = self.n_others = factorisation.n_local
        self.rows = rows
        self._chi, self._debug = chi, debug
        self.target = CompiledTarget(factorisation)
        self._compile_moves(proposal, q, point)

    def restart(self) -> None:
        """Begin to count violations."""
        self.violations = np.zeros(1, dtype=np.int64)
        rows = self.rows
        if self.target.backend.name == "numba":
            rows = rows._replace(state=Packed(rows.state))  # type: ignore[arg-type]
        self.given = {"rows": rows, "rule": TunaRule(self._chi, self.violations, self._debug)}


class NoBoundError(UnboundedError):
    """There is a term whose remainders have no known bound; `reason` says which, and why.

    `in_the_way` are the names of variables without any one of which there might be a bound.
    """

    def __init__(self, reason: str, in_the_way: Sequence[str] = ()) -> None:
        super().__init__(reason)
        self.reason, self.in_the_way = reason, tuple(in_the_way)

    def __str__(self) -> str:
        fixed = ""
        if self.in_the_way:
            fixed = (
                f"With a fixed number in place of {' or '.join(map(repr, self.in_the_way))} there may be "
                "one; a step of its own for that variable does not help, as bounds would change with it. "
            )
        return (
            f"TunaMH needs a bound on the Taylor remainder of every local term: {self.reason.rstrip('.')}. "
            f"{fixed}Give curvature for a term with one linear predictor, or use "
            "AusterityMH(control_variate=Taylor()), which needs no bound."
        )


def bounded_rows(  # type: ignore[explicit-any]
    options: MetropolisOptions, surveyed: Survey, point: PointType, known: Sequence[Singles] = ()
) -> tuple[RowDraws, str]:
    """Bounds on the remainders of all local terms, with rows drawn by them; and the sources of these."""
    fact, found, curvature = surveyed.factorisation, surveyed.found, options.curvature
    folder = scratch_folder(fact)
    assert found is not None
    # More rows than this are not drawn: all are read instead.
    most = max(float(fact.n_local), 0.0 if np.isfinite(options.switch_above) else _MOST_DRAWN)
    names = [name for name, _ in fact.local_terms]
    unknown = [name for name in curvature if name not in names]
    if unknown:
        raise ValueError(
            f"curvature is given for {', '.join(map(repr, unknown))}, but the local terms of the model are "
            f"{', '.join(map(repr, names))}."
        )
    mode_fit = found.mode_fit
    assert mode_fit.expansion is not None
    whitening, directions = mode_fit.bound_factors()
    expansion = mode_fit.expansion
    coordinates = ExpansionCoordinates(expansion.order, expansion.center, directions, whitening)
    try:
        rows = found.rows_to_bound(curvature)
    except UnboundedError as error:
        raise NoBoundError(str(error), in_the_way(surveyed.structure)) from None
    stage("bounds", f" of {fact.n_rows:,} rows")
    groups = coordinate_groups(rows, coordinates)
    coordinates = coordinates if groups is None else groups.coordinates
    try:
        terms = bounded_terms(rows, coordinates, curvature)
        with _new_tables(folder) as new_table:
            table = None if folder is None else new_table((3, fact.n_local), np.float32)
            known = known if groups is None else ()  # others have coordinates of their own
            sampler = row_sampler_of(terms, coordinates, mode_fit.rounding, most, table, known)
    except UnboundedError as error:
        raise NoBoundError(str(error)) from None
    which = "third" if expansion.order == 2 else "second"
    sources = f"{which} derivatives of {' and '.join(each.bounds.description for each in terms)}"
    draws = plain_draws(sampler)
    # Rows that are expected for a move between two draws of the fitted distribution.
    many = sampler.totals[0] * typical_length(len(sampler.whitening)) ** 3 / 3.0
    if groups is not None and many > _FEW_ROWS:
        draws = grouped(sampler, rows, groups)
        sources += f"; {draws.state.tables}"
    elif (
        many > _MANY_ROWS
        and len(whitening) > _MANY_DIMENSIONS
        and expansion.order == 2
        and have_one_predictor(rows)
    ):
        with _new_tables(folder) as new_table:
            draws = screened(sampler, rows, coordinates, new_table)
        sources += "; rows that are drawn are evaluated only if a bound of their own allows for it"
    state = draws.state._replace(rounding=rounding_allowance(draws, found, point))
    return draws._replace(state=state), sources


@contextmanager
def _new_tables(folder: Path | None) -> Iterator[NewTable]:
    """Makes tables in a folder, or in memory; nothing is written to them afterwards."""
    with ExitStack() as opened:

        def new_table(shape: tuple[int, int], dtype: DTypeLike) -> ConstantsTable:
            if folder is None:
                return InMemory(shape, dtype)
            return opened.enter_context(closing(ScratchTable(folder, shape, dtype)))

        yield new_table


def scratch_folder(fact: Factorisation) -> Path | None:
    """Where bounds of rows on disk are kept, if it can be written to; None for data in memory."""
    rows = fact.rows_on_disk
    return rows[0].scratch_folder() if rows else None


def rounding_allowance(draws: RowDraws, found: FittedTerms, point: PointType) -> float:  # type: ignore[explicit-any]
    """What rounding adds to remainders: the most that is seen beyond their bounds, with a margin.

    It is measured at several distances from the center, on the rows with the largest bounds and some others.
    """
    sampler = draws.state
    n_local = sampler.constants.shape[1]
    rng = np.random.default_rng(_SEED)
    if n_local <= 2 * _ROWS:
        some = np.arange(n_local)
    else:
        others = rng.choice(n_local, _ROWS, replace=False, shuffle=False)
        some = np.union1d(positions_of_largest(sampler.constants[0], _ROWS), others)
    terms, features, center = LocalTerms(found.expanded), found.features, found.mode_fit.at
    _, directions = found.mode_fit.padded_factors()
    here = terms(point_of(found.expanded, center, point), some)
    allowance: float = sampler.rounding
    for distance in _DISTANCES:
        q = center + distance * directions @ rng.standard_normal(directions.shape[1])
        change = np.abs(terms(point_of(found.expanded, q, point), some) - here)
        move = draws.move(sampler, features(q), sampler.center)
        if not 0.0 < move.expected < math.inf:
            continue
        excess = change - draws.bounds(sampler, move, some)
        excess = excess[excess < _ROUNDING * (1.0 + np.abs(here))]  # larger ones are for the chain to report
        allowance = max(allowance, _MARGIN * float(excess.max(initial=0.0)))
    return allowance
