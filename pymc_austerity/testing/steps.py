"""Does a step keep PyMC's contract, and sample a posterior that is known?"""

from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any

import cloudpickle
import numpy as np
import pymc as pm
from pymc.step_methods.compound import Competence
from pymc.step_methods.state import DataClassState, equal_dataclass_values

from pymc_austerity.testing.compare import error_of_mean, require, require_close, require_same
from pymc_austerity.testing.models import Solved, normal_mean, two_blocks
from pymc_austerity.validation import renamed

MakeStep = Callable[..., Any]
Point = dict[str, np.ndarray]
# Long enough that an adaptive proposal learns something.
_N_STEPS = 60
_SEED = 20


@renamed(seed="random_seed")
def check_step(
    make_step: MakeStep,
    *,
    solved: Solved | None = None,
    vars: Sequence[str] | None = None,
    tolerance: float = 0.0,
    draws: int = 1000,
    tune: int = 500,
    partner: Any = pm.NUTS,
    carried: Sequence[str] = (),
    random_seed: int = 0,
) -> None:
    """Check a step method: PyMC's contract, and posteriors in closed form.

    Parameters
    ----------
    make_step : callable
        ``make_step(vars=None, **kwargs)``, called in the context of a model, returns a step for these
        variables. The only keyword is `rng`.
    solved : Solved, optional
        A model whose posterior is known, for steps that are not for any continuous variable: `rates`,
        `shares` and `allocations` of `testing.models`, or your own. Default: two regressions, one in which
        the step moves all variables, and one in which it moves two coefficients, and `partner` the intercept.
        They have 3000 rows with unit variance, and posterior standard deviations of about 0.02.
    vars : sequence of str, optional
        Names of the variables of `solved` that the step moves. Default: all.
    tolerance : float, default 0.0
        How far, in posterior standard deviations, means and standard deviations may be off, besides Monte
        Carlo error. A rule that is not exact widens the posterior.
    draws, tune : int
        For each of two chains.
    partner : type of step method, or callable, default pymc.NUTS
        ``partner(vars)`` makes the step for the other variables.
    carried : sequence of str, optional
        Names in the sampling state of what belongs to the chain, and changes after tuning too. All else in it
        (or in its `proposal_state`, if it has one) counts as learnt.
    random_seed : int, default 0

    Raises
    ------
    AssertionError
        With what differs, by how much, and what it means.

    See Also
    --------
    check_interface, check_points, check_state, check_chains, check_posterior : The parts, in this order.

    Notes
    -----
    *Guarantee*: a step that keeps the contract passes, but for bad luck with a seed.

    *When it fails*: errors of a posterior below `tolerance` and four Monte Carlo errors are not seen; 1000
    draws of a random walk leave some tenths of a standard deviation. Let `make_step` make several
    transitions for each draw.

    Examples
    --------
    >>> from pymc_austerity import MetropolisHastings, RandomWalk
    >>> from pymc_austerity.testing import check_step
    >>> def make_step(vars=None, **kwargs):
    ...     return MetropolisHastings(vars, proposal=RandomWalk(0.04), steps_per_draw=5, **kwargs)
    >>> check_step(make_step)
    """
    problems = [(two_blocks(), ["b"]), (normal_mean(), None)] if solved is None else [(solved, vars)]
    for number, (problem, names) in enumerate(problems):
        steps = _steps_for(problem, names, make_step, partner, random_seed)
        if number == 0:
            point = problem.draw(np.random.default_rng(random_seed))
            for check in (check_interface, check_points, check_state):
                check(steps[0], deepcopy(point))
            check_chains(steps[0], deepcopy(point), carried)
        check_posterior(problem, steps, tolerance=tolerance, draws=draws, tune=tune, random_seed=random_seed)


def _steps_for(
    solved: Solved, names: Sequence[str] | None, make_step: MakeStep, partner: Callable[..., Any], seed: int
) -> list[Any]:
    """The step for the named variables, or for all, and that for the others."""
    rng = np.random.default_rng(seed)
    with solved.model as model:
        if names is None:
            return [make_step(rng=rng)]
        step = make_step([model[name] for name in names], rng=rng)
        others = [rv for rv in model.free_RVs if rv.name not in names]
        return [step, partner(others)] if others else [step]


def move(step: Any, point: Point, n: int = _N_STEPS) -> tuple[list[Point], list[dict[str, Any]]]:
    """Points and statistics of n steps in a row."""
    points, stats = [], []
    for _ in range(n):
        point, (stat,) = step.step(point)
        points.append(point)
        stats.append(stat)
    return points, stats


