"""Whether the model of a step has effects of groups that are moved as a plate."""

from pymc.initial_point import PointType
from pytensor.graph.traversal import ancestors

from pymc_austerity import work
from pymc_austerity.acceptance.base import Exact
from pymc_austerity.mode.fields.field_model import FieldModel
from pymc_austerity.model.factorisation import Factorisation, row_operations, vector_of
from pymc_austerity.model.plates.any_spelling import find_plates, why_none
from pymc_austerity.model.plates.crossed import CrossedModel, Plates
from pymc_austerity.model.plates.gathers import NoPlate
from pymc_austerity.model.plates.plate_model import PlateModel
from pymc_austerity.step_methods.metropolis.field_plan import field_for
from pymc_austerity.step_methods.metropolis.options import MetropolisOptions

# Effects whose scale is fixed are coefficients like others, up to so many dimensions.
_FEW_DIMENSIONS = 500


def plate_for(
    options: MetropolisOptions, fact: Factorisation, point: PointType
) -> Plates | FieldModel | NoPlate | None:
    """The plate of a model, or two crossed ones, or a field; why there is none; None if nothing was."""
    found = _plate_for(options, fact, point)
    if not isinstance(found, NoPlate) or options.proposal is not None:
        return found
    if found.field is None:
        return found
    field = field_for(options, fact, found.field)
    if isinstance(field, FieldModel):
        return field
    return NoPlate(f"{found}; nor are they moved as a field: {field}")


def _plate_for(options: MetropolisOptions, fact: Factorisation, point: PointType) -> Plates | NoPlate | None:
    taylor, fewest = options.control_variate, options.fewest_groups
    is_expanded = taylor is not None and taylor.order == 2 and taylor.center == "mode"
    if not is_expanded or options.proposal is not None or not fact.n_local:
        return None
    work.sized(fact.n_rows, len(vector_of(fact, point)), row_operations(fact))
    try:
        found = _plates(options, fact, fewest)
    except NoPlate as reason:
        return why_none(options.model, fact, fewest, reason)
    if found is None:
        return why_none(options.model, fact, fewest, None)
    if (
        isinstance(found, PlateModel)
        and not _is_hierarchical(found)
        and len(vector_of(fact, point)) <= _FEW_DIMENSIONS
    ):
        return None
    if found.is_normal and options.temperature != 1.0:
        return NoPlate("normal residuals with a free scale and a temperature are not supported together")
    return found


def _plates(options: MetropolisOptions, fact: Factorisation, fewest: int) -> Plates | None:
    found = find_plates(options.model, fact, fewest)
    if isinstance(found, CrossedModel) and not isinstance(options.acceptance, Exact):
        raise NoPlate(
            f"{' and '.join(map(repr, found.effects))} are crossed factors, whose moves are decided exactly: "
            "use TunaMH(), or MetropolisHastings(control_variate=Taylor())"
        )
    return found


def _is_hierarchical(found: PlateModel) -> bool:
    """Are scale or location of the effects sampled?"""
    block = {found.shared.graph.values[name] for name in found.shared.var_names}
    return not block.isdisjoint(
        ancestors([part for one in found.priors for part in (one.scale, one.location)])
    )
