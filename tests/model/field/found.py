"""What `find_field` finds: ``python -m tests.model.field.found`` of public models, ``... catalogue`` of all.

Of the public models each table is printed, of the catalogue each reason for which there is no field, and
with how many models it is met.
"""

import logging
import sys
import warnings
from collections import defaultdict
from inspect import isfunction

import pymc as pm

from pymc_austerity import factorise
from pymc_austerity.exceptions import SelfCheckError
from pymc_austerity.model.field.find import Field, find_field
from pymc_austerity.model.field.priors import NoField
from tests.integration import public_models
from tests.model.catalogue_record import ENTRIES, SPLIT, expected_outcome


def found_of(model: pm.Model) -> Field | str:
    """The field of a model, or the reason why there is none; a defect, too, is one."""
    try:
        return find_field(model, factorise(model))
    except (NoField, SelfCheckError) as reason:
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
        n_found += not isinstance(found, str)
        print(build.__name__, *(f"    {line}" for line in str(found).splitlines()), sep="\n")
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
        print(f"{len(which):4} {reason}: {', '.join(which)}")
    print(f"{len(names) - sum(map(len, reasons.values()))} of {len(names)} are fields")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    logging.disable()
    catalogue() if sys.argv[1:] == ["catalogue"] else public()
