"""From draws and CPU seconds to the columns of the table."""

import arviz as az
import numpy as np

GOAL = 1000  # effective draws


def score(record, arrays, reference):
    """`record` with effective sample sizes, rates, and errors in posterior standard deviations."""
    samples = arrays["samples"]
    n = len(samples)
    min_ess = float(effective(samples, "ess", "bulk").min())
    if "mean" in arrays:  # independent draws of a law that is known
        min_ess = float(n)
    per_second = min_ess / record["sampling"] if record["sampling"] > 0 else np.inf
    mean, sd = samples.mean(axis=0), np.maximum(samples.std(axis=0, ddof=1), 1e-12)
    mean_error = effective(samples, "mcse", "mean")
    sd_error = effective(samples, "mcse", "sd") / sd
    if "mean" in arrays:
        mean, sd = arrays["mean"], arrays["sd"]
        mean_error = sd_error = np.zeros(len(mean))
    true_sd = np.array(reference["sd"])
    bias = (mean - reference["mean"]) / true_sd
    bias_error = np.hypot(mean_error, reference["mean_error"]) / true_sd
    log_ratio = np.log(sd / true_sd)
    ratio_error = np.hypot(sd_error, reference["sd_error"] / true_sd)
    worst, widest = np.abs(bias).argmax(), np.abs(log_ratio).argmax()
    to_goal = record["set_up"] + record["tuning"] + GOAL / per_second
    return {
        **record,
        "min_ess": min_ess,
        "ess_per_step": min_ess / n,
        "ess_per_second": per_second,
        "to_1000": to_goal,
        "extrapolated": bool(record["cut_short"] or min_ess < GOAL),
        "bias": float(bias[worst]),
        "bias_error": float(bias_error[worst]),
        "bias_z": float(np.abs(bias / bias_error).max()),
        "sd_ratio": float(np.exp(log_ratio[widest])),
        "sd_ratio_error": float(ratio_error[widest]),
        "sd_z": float(np.abs(log_ratio / ratio_error).max()),
        "reference_ess": reference["ess"],
    }


def effective(samples, name, method):
    """`az.ess` or `az.mcse` of each column; 1 for a column that never moves."""
    values = np.array([float(getattr(az, name)(x[None, :], method=method)) for x in samples.T])
    return np.where(np.isfinite(values), values, 1.0)


HEADER = (
    f"  {'':<29}{'terms':>11}{'ESS':>8}{'ESS':>9}{'CPU s':>8}{'CPU s to':>11}{'min':>8}"
    f"{'max bias':>10}{'':>9}{'sd':>8}\n"
    f"  {'':<29}{'/ step':>11}{'/ step':>8}{'/ CPU s':>9}{'set-up':>8}{'1000 ESS':>11}{'ESS':>8}"
    f"{'in sd':>10}{'+-':>9}{'ratio':>8}{'+-':>7}"
)


def line(record):
    """A row of the table. A star: extrapolated from a run that was cut short, or has too few draws."""
    star = "*" if record["extrapolated"] else " "
    name = record["label"] + ("" if record["exact"] else " (~)")
    terms = record["terms_per_step"]
    return (
        f"  {name:<29}{f'{terms:,.0f}' if terms >= 10 else f'{terms:.2g}':>11}{record['ess_per_step']:>8.3f}"
        f"{record['ess_per_second']:>9,.3g}{record['set_up']:>8.2f}{record['to_1000']:>10,.4g}{star}"
        f"{record['min_ess']:>8,.0f}{record['bias']:>10.3f}{record['bias_error']:>9.3f}"
        f"{record['sd_ratio']:>8.3f}{record['sd_ratio_error']:>7.3f}"
    )


EXPLANATION = """\
A step is a draw; terms are likelihood terms, for a gradient method N for each gradient. ESS is the smallest
bulk ESS of all parameters. CPU seconds on one thread, caches of compiled code warm; set-up is all that is
neither tuning nor sampling. To 1000 ESS: set-up, tuning, and 1000 divided by the rate; * where the run was
cut short by its budget or made fewer, so that this is extrapolated. Bias and ratio of standard deviations:
the worst parameter and the Monte Carlo error there, against importance sampling. (~): not exact."""
