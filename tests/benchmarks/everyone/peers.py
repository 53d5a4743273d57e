"""Samplers on JAX, in an interpreter that has them: `--peer-python`.

Both get what they need to do well: the mode, where control variates are centred and chains start, and for
SGLD the Hessian, too. Draws are made in chunks, compiled before the first.
"""

import time

import numpy as np

from tests.benchmarks.everyone.problems import colour_of

BATCH = 100  # rows for an estimate, as in the examples of both
BLOCKS = 10  # of the rows of HMCECS, one of which is renewed in a step
STEP_SIZE = 0.1  # of SGLD, in posterior standard deviations squared: makes them 2.6 % too large


def hmcecs(problem, plan):
    """NUTS with energy-conserving subsampling around a second-order proxy, for a regression."""
    import jax
    import numpyro
    import numpyro.distributions as dist

    def model(X, y):
        beta = numpyro.sample("beta", dist.Normal(0, 1).expand([problem.dim]).to_event(1))
        with numpyro.plate("rows", X.shape[0], subsample_size=BATCH):
            eta = numpyro.subsample(X, event_dim=1) @ beta
            seen = numpyro.subsample(y, event_dim=0)
            if problem.family == "poisson":
                numpyro.sample("y", dist.Poisson(jax.numpy.exp(eta)), obs=seen)
            else:
                numpyro.sample("y", dist.Bernoulli(logits=eta), obs=seen)

    began = time.process_time()
    start = {"beta": problem.newton()[0]}
    before = time.process_time() - began
    found = hmcecs_of(model, problem.data, start, lambda z: z["beta"], plan)
    return {**found, "set_up": found["set_up"] + before}


def hmcecs_of(model, rows, start, take, plan, chunk=500):
    """For any model of NumPyro; `take` makes a vector of its unconstrained values.

    In a loop of its own: each run of numpyro.infer.MCMC traces the model again.
    """
    import jax
    from numpyro.infer import HMCECS, NUTS, init_to_value

    data = tuple(map(jax.numpy.asarray, rows))
    began = time.process_time()
    start = {name: jax.numpy.asarray(value) for name, value in start.items()}
    kernel = HMCECS(
        NUTS(model, init_strategy=init_to_value(values=start)),
        num_blocks=BLOCKS,
        proxy=HMCECS.taylor_proxy(start, degree=2),
    )
    chunk = min(chunk, plan.draws)
    state = kernel.init(jax.random.key(1), chunk, None, data, {})

    def run(state, data):
        def one(state, _):
            state = kernel.sample(state, data, {})
            return state, (take(state.z), state.hmc_state.num_steps)

        return jax.lax.scan(one, state, length=chunk)

    compiled = jax.jit(run).lower(state, data).compile()
    set_up = time.process_time() - began

    def draw(_):
        nonlocal state
        state, kept = compiled(state, data)
        return kept

    record, steps = in_chunks(draw, chunk, plan)
    # The new rows are read for the proxy, and all that are held for the test whether to take them.
    return {**record, "set_up": set_up, "terms_per_step": BATCH * (steps.mean() + 1) + BATCH / BLOCKS}


def sgld(problem, plan):
    """Langevin steps with control variates, in coordinates in which the fitted normal law is N(0, I)."""
    import blackjax
    import jax
    from blackjax.sgmcmc.gradients import control_variates, grad_estimator

    data = tuple(map(jax.numpy.asarray, problem.data))
    began = time.process_time()
    mode, precision = problem.newton()
    unwhiten = jax.numpy.asarray(colour_of(precision))

    def beta_of(z):
        return mode + unwhiten @ z

    def log_prior(z):
        return -0.5 * jax.numpy.square(beta_of(z)).sum()

    def log_likelihood(z, row):
        x, seen = row
        eta = x @ beta_of(z)
        total = jax.numpy.exp(eta) if problem.family == "poisson" else jax.nn.softplus(eta)
        return seen * eta - total

    plain = grad_estimator(log_prior, log_likelihood, problem.n)
    gradient = control_variates(jax.jit(plain), jax.numpy.zeros(problem.dim), data)
    step = blackjax.sgld(gradient).step
    chunk = min(5000, plan.draws)

    def run(key, z, data):
        def one(z, key):
            for_rows, for_noise = jax.random.split(key)
            rows = jax.random.randint(for_rows, (BATCH,), 0, problem.n)
            z = step(for_noise, z, tuple(part[rows] for part in data), STEP_SIZE)
            return z, beta_of(z)

        return jax.lax.scan(one, z, jax.random.split(key, chunk))

    z = jax.numpy.zeros(problem.dim)
    compiled = jax.jit(run).lower(jax.random.key(0), z, data).compile()
    set_up = time.process_time() - began

    def draw(k):
        nonlocal z
        z, betas = compiled(jax.random.key(k), z, data)
        return betas, np.zeros(chunk)

    record, _ = in_chunks(draw, chunk, plan)
    return {**record, "set_up": set_up, "terms_per_step": 2.0 * BATCH}


def in_chunks(draw, chunk, plan):
    """Call `draw` until there are enough draws. The first chunk is for tuning."""
    times, kept = [time.process_time()], []
    while len(kept) <= max(1, plan.draws // chunk):
        kept.append([np.asarray(part) for part in draw(len(kept))])
        times.append(time.process_time())
        if len(kept) > 1 and times[-1] - times[0] > plan.seconds:
            break
    samples, steps = (np.concatenate(part) for part in zip(*kept[1:], strict=True))
    sampling = times[-1] - times[1]
    return {
        "samples": samples,
        "tune": chunk,
        "tuning": times[1] - times[0],
        "sampling": sampling,
        "unit_seconds": sampling / len(samples),
    }, steps
