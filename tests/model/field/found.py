"""What `find_field` finds: ``python -m tests.model.field.found`` of public models, ``... catalogue`` of all.

Of the public models each table is printed, of the catalogue each reason for which there is no field, and
with how many models it is met.
"""

import logging
import sys
import warnings
from collections import defaultdict
from inspect import isfunction

import numpy as np
import pymc as pm

from pymc_austerity import factorise
from pymc_austerity.model.field.find import Field, find_field
from pymc_austerity.model.field.priors import NoField
from tests.integration import public_models
from tests.model.catalogue_record import ENTRIES, SPLIT, expected_outcome


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


def found_of(model: pm.Model) -> Field | str:
    """The field of a model, or the reason why there is none."""
    try:
        return find_field(model, factorise(model))
    except NoField as reason:
        return str(reason)


def public() -> None:
    """Print what is found of each public model."""
    builders = [
        one
        for name, one in vars(public_models).items()
        if isfunction(one) and one.__module__ == public_models.__name__ and not name.startswith("_")
    ]
    n_found = 0
    for build in builders:
        found = found_of(build())
        lines = [f"no field: {found}"] if isinstance(found, str) else described(found)
        n_found += not isinstance(found, str)
        print(build.__name__, *(f"    {line}" for line in lines), sep="\n")
    print(f"{n_found} of {len(builders)} are fields")


def catalogue() -> None:
    """Print for how many models of the catalogue a field is found, and the reasons of the others."""
    names = [name for name, entry in ENTRIES.items() if expected_outcome(entry) == SPLIT]
    reasons = defaultdict(list)
    for name in names:
        model, _ = ENTRIES[name].build()
        found = found_of(model)
        if isinstance(found, str):
            reasons[found].append(name)
    for reason, which in sorted(reasons.items(), key=lambda pair: -len(pair[1])):
        print(f"{len(which):4} {reason}: {', '.join(which[:3])}")
    print(f"{len(names) - sum(map(len, reasons.values()))} of {len(names)} are fields")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    logging.disable()
    catalogue() if sys.argv[1:] == ["catalogue"] else public()
