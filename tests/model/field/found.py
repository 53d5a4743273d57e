"""What `find_field` finds of the public models: ``python -m tests.model.field.found``."""

import logging
import warnings
from inspect import isfunction

import numpy as np

from pymc_austerity import factorise
from pymc_austerity.model.field.find import Field, find_field
from pymc_austerity.model.field.priors import NoField
from tests.integration import public_models


def described(field: Field) -> list[str]:
    """Rows and predictors of each likelihood, and each table."""
    lines = [
        f"rows of {one.term.name!r}: {one.term.size:,}, predictors {len(one.graph.scalars)}"
        for one in field.likelihoods
    ]
    for table in field.tables:
        size = int(np.prod(table.graph.type.shape))
        kind = "numbers" if table.innovation is None else table.innovation.family.name
        steps = " ".join(step.kind for step in (() if table.innovation is None else table.innovation.steps))
        lines.append(f"{table.name}: {size:,} {kind}{f', prior by {steps}' if steps else ''}")
    return lines + ([f"also in {', '.join(field.others)}"] if field.others else [])


def main() -> None:
    """Print what is found, or the reason."""
    warnings.simplefilter("ignore")
    logging.disable()
    builders = [
        f
        for f in vars(public_models).values()
        if isfunction(f) and not f.__name__.startswith("_") and f.__module__ == public_models.__name__
    ]
    n_found = 0
    for build in builders:
        model = build()
        print(build.__name__)
        try:
            lines = described(find_field(model, factorise(model)))
        except NoField as reason:
            lines = [f"no field: {reason}"]
        else:
            n_found += 1
        print("\n".join(f"    {line}" for line in lines))
    print(f"{n_found} of {len(builders)} are fields")


if __name__ == "__main__":
    main()
