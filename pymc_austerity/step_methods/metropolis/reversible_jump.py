"""Variable selection by jumps between sub-models: the step, and its plan."""

import gc
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Unpack, get_args

import numpy as np
from pymc.initial_point import PointType
from pytensor.graph.basic import Variable

from pymc_austerity.acceptance.base import AcceptanceRule, Exact, with_batch_size
from pymc_austerity.kernels.jumps import counted_full_transitions, counted_transitions
from pymc_austerity.kernels.metropolis import Outcome
from pymc_austerity.kernels.subsample import NO_ROWS
from pymc_austerity.mode.log_ratios import bounded_state
from pymc_austerity.mode.mode_fit import ModeFit, fit_mode
from pymc_austerity.model.factorisation import point_of, vector_of
from pymc_austerity.model.graph.functions import function_of
from pymc_austerity.model.graph.log_density import fingerprint
from pymc_austerity.model.selection.selection import Selection, find_selection
from pymc_austerity.model.structure.term_structure import TermStructure
from pymc_austerity.proposals.base import Block, BoundProposal, bind, proposed_move
from pymc_austerity.proposals.jumps import (
    COUNTS,
    KINDS,
    Jumps,
    JumpState,
    Redraw,
    SubmodelExpansion,
    bound_jumps,
    slab_precision,
)
from pymc_austerity.step_methods.base import floats
from pymc_austerity.step_methods.messages import refuse_short, try_proposal
from pymc_austerity.step_methods.metropolis.base import DTYPES_SHAPES, SubsampledStep
from pymc_austerity.step_methods.metropolis.engine.sequential import RuleEngine, range_bound_for
from pymc_austerity.step_methods.metropolis.options import JumpOptions, MetropolisOptions, checked_rule
from pymc_austerity.step_methods.metropolis.plan import BlockPlan, Recipe, log_ratios_for, require_same_data
from pymc_austerity.validation import is_real

_EXACT = Exact()
# Rows of the likelihood that are enough: an exact rule reads all of them in any case.
_THRESHOLD = 100
# Smallest eigenvalue of the precision of the likelihood, scaled to a unit diagonal.
_FLAT = 1e-10
# Sample statistics of births, deaths, swaps and other moves, such as "births_accepted".
_COLUMNS = floats(*(f"{kind}_{what}" for kind in KINDS for what in COUNTS))


