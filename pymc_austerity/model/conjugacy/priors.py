"""Variables whose prior makes them of gamma variables, and the parameters of these.

    Gamma, Exponential, ChiSquared   theta itself
    InverseGamma                     1 / theta
    Beta                             theta_1 / (theta_1 + theta_2)
    Dirichlet                        theta_j / sum of theta, in every row

with independent theta_j ~ Gamma(alpha_j, rate). PyMC's point holds a transformed value (`tau_log__`,
`p_logodds__`, `w_simplex__`), which is computed from log theta directly: theta itself may be far below the
smallest floating-point number. What is special about each of them is in `families`.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors

from pymc_austerity.model.conjugacy.families import FAMILIES, family_of
from pymc_austerity.model.graph.rewrite import INTERPRETED
from pymc_austerity.target import Array


class GammaPrior:
    """A variable made of independent gamma variables.

    `value` is its value variable, and `point` a point of the model, for shapes. `ValueError` names the
    variable, if its prior is of another kind, or has a transform of the user's.
    """

    def __init__(self, model: pm.Model, value: Variable, point: Mapping[str, Any]) -> None:
        self.rv = model.values_to_rvs[value]
        self.name = str(self.rv.name)
        self.value_name = str(value.name)
        op = None if self.rv.owner is None else self.rv.owner.op
        family = family_of(op)
        if family is None:
            *names, last = (name for known in FAMILIES for name in known.pymc_names)
            raise ValueError(
                f"The prior of {self.name!r} is {_distribution_name(op)}, not made of gamma variables: this "
                f"step takes {', '.join(names)} and {last} variables. Give "
                f"{self.name!r} to another step method, such as pm.NUTS."
            )
        transform = model.rvs_to_transforms[self.rv]
        if transform is not None and type(transform) is not family.transform:
            raise ValueError(
                f"The variable {self.name!r} has the transform {type(transform).__name__}, under which it "
                f"may not take all values of its prior. Leave transform= out of pm.{_distribution_name(op)}."
            )
        self.family = family(np.shape(point[self.value_name]), transform is not None)
        self._model = model
        self._parameters: Any = None
        self._known: tuple[Array, Array] | None = None  # Parameters that are the same at all points

    def __getstate__(self) -> dict[str, Any]:
        """Attributes without the compiled function of the parameters."""
        return {**self.__dict__, "_parameters": None}

    @property
    def parents(self) -> list[str]:
        """Value variables that the parameters depend on."""
        return self._function()[0]

    def _function(self) -> tuple[list[str], Any, bool]:
        """Names of the parents; the parameters as a function of them, compiled when first asked for.

        The last says whether they depend on none, and on no shared data either: these may be replaced.
        """
        if self._parameters is None:
            model, node = self._model, self.rv.owner
            parameters = [pt.as_tensor(x).astype("float64") for x in node.op.dist_params(node)]
            graphs = list(model.replace_rvs_by_values(self.family.parameter_graphs(parameters)))
            used = set(ancestors(graphs))
            parents = [v for v in model.value_vars if v in used]
            is_constant = not parents and not any(isinstance(v, SharedVariable) for v in used)
            function = pm.compile(parents, graphs, mode=INTERPRETED)
            self._parameters = [v.name for v in parents], function, is_constant
        return self._parameters

    def parameters(self, point: Mapping[str, Any]) -> tuple[Array, Array]:
        """Shapes alpha, (n_rows, n_parts), and rates, (n_rows, 1), of the gamma variables at `point`.

        `ValueError` is raised if one of them is not positive.
        """
        if self._known is not None:
            return self._known
        names, function, is_constant = self._function()
        alpha, rate = self.family.alpha_and_rate(function(*(point[name] for name in names)))
        for what, numbers in (("shape parameters (alpha)", alpha), ("rates", rate)):
            bad = numbers[~((numbers > 0.0) & np.isfinite(numbers))]
            if len(bad):
                raise ValueError(
                    f"The {what} of the prior of {self.name!r} must be positive, got {bad[0]}. Leave "
                    "categories that cannot occur out of the model."
                )
        if is_constant:
            self._known = alpha, rate
        return alpha, rate


def _distribution_name(op: Any) -> str:
    name = type(op).__name__.removesuffix("RV")
    return str(getattr(op, "_print_name", (name,))[0] or name)
