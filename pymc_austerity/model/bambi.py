"""Models of Bambi, known by what they have: Bambi itself is no dependency."""

from typing import Any

import pymc as pm
from xarray import DataTree

# The dimension that its models have for rows.
ROWS_OF_BAMBI = "__obs__"


def is_of_bambi(model: Any) -> bool:
    """Whether it is a model of Bambi."""
    return all(hasattr(model, name) for name in ("build", "backend", "formula", "family"))


def pymc_model(model: Any) -> pm.Model:
    """The PyMC model that a model of Bambi is, which is built if it was not."""
    if not model.built:
        model.build()
    result: pm.Model = model.backend.model
    return result


def kept_by_bambi(model: Any) -> list[str]:
    """Names of what `fit` of Bambi keeps: all but the parameters of the likelihood of each row."""
    own = pymc_model(model)
    left_out = {det.name for det in own.deterministics} & set(model.family.likelihood.params)
    return [str(rv.name) for rv in own.unobserved_RVs if rv.name not in left_out]


def compared_by_bambi(model: Any) -> list[str]:
    """Names of what `fit` of Bambi returns: of what it keeps, all but the standardised effects of groups."""
    return [name for name in kept_by_bambi(model) if not name.endswith("_offset")]


def as_fitted(model: Any, tree: DataTree) -> DataTree:
    """Put draws in the form that `fit` of Bambi returns; they are changed in place.

    Intercepts are those of predictors that are not centred. The model is told that it was fitted, as its
    `predict` asks for that.
    """
    result: DataTree = model.backend._clean_results(tree, omit_offsets=True, include_response_params=False)
    model.backend.fit = True
    return result


def as_drawn(model: Any, tree: DataTree) -> DataTree:
    """Draws as those of the PyMC model: the reverse of `as_fitted`, if they are in the form of `fit`.

    Raises
    ------
    ValueError
        If they are, and `model` is not the one of Bambi.
    """
    if getattr(getattr(tree, "posterior", None), "attrs", {}).get("modeling_interface") != "bambi":
        return tree
    if not is_of_bambi(model):
        raise ValueError(
            "idata is in the form of Bambi's fit, in which intercepts are those of predictors that are not "
            "centred. Give the model of Bambi, or draws of its PyMC model: pma.sample(model.backend.model)."
        )
    pymc_model(model)
    result: DataTree = model._re_center_intercept(tree)
    return result