class ReversibleJump(SubsampledStep):
    r"""Variable selection: coefficients come and go, by jumps that any decision rule decides.

    For models with indicators and coefficients, whose likelihood contains their product:

        gamma = pm.Bernoulli("gamma", 0.2, shape=p)
        beta = pm.Normal("beta", 0, 1, shape=p)
        a = pm.Normal("a", 0, 5)
        pm.Bernoulli("y", logit_p=a + X @ (gamma * beta), observed=y)

    A coefficient with gamma_j = 0, a *dummy*, stays in the trace, and is drawn from its prior, the *slab*. So
    the target is PyMC's own joint density; the name is that of the field, though no dimension changes.

    Parameters
    ----------
    vars : variables or their names, optional
        One vector of `pm.Bernoulli`, the vector of coefficients that it is multiplied with, and other
        continuous variables of the likelihood. Default: all of the model.
    acceptance : AcceptanceRule, default Exact()
        As of `MetropolisHastings`.
    jump : float in (0, 1], default 0.8
        Share of the moves that are jumps.
    swap : float in [0, 1], default 0.3
        Share of the jumps in which one coefficient comes for another; in the others one comes or goes. It has
        to be 0 for a single coefficient.
    redraw : "all" or "one", default "all"
        What is proposed beside the indicators: all active coefficients and the other continuous variables, or
        the one coefficient that comes, as in the paper.
    **options
        `proposal` makes the other moves, those without a jump, of all continuous variables, in place of the
        same redraw: `RandomWalk`, `AdaptiveRandomWalk`, `Laplace` or a function. `threshold` is 100 by
        default, and has to be above p. As of `MetropolisHastings` are `range_bound`, `subsample`,
        `steps_per_draw`, `temperature`, `tune`, `set_up_budget`, `model`, `blocked`, `rng`, `initial_point`,
        `compile_kwargs` and `progressbar`.

    Raises
    ------
    ValueError
        If a parameter is out of range; if there are no indicators of `pm.Bernoulli`, or not one for each
        coefficient; if a term contains coefficients outside gamma * beta; if the slab is not `pm.Normal`,
        `pm.Laplace` or `pm.StudentT`. The message names the term.
    FactorisationError
        If rows of a term cannot be computed one by one.

    Notes
    -----
    Section 6.3 and appendix E of Korattikara, Chen & Welling (2014), after Green (1995). A jump flips the
    indicator of one coefficient, each as likely, or exchanges one that is in for one that is out. Where there
    is nothing to exchange the move is rejected. New values x' of the coordinates of the new sub-model are
    drawn from a multivariate t distribution q(x' | gamma') of 8 degrees of freedom, around the normal
    distribution that the expansion of the log likelihood at the mode of the full model (gamma = 1) gives for
    them, and 1.1 times as wide. That takes O(k^3) and no data. The scale of the slab is the present one, also
    if other steps move it. Then with `redraw` "all"

        psi = [log u - (change of the other global terms) - log slab(active', new) + log slab(active, old)
               + log q(x' | gamma') - log q(x | gamma)] / N,

    since dummies are drawn from the slab and cancel.

    Sample statistics are those of `AusterityMH` and, for births, deaths, swaps and other moves, their numbers
    in a draw: `births_proposed`, `births_accepted`, `births_used` (terms that were read), and so on. See
    `diagnostics.inclusion`.

    The paper is corrected in these points. The probabilities of its moves have to be those of the particular
    gamma' (equations 40 and 41). Its prior of the scale of the slab, p(nu) ~ 1/nu, has no posterior: near b =
    0 the integral of L(b) \|b\|_1^-k grows by 2 L(0) for each factor e, with one predictor. Take a proper
    one. Moving one coefficient at a time stays where it starts on correlated features, and its Monte Carlo
    error looks small there.

    *Guarantee*: that of the rule. With `Exact` the posterior is the stationary distribution, however rough
    the expansion is.

    *When it fails*: where the likelihood is far from its expansion at the mode of the full model (few rows,
    separated responses) few jumps are accepted. Sub-models that differ in three coefficients or more are
    reached through those between. With `redraw` "one" correlated coefficients hold each other in place. Most
    jumps are hopeless, and a test that takes a few of them visits models that have no probability. Tests of
    many stages do, with Pocock's boundary: on 20,000 rows of Covertype `TTest(0.01)` was off by 0.09 in a
    probability, and `TTest(0.01, boundary=1.0)` by 0.01.

    References
    ----------
    .. [1] Korattikara, A., Chen, Y. & Welling, M. (2014). Austerity in MCMC land: cutting the
       Metropolis-Hastings budget. ICML.
    .. [2] Green, P. J. (1995). Reversible jump Markov chain Monte Carlo computation and Bayesian model
       determination. Biometrika 82.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> from pymc_austerity import ReversibleJump
    >>> rng = np.random.default_rng(1)
    >>> X = rng.normal(size=(2000, 3))
    >>> y = 0.5 * X[:, 0] + rng.normal(size=2000)
    >>> with pm.Model() as model:
    ...     gamma = pm.Bernoulli("gamma", 0.2, shape=3)
    ...     beta = pm.Normal("beta", 0, 1, shape=3)
    ...     outcome = pm.Normal("outcome", X @ (gamma * beta), 1, observed=y)
    ...     step = ReversibleJump([gamma, beta], rng=1)
    ...     idata = pm.sample(200, tune=50, chains=1, step=step, progressbar=False, random_seed=1)
    >>> bool(idata.posterior["gamma"].mean(("chain", "draw"))[0] > 0.9)
    True
    """

    name = "reversible_jump"
    _reads_disk = False
    _counts_in_outcome = False
    _discrete = True
    stats_dtypes_shapes = DTYPES_SHAPES | _COLUMNS

    def __init__(
        self,
        vars: Variable | str | Sequence[Variable | str] | None = None,
        *,
        acceptance: AcceptanceRule = _EXACT,
        jump: float = 0.8,
        swap: float = 0.3,
        redraw: Redraw = "all",
        **options: Unpack[JumpOptions],
    ) -> None:
        self._jumps = _checked_jumps(jump, swap, redraw, options.get("proposal"))
        options.setdefault("threshold", _THRESHOLD)
        super().__init__(vars, checked_rule(acceptance), **options)

    def _planned(self, point: PointType, recipe: Recipe | None = None) -> BlockPlan[Recipe]:
        return plan_jumps(self._options, point, self._jumps, recipe)

    def _begin_chain(self, n_tune: int) -> None:
        # Dummies and indicators say nothing of where a chain is going.
        super()._begin_chain(n_tune=0)

    def _statistics(self, outcome: Outcome, n: int) -> dict[str, Any]:
        state = self.proposal_state
        moves = dict(zip(_COLUMNS, state.tally.ravel().copy(), strict=True))
        state.forget()
        return {**super()._statistics(outcome, n), **moves, "scale": float(state.given.scale[0])}


def _checked_jumps(jump: Any, swap: Any, redraw: Any, other: Any) -> Jumps:
    if not is_real(jump) or not 0.0 < jump <= 1.0:
        raise ValueError(
            f"jump must be in (0, 1], got {jump!r}. It is the share of the moves that are jumps."
        )
    if not is_real(swap) or not 0.0 <= swap <= 1.0:
        raise ValueError(
            f"swap must be in [0, 1], got {swap!r}. It is the share of the jumps that are swaps."
        )
    if redraw not in get_args(Redraw):
        raise ValueError(f'redraw must be "all" or "one", got {redraw!r}.')
    return Jumps(float(jump), float(swap), redraw, other)