def fresh(step: Any, tune: int = _N_STEPS, seed: int = _SEED) -> Any:
    """A copy of a step at the start of a chain, as `pymc.sample` begins it."""
    step = deepcopy(step)
    step.setup_chain(np.random.default_rng(seed), tune, _N_STEPS)
    step.tune = bool(tune)
    if hasattr(step, "reset_tuning"):
        step.reset_tuning()
    return step


def learnt(step: Any, carried: Sequence[str] = ()) -> Any:
    """Part of the sampling state that adaptation changes: `proposal_state`, or all but what is carried."""
    state = vars(step.sampling_state)
    if "proposal_state" in state:
        state = state["proposal_state"]._asdict()
    # `accepted` and `deviations` are notes of what moves did, which none of them reads.
    notes = ("accepted", "deviations")
    return {name: x for name, x in state.items() if name not in ("rng", "tune", *notes, *carried)}


def require_same_path(what: str, one: Any, other: Any, meaning: str) -> None:
    """Fail if two results of `move` are not equal, bit by bit."""
    for kind, found, expected in zip(("", "statistic "), one, other, strict=True):
        for k, (left, right) in enumerate(zip(found, expected, strict=True)):
            for name in left:
                place = f"{what}: {kind}{name} at step {k}"
                require_same(place, left[name], right[name], meaning)


def check_interface(step: Any, point: Point) -> None:
    """A name, a state, statistics of the types that are announced, and never assigned automatically."""
    require(isinstance(getattr(step, "name", None), str) and step.name, "The step has no `name`.")
    require(len(step.vars) > 0, "The step has no `vars`.")
    kind = getattr(step, "_state_class", None)
    require(
        isinstance(kind, type) and issubclass(kind, DataClassState),
        f"_state_class is {kind!r}. It must be a subclass of StepMethodState made by dataclass_state.",
    )
    for var in step.vars:
        for has_grad in (True, False):
            answer = type(step).competence(var, has_grad)
            require(
                answer == Competence.INCOMPATIBLE,
                f"competence of {var} is {answer!r}: pm.sample would use an approximate step without being "
                "asked. It must be Competence.INCOMPATIBLE.",
            )
    announced = step.stats_dtypes_shapes
    for stat in move(fresh(step), point, 5)[1]:
        require(
            stat.keys() == announced.keys(),
            f"stats_dtypes_shapes announces {sorted(announced)}, but a step returned {sorted(stat)}.",
        )
        for name, (dtype, shape) in announced.items():
            value = np.asarray(stat[name])
            require(
                value.dtype == np.dtype(dtype) and value.shape == tuple(shape),
                f"The statistic {name} is of type {value.dtype} and shape {value.shape}, announced as "
                f"{np.dtype(dtype)} and {shape}.",
            )


def check_points(step: Any, point: Point) -> None:
    """A step returns a new point of all variables; it changes neither the old one nor other variables."""
    own, step = {var.name for var in step.vars}, fresh(step)
    moved = 0
    for k in range(_N_STEPS):
        kept = deepcopy(point)
        new, _ = step.step(point)
        for name, value in kept.items():
            require(
                np.array_equal(point[name], value),
                f"Step {k} changed {name} in the point that it was given, from {value} to {point[name]}: "
                "draws that PyMC has kept change afterwards.",
            )
        require(new.keys() == kept.keys(), f"The new point has {sorted(new)} instead of {sorted(kept)}.")
        for name, value in kept.items():
            require(
                np.shape(new[name]) == np.shape(value) and np.asarray(new[name]).dtype == value.dtype,
                f"{name} came back with shape {np.shape(new[name])} and type {np.asarray(new[name]).dtype}, "
                f"instead of {np.shape(value)} and {value.dtype}.",
            )
            if name not in own:
                require(np.array_equal(new[name], value), f"Step {k} changed {name}, which is not its own.")
        moved += any(not np.array_equal(new[name], kept[name]) for name in own)
        point = new
    require(moved, f"In {_N_STEPS} steps from a typical point the chain never moved.")


