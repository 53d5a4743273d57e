"""Four models and the samplers of `tests.benchmarks.rivals`; run as a module, one sampler on one model.

Regressions, with their data and their reference, are those of `tests.benchmarks.everyone`. Hierarchies have
eight coefficients and an effect of each group, or an intercept and a slope, each with a scale of its own.
"""

import json
import logging
import os
import resource
import sys
import time
from dataclasses import dataclass
from functools import cached_property

import arviz as az
import numpy as np

from tests.benchmarks.everyone import methods, peers
from tests.benchmarks.everyone.plans import Method, Plan
from tests.benchmarks.everyone.problems import Problem
from tests.benchmarks.everyone.reference import reference
from tests.benchmarks.everyone.worker import machine, sources, versions

REGRESSIONS = {"logistic": "standard", "rare": "few-positives"}
HIERARCHIES = {"groups": ("logistic", 100), "slopes": ("poisson", 500)}  # rows of a group, on average
LOOKED_AT = 100  # effects, chosen beforehand: of groups from the smallest to the largest
MOST = 4e9  # bytes of the proxy of HMCECS
FEWEST, WORST_R_HAT = 100, 1.01
COLD = Plan(100, 100, 0.0)


@dataclass(frozen=True)
class Groups:
    """Logistic with an effect of each group, or Poisson with an intercept and a slope of each."""

    name: str
    n: int

    @cached_property
    def data(self):
        from tests.benchmarks.hierarchy_models import Hierarchy, simulated

        likelihood, rows = HIERARCHIES[self.name]
        effects = "intercepts" if self.name == "groups" else "slopes"
        return simulated(Hierarchy(likelihood, effects, self.n, self.n // rows, 0))

    @cached_property
    def columns(self):
        """Of which groups have effects."""
        return [np.ones(self.n), self.data["x"][:, 2]][: 1 if self.name == "groups" else 2]

    @cached_property
    def chosen(self):
        order = np.argsort(np.bincount(self.data["group"], minlength=self.size), kind="stable")
        return order[np.unique(np.linspace(0, self.size - 1, LOOKED_AT).astype(int))]

    @property
    def size(self):
        return self.n // HIERARCHIES[self.name][1]

    @property
    def shared(self):
        return 8 + len(self.columns)

    def model(self, centred=True):
        import pymc as pm

        data = self.data
        with pm.Model() as model:
            eta = data["x"] @ pm.Normal("beta", 0, 2, shape=8)
            for k, column in enumerate(self.columns):
                tau = pm.HalfNormal(f"tau{k}", 1)
                if centred:
                    u = pm.Normal(f"u{k}", 0, tau, shape=self.size)
                else:
                    u = pm.Deterministic(f"u{k}", tau * pm.Normal(f"z{k}", shape=self.size))
                eta = eta + (u[data["group"]] * column if k else u[data["group"]])
            if self.name == "groups":
                pm.Bernoulli("y", logit_p=eta, observed=data["y"])
            else:
                pm.Poisson("y", data["exposure"] * pm.math.exp(eta), observed=data["y"])
        return model

    def values(self, posterior):
        """Draws as an array: coefficients, scales, and the effects that are looked at."""
        taus = [np.asarray(posterior[f"tau{k}"])[..., None] for k in range(len(self.columns))]
        effects = [np.asarray(posterior[f"u{k}"])[..., self.chosen] for k in range(len(self.columns))]
        return np.concatenate([np.asarray(posterior["beta"]), *taus, *effects], axis=-1)

    def fit(self):
        """GPBoost, with its defaults: it maximises a Laplace approximation of the likelihood."""
        import gpboost

        data, poisson = self.data, self.name == "slopes"
        slopes = {"group_rand_coef_data": data["x"][:, 2], "ind_effect_group_rand_coef": [1]}
        model = gpboost.GPModel(
            group_data=data["group"], likelihood="poisson" if poisson else "bernoulli_logit",
            num_parallel_threads=1, **(slopes if poisson else {}),
        )  # fmt: skip
        offset = np.log(data["exposure"]) if poisson else None
        model.fit(y=data["y"].astype(float), X=data["x"], offset=offset)
        beta, variance = (
            np.asarray(found(std_err=True, format_pandas=False))
            for found in (model.get_coef, model.get_cov_pars)
        )
        tau = np.sqrt(variance[0].ravel())
        errors = np.concatenate([beta[1], variance[1].ravel() / (2 * tau)])
        return np.concatenate([beta[0], tau]), errors, model


class Regression(Problem):
    """A regression of `everyone`."""

    columns = ()
    shared = 10

    def values(self, posterior):
        return np.asarray(posterior["beta"])


def problem_of(name, n):
    return Regression(REGRESSIONS[name], n, 10) if name in REGRESSIONS else Groups(name, n)


def cpu():
    """CPU seconds of this process and of compilers that it has called."""
    return sum(os.times()[:4])


def ours(problem, plan):
    import pymc_austerity as pma

    model = problem.model()
    began = cpu()
    with model:
        step = pma.recommend(verbose=False, progressbar=False)
        ready = cpu()
        found = pma.sample(
            plan.draws, tune=plan.tune, step=step, chains=4, cores=1, random_seed=1, progressbar=False,
            quiet=True, compute_convergence_checks=False,
        )  # fmt: skip
    spent, share = cpu() - ready, plan.draws / (plan.draws + plan.tune)
    times = {"set_up": ready - began, "tuning": spent * (1 - share), "sampling": spent * share}
    return {**times, "samples": problem.values(found.posterior)}


def nutpie(problem, plan):
    """Its defaults, four chains: the better of two metrics and, for hierarchies, of two spellings."""
    import nutpie

    runs = []
    for centred in (True, False) if problem.columns else (True,):
        model = problem.model(centred) if problem.columns else problem.model()
        began = cpu()
        compiled = nutpie.compile_pymc_model(model)
        compilation = cpu() - began
        if not plan.seconds:
            return {"set_up": compilation, "tuning": 0.0, "sampling": 0.0, "note": "compiled"}
        spelling = [("centred" if centred else "not centred")] if problem.columns else []
        for metric in ("diag", "low_rank"):
            run = one_nutpie(problem, compiled, metric, plan.seconds)
            runs.append({**run, "set_up": compilation, "settings": ", ".join([metric, *spelling])})
    done = [run for run in runs if not run["bound"]]
    return {**min(done or runs, key=to_1000), "reference": pooled(done)}


def one_nutpie(problem, compiled, metric, budget):
    """Chains run one after another; of a run that is stopped those count that are complete, two at least."""
    found, spent = methods.stopped(compiled, budget, chains=4, adaptation=metric)
    both = (found[group]["n_steps"].values for group in ("sample_stats", "warmup_sample_stats"))
    steps, warm = (np.nan_to_num(each.astype(float)) for each in both)
    drawn, per_gradient = (steps > 0).sum(axis=1), spent / max(steps.sum() + warm.sum(), 1.0)
    full = drawn == max(drawn.max(), 1)
    if full.sum() > 1:
        scores = scored(problem, problem.values(found.posterior)[full][:, : drawn.max()])
        times = {"tuning": warm[full].sum() * per_gradient, "sampling": steps[full].sum() * per_gradient}
        if scores["r_hat"] < WORST_R_HAT and scores["ess"] >= FEWEST:
            return {**times, **scores, "bound": False}
    times = {"tuning": warm.sum() * per_gradient, "sampling": steps.sum() * per_gradient}
    return {**times, "chains": 4, "draws": int(drawn.sum()), "ess": float(drawn.sum()), "bound": True}


def pooled(runs):
    """Moments of several runs, weighted by their errors."""
    found = {}
    for name in ("mean", "sd") if runs else ():
        weights = np.array([np.asarray(run[f"{name}_error"]) ** -2.0 for run in runs])
        found[name] = (weights * [run[name] for run in runs]).sum(axis=0) / weights.sum(axis=0)
        found[f"{name}_error"] = weights.sum(axis=0) ** -0.5
    return found


def fit(problem, plan):
    began = cpu()
    mean, errors, _ = problem.fit()
    found = {"mean": mean, "sd": errors, "mean_error": 0 * mean, "sd_error": 0 * mean}
    return {**found, "set_up": 0.0, "tuning": 0.0, "sampling": cpu() - began, "ess": None}


def hmcecs(problem, plan):
    """With a second-order proxy around the mode, or around GPBoost's fit where there are effects."""
    if not problem.columns:
        return peers.hmcecs(problem, plan)
    dim = problem.shared + len(problem.columns) * problem.size
    if (size := peers.BATCH * dim**2 * 8) > MOST:
        return {"note": f"its proxy would keep {dim:,} by {dim:,} numbers for each of {peers.BATCH} rows, "
                f"{size / 1e9:,.0f} GB"}  # fmt: skip
    import jax
    import numpyro
    import numpyro.distributions as dist

    def model(x, group, columns, exposure, y):
        beta = numpyro.sample("beta", dist.Normal(0, 2).expand([8]).to_event(1))
        effects = []
        for k in range(len(problem.columns)):
            tau = numpyro.sample(f"tau{k}", dist.HalfNormal(1))
            effects.append(numpyro.sample(f"u{k}", dist.Normal(0, tau).expand([problem.size]).to_event(1)))
        with numpyro.plate("rows", problem.n, subsample_size=peers.BATCH):
            x, columns = numpyro.subsample(x, event_dim=1), numpyro.subsample(columns, event_dim=1)
            group, exposure, y = (numpyro.subsample(part, event_dim=0) for part in (group, exposure, y))
            eta = x @ beta + sum(u[group] * columns[:, k] for k, u in enumerate(effects))
            if problem.name == "groups":
                numpyro.sample("y", dist.Bernoulli(logits=eta), obs=y)
            else:
                numpyro.sample("y", dist.Poisson(exposure * jax.numpy.exp(eta)), obs=y)

    data = problem.data
    rows = (data["x"], data["group"], np.stack(problem.columns, axis=1), data["exposure"], data["y"])
    began = time.process_time()
    estimate, _, fitted = problem.fit()
    first = np.unique(data["group"], return_index=True)
    effects = np.zeros((problem.size, len(problem.columns)))
    effects[first[0]] = np.asarray(fitted.predict_training_data_random_effects())[first[1]]
    centre = {"beta": estimate[:8]}
    for k in range(len(problem.columns)):
        centre |= {f"tau{k}": estimate[8 + k], f"u{k}": effects[:, k]}

    def take(z):
        taus = [jax.numpy.exp(z[f"tau{k}"])[None] for k in range(len(problem.columns))]
        looked_at = [z[f"u{k}"][problem.chosen] for k in range(len(problem.columns))]
        return jax.numpy.concatenate([z["beta"], *taus, *looked_at])

    before = time.process_time() - began
    found = peers.hmcecs_of(model, rows, centre, take, plan, chunk=100)
    return {**found, "set_up": found["set_up"] + before}


METHODS = {
    "ours": Method("`recommend()`", ours, True),
    "nutpie": Method("nutpie", nutpie, True, needs="nutpie"),
    "laplace": Method("Laplace alone", methods.laplace, False),
    "gpboost": Method("GPBoost", fit, False, needs="gpboost"),
    "hmcecs": Method("HMCECS", hmcecs, False, needs="numpyro"),
    "sgld": Method("SGLD", peers.sgld, False, needs="blackjax"),
}
DRAWS = {"ours": Plan(500, 2500, 0), "hmcecs": Plan(500, 20_000, 0), "sgld": Plan(5000, 100_000, 0)}


def to_1000(run):
    """CPU seconds to 1,000 effective draws; of a run without any, those that it took."""
    if not run["ess"]:
        return run["set_up"] + run["tuning"] + run["sampling"]
    return run["set_up"] + run["tuning"] + 1000 * run["sampling"] / run["ess"]


def scored(problem, samples):
    """Moments of what is shared, and effective draws: the smaller of bulk and tail.

    The worst of coefficients and scales counts, and of the effects the first percentile.
    """
    columns = [samples[..., i] for i in range(samples.shape[-1])]
    tail = {"method": "tail", "prob": (0.05, 0.95)}
    sizes = np.array([min(float(az.ess(x)), float(az.ess(x, **tail))) for x in columns])
    sizes = np.nan_to_num(sizes, nan=1.0)
    shared, effects = columns[: problem.shared], sizes[problem.shared :]
    few = [np.quantile(effects, 0.01, method="nearest")] if len(effects) else []
    return {
        "ess": float(min(*sizes[: problem.shared], *few)),
        "r_hat": max(float(az.rhat(x)) for x in shared) if len(samples) > 1 else None,
        "chains": samples.shape[0],
        "draws": samples.shape[0] * samples.shape[1],
        "mean": [x.mean() for x in shared],
        "mean_error": [float(az.mcse(x)) for x in shared],
        "sd": [x.std(ddof=1) for x in shared],
        "sd_error": [float(az.mcse(x, method="sd")) for x in shared],
    }


def rounded(value):
    """For a file: six digits, and lists for arrays."""
    if isinstance(value, dict):
        return {key: rounded(each) for key, each in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [rounded(each) for each in value]
    if isinstance(value, float | np.floating):
        return float(f"{value:.6g}") if np.isfinite(value) else None
    return value


def work(spec):
    problem = problem_of(spec["model"], spec["n"])
    problem.data  # noqa: B018  # data are there before the clock starts
    if spec["method"] == "reference":
        found = reference(problem)
        return {name: found[name] for name in ("mean", "mean_error", "sd", "sd_error", "draws")}
    plan = DRAWS.get(spec["method"], Plan(0, 20_000, 0))
    plan = COLD if spec["cold"] else Plan(plan.tune, plan.draws, spec["budget"])
    if spec["method"] != "nutpie":  # which stops itself
        most = int(2 * spec["budget"])
        resource.setrlimit(resource.RLIMIT_CPU, (most, most + 5))  # a signal of its own comes first
    found = METHODS[spec["method"]].run(problem, plan)
    samples = found.pop("samples", None)
    if "mean" in found and samples is not None:  # independent draws of a law that is known
        none = np.zeros_like(found["mean"])
        found |= {"ess": float(len(samples)), "mean_error": none, "sd_error": none}
    elif samples is not None and not spec["cold"]:
        found = {**scored(problem, samples if samples.ndim == 3 else samples[None]), **found}
    about = {"machine": machine(), "versions": {**versions(), "sources": sources()}}
    return {**found, **about, "budget": spec["budget"]}


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    asked = json.loads(sys.argv[1])
    np.savez(asked["out"], record=json.dumps(rounded(work(asked))))