# The plan ---------------------------------------------------------------------------------------------------


def plan_jumps(
    options: MetropolisOptions, point: PointType, jumps: Jumps, recipe: Recipe | None = None
) -> BlockPlan[Recipe]:
    """Find indicators and coefficients, and the mode of the full model, if no recipe has it."""
    selection = find_selection(
        options.model,
        options.vars,
        point,
        threshold=options.threshold,
        temperature=options.temperature,
        check=recipe is None,
    )
    fact, n_local = selection.factorisation, selection.factorisation.n_local
    require_same_data(recipe, fact.graph)
    structure = TermStructure(selection.full)
    if recipe is None:
        if not n_local:
            refuse_short(fact, options.threshold, options.model)
        if selection.n_coefficients == 1 and jumps.swap > 0.0:
            raise ValueError(
                f"swap={jumps.swap!r} has no meaning with one coefficient, which nothing can be swapped for. "
                "Give swap=0."
            )
        gc.collect()  # graphs that were compared are cycles, and hold vectors of all rows
        at_full = selection.full_point(point)
        mode_fit = fit_mode(options.model, structure, at_full, None, whole_block=True).mode_fit
        bound = _bound(options, jumps, n_local, _expansion(selection, mode_fit, at_full), mode_fit)
        recipe = Recipe(
            data=fingerprint(fact.graph),
            n_local=n_local,
            n_dim=len(vector_of(fact, point)),
            rule=with_batch_size(options.acceptance, n_local, options.default_batch),
            proposal=jumps,
            proposal_state=bound.state,
            mode_fit=mode_fit,
            log_ratios=log_ratios_for(options, structure, at_full, None),
        )
    else:
        state, fit = recipe.proposal_state, recipe.mode_fit
        assert isinstance(state, JumpState)
        assert fit is not None
        bound = _bound(options, jumps, n_local, state.expansion, fit)
    rule, log_ratios = recipe.rule, recipe.log_ratios
    if log_ratios is not None:
        fact = replace(fact, features=selection.of_states(bounded_state(structure)))

    def engine(bound: BoundProposal, q: np.ndarray, point: PointType) -> RuleEngine:
        range_bound = range_bound_for(rule, options.range_bound, log_ratios, q)
        kernels = counted_full_transitions, counted_transitions
        return RuleEngine(bound, q, point, fact, rule, range_bound, NO_ROWS, options.subsample, kernels)

    return BlockPlan(options, fact, recipe, bound, engine)


def _expansion(selection: Selection, mode_fit: ModeFit, point: PointType) -> SubmodelExpansion:
    """The log likelihood, with the priors of all but the coefficients, as a polynomial at the mode.

    At the mode the gradient of the whole log density is zero: what remains without the slab is minus its own.
    """
    full, family, p = selection.full, selection.family, selection.n_coefficients
    mode, precision = mode_fit.proxy.mode, mode_fit.proxy.precision
    values = full.point_values(point_of(full, mode, point))
    slab = function_of(list(full.graph.values.values()), selection.factorisation.slab)
    parameters = slab(*values)
    own = np.zeros(len(mode))
    own[:p] = [slab_precision(family, parameters, j) for j in range(p)]
    linear = precision @ mode - own * np.concatenate([parameters[:p], np.zeros(len(mode) - p)])
    return SubmodelExpansion(
        family, np.concatenate([np.ones(p), mode]), linear, _positive(precision - np.diag(own))
    )


def _positive(precision: np.ndarray) -> np.ndarray:
    """The nearest matrix without negative eigenvalues: then all its sub-matrices with slabs are positive."""
    scale = np.sqrt(np.maximum(np.abs(np.diag(precision)), np.finfo(float).tiny))
    values, vectors = np.linalg.eigh(precision / np.outer(scale, scale))
    if values[0] >= _FLAT:
        return precision
    raised = (vectors * np.maximum(values, _FLAT)) @ vectors.T
    return np.asarray(raised * np.outer(scale, scale))


def _bound(
    options: MetropolisOptions,
    jumps: Jumps,
    n_local: int,
    expansion: SubmodelExpansion,
    mode_fit: ModeFit,
) -> BoundProposal:
    """The jumps, with the given proposal of the other moves, if there is one."""
    if jumps.other is None:
        return bound_jumps(jumps, expansion)
    n_dim = len(expansion.linear)
    rate = options.acceptance.target_accept(n_dim)
    block = Block(n_dim, n_local)
    given = bind(jumps.other, n_dim, rate, mode_fit.proxy, block)
    if given.move is not proposed_move:
        raise ValueError(
            f"proposal={jumps.other!r} needs the target of a block of continuous variables. Between jumps "
            "move by RandomWalk, AdaptiveRandomWalk, Laplace or a function, or leave proposal out."
        )
    try_proposal(given, expansion.center[-n_dim:])
    return bound_jumps(jumps, expansion, given)