def check_state(step: Any, point: Point) -> None:
    """Sampling state, pickles and copies go on with identical draws; random numbers are the step's own."""
    step = fresh(step)
    move(step, point)
    state = step.sampling_state
    expected = move(step, point)
    require(
        not equal_dataclass_values(step.sampling_state, state),
        "sampling_state did not change: it shares memory with the step, or misses the generator.",
    )
    step.sampling_state = state
    global_state = str(np.random.get_state())  # noqa: NPY002
    require_same_path(
        "A step whose sampling_state was set back", move(step, point), expected, "It misses something."
    )
    require(
        str(np.random.get_state()) == global_state,  # noqa: NPY002
        "The step uses numpy's global random numbers: chains are not determined by their seeds.",
    )
    for what, other in (
        ("A deep copy", deepcopy(step)),
        ("A pickle", cloudpickle.loads(cloudpickle.dumps(step))),
    ):
        other.sampling_state = state
        require_same_path(what, move(other, point), expected, "Workers would draw something else.")
    step.sampling_state = state
    kept = deepcopy(step.sampling_state)
    move(deepcopy(step), point)
    require(
        equal_dataclass_values(step.sampling_state, kept),
        "Steps of a deep copy changed the original: they share memory.",
    )
    restored = cloudpickle.loads(cloudpickle.dumps(state))
    require(equal_dataclass_values(restored, state), "sampling_state does not survive a pickle.")


def check_chains(step: Any, point: Point, carried: Sequence[str] = ()) -> None:
    """`setup_chain` starts afresh with the generator that it is given, and tuning ends."""
    paths = []
    one = fresh(step)
    for seed in (_SEED, _SEED, _SEED + 1):
        one.setup_chain(np.random.default_rng(seed), _N_STEPS, _N_STEPS)
        paths.append(move(one, point))
    require_same_path(
        "A second chain with the seed of the first", paths[1], paths[0], "setup_chain keeps something."
    )
    require(
        any(not np.array_equal(p[n], q[n]) for p, q in zip(paths[0][0], paths[2][0], strict=True) for n in p),
        "Chains with different seeds are identical: the step does not use the generator of setup_chain.",
    )

    def require_unchanged(one: Any, start: Point, what: str, meaning: str) -> None:
        before = deepcopy(learnt(one, carried))
        move(one, start)
        after = learnt(one, carried)
        require(equal_dataclass_values(after, before), f"{what}: {before} became {after}.{meaning}")

    one = fresh(step)
    points, _ = move(one, point)
    one.stop_tuning()
    meaning = " Draws that are kept then have another distribution than the target."
    require_unchanged(one, points[-1], "The step still learnt after stop_tuning", meaning)
    require_unchanged(fresh(step, tune=0), point, "The step learnt in a chain without tuning", "")


@renamed(seed="random_seed")
def check_posterior(
    solved: Solved,
    step: Any,
    *,
    tolerance: float = 0.0,
    draws: int = 1000,
    tune: int = 500,
    random_seed: int = 0,
    **options: Any,
) -> None:
    """`pymc.sample` with a step, or a list of them, finds the means and standard deviations of the posterior.

    Parameters
    ----------
    solved : Solved
    step : step method, or list of them
        Other variables are given to PyMC's choice.
    tolerance : float, default 0.0
        In posterior standard deviations.
    draws, tune, random_seed : int
        Of two chains.
    **options
        For `pymc.sample`.

    Examples
    --------
    >>> from pymc_austerity import MetropolisHastings, RandomWalk
    >>> from pymc_austerity.testing import check_posterior
    >>> from pymc_austerity.testing.models import normal_mean
    >>> solved = normal_mean()
    >>> step = MetropolisHastings(proposal=RandomWalk(0.04), model=solved.model)
    >>> check_posterior(solved, step, draws=2000, tune=0)
    """
    options = {"chains": 2, "cores": 1, "progressbar": False, "quiet": True, **options}
    idata = pm.sample(
        model=solved.model, step=step, draws=draws, tune=tune, random_seed=random_seed,
        initvals=solved.start or solved.mean, compute_convergence_checks=False, **options,
    )  # fmt: skip
    for name, mean in solved.mean.items():
        found = idata["posterior"][name].to_numpy()
        for place in np.ndindex(np.shape(mean)):
            sd = solved.sd[name][place]
            # In units of the posterior.
            z = (found[(..., *place)] - mean[place]) / sd
            what = f"{name}{list(place) if place else ''}"
            meaning = f"From {z.size} draws; in posterior standard deviations."
            require_close(
                f"The posterior mean of {what}, less the true one,",
                z.mean(), 0.0, error_of_mean(z), tolerance, meaning,
            )  # fmt: skip
            root = float(np.sqrt(np.mean(z**2)))
            require_close(
                f"The posterior standard deviation of {what}, over the true one,",
                root, 1.0, error_of_mean(z**2) / (2.0 * root), tolerance, meaning,
            )  # fmt: skip
