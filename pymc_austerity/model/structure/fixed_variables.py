"""Which variables are in the way of a row function: with numbers in their place a term would have one."""

from dataclasses import replace

from pymc_austerity.exceptions import UnboundedError
from pymc_austerity.model.structure.term_structure import TermStructure

# Variables that are tried out: each is a search of its own.
_MOST = 8


def in_the_way(structure: TermStructure) -> tuple[str, ...]:
    """Names of variables without any one of which all local terms are functions of few linear predictors."""
    names = structure.factorisation.var_names
    if not 1 < len(names) <= _MOST:
        return ()
    return tuple(name for name in names if _has_functions(_without(structure, name)))


def _without(structure: TermStructure, name: str) -> TermStructure:
    fact = structure.factorisation
    rest = tuple(other for other in fact.var_names if other != name)
    return TermStructure(replace(fact, var_names=rest), structure.most_features)


def _has_functions(structure: TermStructure) -> bool:
    try:
        return len(structure.row_functions) > 0
    except UnboundedError:
        return False
