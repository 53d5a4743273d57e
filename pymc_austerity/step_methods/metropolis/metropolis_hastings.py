"""Metropolis-Hastings with any decision rule."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pymc as pm
from pytensor.graph.basic import Variable

from pymc_austerity.acceptance.base import AcceptanceRule, Exact
from pymc_austerity.control_variates.taylor import Taylor
from pymc_austerity.step_methods.metropolis.base import SubsampledStep
from pymc_austerity.step_methods.metropolis.options import Subsample, checked_rule
from pymc_austerity.work import DEFAULT_BUDGET

_EXACT = Exact()


class MetropolisHastings(SubsampledStep):
    """Metropolis-Hastings with a decision rule of your choice, by default the exact test on all data.

    The reference for all subsampled steps: same model, same proposal, another rule. The other steps are this
    one with a rule of their own.

    Parameters
    ----------
    vars : variables or their names, optional
        Continuous variables to update together. Default: all of the model.
    acceptance : AcceptanceRule, default Exact()
        One of `pymc_austerity.acceptance`: `Exact`, `ExactBarker`, `TTest`, `Concentration`, `Barker`; or an
        object with the same methods.
    range_bound : "exact" or callable, optional
        For rules that need the range of the log ratios; see `MHSubLhd`.
    proposal : RandomWalk, AdaptiveRandomWalk, Laplace, Surrogate, or callable, optional
        Default: ``AdaptiveRandomWalk()``. With a control variate ``Laplace()``, or ``Surrogate()`` if the
        block has variables that are in no local term (hierarchical scales). A function
        ``(q, rng) -> (q_new, log_hastings)``, or an object with such a method ``propose``, with
        ``log_hastings = log q(q | q_new) - log q(q_new | q)``; q is the vector of the (unconstrained) value
        variables. It is compiled by numba where that is possible.
    control_variate : Taylor, optional
        Decide on Taylor remainders of the local terms, which takes some 50 rows at any N where the
        posterior is not far from normal. Default: on the terms themselves. With it and the default proposal,
        effects of 30 groups or more are moved as a field, as by `TunaMH`: the variables that groups share
        are decided from all rows, a group from its own, by the exact rule or by any that needs no range.
    subsample : "gather" or "block", optional
        Read single rows at random, or blocks of up to 32 neighbours of once-shuffled rows. Default: blocks
        from 50,000 rows on, for one vector of local terms and rules that allow it.
    elementwise : bool, default False
        Move one element of the variables at a time (a row, of tables), each with a random walk of its own
        scale, and decide on the rows that contain it. Rows have to look elements up, as in ``a[group]``.
        Elements with fewer rows than two batches read all of them. `fraction_used` is then the share of the
        rows of the elements that moved, and `threshold` has no meaning.
    steps_per_draw : int >= 1, optional
        Transitions for each recorded draw. Default: 1; with `elementwise` one for each element.
    threshold : int, default 1000
        Vectors of at least so many terms are subsampled.
    temperature : float > 0, default 1.0
        Divides the log likelihood (observed variables and potentials), but not the prior. Everything that is
        sampled, and the sample statistics, then belong to the tempered posterior, provided that all variables
        in the likelihood are updated by steps with the same temperature; a warning names others.
    tune : bool, default True
        Whether an adaptive proposal learns during the tuning draws.
    set_up_budget : float > 0, default 60.0
        What the search for the mode, the expansion, bounds and pilot runs may cost together, in units of 1e9
        operations, each about a second of a core; compilation is not counted. Work is counted, not timed:
        rows times dimensions squared for each pass, and dimensions cubed. A set-up that would cost more ends
        in an error that says so, but it may always cost as much as 1,000 gradients of all rows. ``inf`` is no
        budget.
    compress : bool, default True
        Join equal rows where all decisions are exact: rows of which all data are the same, byte by byte,
        become one row with a weight, if they are at least four times fewer then. The density is the same up
        to rounding. Rows that are read, and `n_local`, are then different rows. Some rows are looked at
        first, and all if some of these are equal, on disk too. What is found is logged.
    model, blocked, rng, initial_point, compile_kwargs
        As in PyMC's own step methods.
    progressbar : bool, default True
        Whether a set-up that takes more than a second is shown while it lasts.

    Raises
    ------
    TypeError
        If `acceptance` is not a decision rule.
    ValueError
        If a parameter is out of range, a variable is discrete, or the model has nothing to subsample.
    FactorisationError
        If rows of a term cannot be computed one by one.

    Notes
    -----
    *Guarantee*: that of the rule. With `Exact` and `ExactBarker` the posterior is the stationary
    distribution.

    *When it fails*: as the rule does. With an exact rule a transition costs one pass over the data.

    *Where a chain starts*: where `pm.sample` says. With one exception: proposals that are fitted at the mode
    (`Laplace`, `Surrogate`) hardly move in the far tails. If a chain that tunes would start there with its
    variables at the model's initial point, where PyMC starts chains without `initvals`, it starts instead
    from a draw of the normal distribution fitted at the mode, another one for each chain. A start that was
    chosen is kept; a warning tells if it is far from the mode.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> from pymc_austerity import MetropolisHastings, RandomWalk
    >>> rng = np.random.default_rng(1)
    >>> x = rng.normal(size=2000)
    >>> y = rng.poisson(np.exp(1 + 0.3 * x))
    >>> with pm.Model() as model:
    ...     level, slope = pm.Normal("level"), pm.Normal("slope")
    ...     visits = pm.Poisson("visits", pm.math.exp(level + slope * x), observed=y)
    >>> from pymc_austerity.acceptance import ExactBarker
    >>> with model:
    ...     step = MetropolisHastings([slope], acceptance=ExactBarker(), proposal=RandomWalk(0.05))
    ...     point, (stats,) = step.step({"level": np.array(1.0), "slope": np.array(0.3)})
    >>> stats["fraction_used"]
    1.0
    """

    name = "metropolis_hastings"

    def __init__(
        self,
        vars: Variable | str | Sequence[Variable | str] | None = None,
        *,
        acceptance: AcceptanceRule = _EXACT,
        range_bound: Any = None,
        proposal: Any = None,
        control_variate: Taylor | None = None,
        subsample: Subsample | None = None,
        elementwise: bool = False,
        steps_per_draw: int | None = None,
        threshold: int = 1000,
        temperature: float = 1.0,
        tune: bool = True,
        set_up_budget: float = DEFAULT_BUDGET,
        compress: bool = True,
        model: pm.Model | None = None,
        blocked: bool = True,
        rng: Any = None,
        initial_point: dict[str, np.ndarray] | None = None,
        compile_kwargs: dict[str, Any] | None = None,
        progressbar: bool = True,
    ) -> None:
        super().__init__(
            vars,
            checked_rule(acceptance),
            range_bound=range_bound,
            proposal=proposal,
            control_variate=control_variate,
            subsample=subsample,
            elementwise=elementwise,
            steps_per_draw=steps_per_draw,
            threshold=threshold,
            temperature=temperature,
            tune=tune,
            set_up_budget=set_up_budget,
            compress=compress,
            model=model,
            rng=rng,
            initial_point=initial_point,
            compile_kwargs=compile_kwargs,
            progressbar=progressbar,
        )
