"""Which step to trust on the doctor visits of the RAND experiment? A report, made automatically.

The negative binomial regression of `randhie_doctor_visits.py`, on 20,190 person-years, sampled by four
steps: the sequential t-test with a large and with a small tolerance, the same test on Taylor remainders, and,
to see whether the report notices, a step whose likelihood is wrong by a power. Each is compared with exact
Metropolis-Hastings on all rows. The page says for each whether it can be told from the reference, what an
effective draw costs, and how far all that is known.

Run `python examples/comparison_report.py` (`--fast` for a short run), and open figures/comparison.html.
"""

import runpy
import sys
from pathlib import Path

from pymc_austerity import AusterityMH, Laplace, MetropolisHastings, Taylor
from pymc_austerity.report import compare

PAGE = Path("figures/comparison.html")
SEED = 1974


def steps_for(model):
    """Random walks make ten transitions for a draw; proposals that are fitted to the mode need one."""
    return {
        "t-test, epsilon = 0.1": AusterityMH(epsilon=0.1, steps_per_draw=10, model=model),
        "t-test, epsilon = 0.01": AusterityMH(epsilon=0.01, steps_per_draw=10, model=model),
        "t-test on remainders": AusterityMH(control_variate=Taylor(), model=model),
        "wrong: likelihood to the power 1.5": MetropolisHastings(
            proposal=Laplace(), temperature=1 / 1.5, model=model
        ),
    }


def main(fast=False, page=PAGE):
    example = runpy.run_path(str(Path(__file__).with_name("randhie_doctor_visits.py")))
    model = example["build_model"]()
    steps = steps_for(model)
    if fast:
        steps = {name: step for name, step in steps.items() if "0.01" not in name}
    result = compare(
        model,
        steps,
        budget={"draws": 300} if fast else 60.0,  # seconds for each step
        reference_budget={"draws": 500} if fast else 120.0,
        tune=100 if fast else 500,
        chains=2 if fast else 4,
        n_pairs=3 if fast else 10,
        random_seed=SEED,
    )
    print(result, "\n")
    result.to_html(page)
    print(f"Page: {page}")
    return result


if __name__ == "__main__":
    main(fast="--fast" in sys.argv[1:])
