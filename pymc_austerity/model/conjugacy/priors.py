"""Which variables are gamma variables, or made of them, and how a point holds them.

    Gamma, Exponential, ChiSquared   theta itself
    InverseGamma                     1 / theta
    Beta                             theta_1 / (theta_1 + theta_2)
    Dirichlet                        theta_j / sum of theta, in every row

with independent theta_j ~ Gamma(alpha_j, rate). PyMC's point holds a transformed value (`tau_log__`,
`p_logodds__`, `w_simplex__`), which is computed from log theta directly: theta itself may be far below the
smallest floating-point number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pymc as pm
import pytensor.tensor as pt
from pymc.logprob.transforms import LogOddsTransform, LogTransform, SimplexTransform
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.basic import BetaRV, DirichletRV, ExponentialRV, GammaRV, InvGammaRV
from scipy.special import log_expit, logsumexp

from pymc_austerity.model.graph.rewrite import INTERPRETED

Array = npt.NDArray[np.float64]
Kind = Literal["gamma", "inverse gamma", "beta", "dirichlet"]

_KINDS: dict[type, Kind] = {
    GammaRV: "gamma",
    ExponentialRV: "gamma",
    InvGammaRV: "inverse gamma",
    BetaRV: "beta",
    DirichletRV: "dirichlet",
}
_TRANSFORMS: dict[Kind, type] = {
    "gamma": LogTransform,
    "inverse gamma": LogTransform,
    "beta": LogOddsTransform,
    "dirichlet": SimplexTransform,
}


class GammaPrior:
    """A variable made of independent gamma variables.

    Parameters
    ----------
    model : pymc.Model
    value : TensorVariable
        Its value variable.
    point : dict of str to ndarray
        A point of the model, for shapes.

    Attributes
    ----------
    name : str
        Of the variable.
    kind : {"gamma", "inverse gamma", "beta", "dirichlet"}
    n_rows, n_parts : int
        Gamma variables are held as tables of this shape: the elements, times 1 for gamma variables and 2 for
        beta variables; the rows and the K components of Dirichlet variables.
    shape : tuple of int
        Of the variable.
    is_simplex : bool
        Whether only the ratios within a row matter.

    Raises
    ------
    ValueError
        Naming the variable, if its prior is of another kind, or has a transform of the user's.
    """

    def __init__(self, model: pm.Model, value: Variable, point: Mapping[str, Any]) -> None:
        self.rv = model.values_to_rvs[value]
        self.name = str(self.rv.name)
        self.value_name = str(value.name)
        op = None if self.rv.owner is None else self.rv.owner.op
        kind = next((kind for type_, kind in _KINDS.items() if isinstance(op, type_)), None)
        if kind is None:
            raise ValueError(
                f"The prior of {self.name!r} is {_name(op)}, not made of gamma variables: this step takes "
                "Gamma, Exponential, ChiSquared, InverseGamma, Beta and Dirichlet variables. Give "
                f"{self.name!r} to another step method, such as pm.NUTS."
            )
        self.kind: Kind = kind
        transform = model.rvs_to_transforms[self.rv]
        if transform is not None and type(transform) is not _TRANSFORMS[kind]:
            raise ValueError(
                f"The variable {self.name!r} has the transform {type(transform).__name__}, under which it "
                f"may not take all values of its prior. Leave transform= out of pm.{_name(op)}."
            )
        self.transformed = transform is not None
        self.is_simplex = kind in ("beta", "dirichlet")
        shape = np.shape(point[self.value_name])
        if kind == "dirichlet":
            self.shape = (*shape[:-1], shape[-1] + self.transformed)
            self.n_rows, self.n_parts = int(np.prod(shape[:-1])), self.shape[-1]
        else:
            self.shape = shape
            self.n_rows, self.n_parts = int(np.prod(shape)), 1 + self.is_simplex
        self._model = model
        self._parameters: Any = None

    def __getstate__(self) -> dict[str, Any]:
        """Without what is compiled."""
        return {**self.__dict__, "_parameters": None}

    # Parameters of the prior --------------------------------------------------------------

    @property
    def parents(self) -> list[str]:
        """Value variables that the parameters depend on."""
        return self._function()[0]

    def _function(self) -> tuple[list[str], Any]:
        """Names of the parents, and the parameters as a function of them, compiled when first asked for."""
        if self._parameters is None:
            graphs, parents = self._graphs()
            self._parameters = [v.name for v in parents], pm.compile(parents, graphs, mode=INTERPRETED)
        return self._parameters

    def _graphs(self) -> tuple[list[Variable], list[Variable]]:
        """Graphs of the parameters, and their inputs."""
        model, node = self._model, self.rv.owner
        graphs = [pt.as_tensor(x).astype("float64") for x in node.op.dist_params(node)]
        if self.kind == "gamma":
            graphs[-1] = 1.0 / graphs[-1]  # the last parameter is a scale
        if isinstance(node.op, ExponentialRV):
            graphs = [pt.constant(1.0), *graphs]
        graphs = list(model.replace_rvs_by_values(graphs))
        used = set(ancestors(graphs))
        return graphs, [v for v in model.value_vars if v in used]

    def parameters(self, point: Mapping[str, Any]) -> tuple[Array, Array]:
        """Shapes alpha, (n_rows, n_parts), and rates, (n_rows, 1), of the gamma variables at `point`.

        Raises
        ------
        ValueError
            If one of them is not positive.
        """
        names, function = self._function()
        found = function(*(point[name] for name in names))
        if self.kind == "dirichlet":
            shapes = [np.broadcast_to(found[0], self.shape).reshape(self.n_rows, self.n_parts)]
        else:
            shapes = [np.broadcast_to(x, self.shape).reshape(self.n_rows, 1) for x in found]
        alpha = np.concatenate(shapes, axis=1) if self.kind == "beta" else np.array(shapes[0])
        rate = np.ones((self.n_rows, 1)) if self.is_simplex else np.array(shapes[1])
        for what, numbers in (("shape parameters (alpha)", alpha), ("rates", rate)):
            bad = numbers[~((numbers > 0.0) & np.isfinite(numbers))]
            if len(bad):
                raise ValueError(
                    f"The {what} of the prior of {self.name!r} must be positive, got {bad[0]}. Leave "
                    "categories that cannot occur out of the model."
                )
        return alpha, rate

    # Points -------------------------------------------------------------------------------

    def log_gammas(self, value: npt.ArrayLike) -> Array:
        """Logarithms of theta, or of the components of a simplex, at a point's value; (n_rows, n_parts)."""
        x = np.asarray(value, dtype=np.float64)
        with np.errstate(divide="ignore"):
            if self.kind == "beta":
                x = x.reshape(-1, 1)
                if self.transformed:
                    return np.concatenate([log_expit(x), log_expit(-x)], axis=1)
                return np.concatenate([np.log(x), np.log1p(-x)], axis=1)
            if self.kind == "dirichlet":
                if not self.transformed:
                    return np.log(x).reshape(self.n_rows, self.n_parts)
                x = x.reshape(self.n_rows, self.n_parts - 1)
                x = np.concatenate([x, -x.sum(axis=1, keepdims=True)], axis=1)
                return x - logsumexp(x, axis=1, keepdims=True)
            logs = x if self.transformed else np.log(x)
        return np.array(-logs if self.kind == "inverse gamma" else logs).reshape(-1, 1)

    def value(self, log_theta: Array) -> Array:
        """What a point holds, from logarithms of theta, (n_rows, n_parts); of a simplex up to a factor."""
        if self.kind == "beta":
            logs = log_theta[:, 0] - log_theta[:, 1]
            return (logs if self.transformed else np.exp(log_expit(logs))).reshape(self.shape)
        if self.kind == "dirichlet":
            if self.transformed:
                logs = log_theta[:, :-1] - log_theta.mean(axis=1, keepdims=True)
                return logs.reshape(*self.shape[:-1], self.n_parts - 1)
            return np.exp(log_theta - logsumexp(log_theta, axis=1, keepdims=True)).reshape(self.shape)
        logs = -log_theta if self.kind == "inverse gamma" else log_theta.copy()
        return (logs if self.transformed else np.exp(logs)).reshape(self.shape)

    # Natural values: what the likelihood is differentiated by ------------------------------

    def natural(self, log_gammas: Array) -> Array:
        """Log theta, of a beta variable its log odds, of a Dirichlet variable log w; flat."""
        if self.kind == "beta":
            return log_gammas[:, 0] - log_gammas[:, 1]
        if self.kind == "dirichlet":
            return (log_gammas - logsumexp(log_gammas, axis=1, keepdims=True)).ravel()
        return log_gammas.ravel()

    def from_natural(self, natural: Variable) -> Variable:
        """The variable as a graph of its natural values."""
        if self.kind == "beta":
            return pt.sigmoid(natural)
        return pt.exp(-natural) if self.kind == "inverse gamma" else pt.exp(natural)


def _name(op: Any) -> str:
    name = type(op).__name__.removesuffix("RV")
    return str(getattr(op, "_print_name", (name,))[0] or name)


def gamma_priors(model: pm.Model, values: Sequence[Variable], point: Mapping[str, Any]) -> list[GammaPrior]:
    """The priors of several value variables, each made of gamma variables."""
    return [GammaPrior(model, value, point) for value in values]
