"""How a term is refused: what couples its rows, and what to do instead."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytensor.tensor as pt
from pytensor.gradient import NullTypeGradError
from pytensor.graph.basic import Variable
from pytensor.graph.utils import MethodNotDefined

from pymc_austerity.exceptions import FactorisationError

# What PyTensor raises where an operation has no gradient.
NO_GRADIENT = (NotImplementedError, NullTypeGradError, MethodNotDefined)


class Coupled(Exception):  # noqa: N818 - it is caught, and becomes a FactorisationError
    """Rows cannot be computed one by one; carries the offending variable and the reason."""

    def __init__(self, var: Variable, reason: str) -> None:
        super().__init__(reason)
        self.var = var
        self.reason = reason

    def __str__(self) -> str:
        shape = "x".join("?" if k is None else str(k) for k in self.var.type.shape) or "one number"
        return f"{self.reason} (operation {operation_name(self.var)}, shape {shape})"


def operation_name(var: Variable) -> str:
    """Short readable name of the operation that computes `var`."""
    if var.owner is None:
        return repr(var.name or str(var))
    op = var.owner.op
    if isinstance(op, pt.elemwise.Elemwise):
        op = op.scalar_op
    return type(getattr(op, "core_op", op)).__name__ + (f" of {var.name!r}" if var.name else "")


# What PyTensor says of arrays that do not fit together.
_UNLIKE = "Incompatible Elemwise input shapes"


@contextmanager
def named(term: str, size: int | None = None) -> Iterator[None]:
    """Within it, coupled rows become an error that names the term, and a note on any other error does."""
    try:
        yield
    except FactorisationError:
        raise
    except Coupled as coupled:
        raise refusal(term, size, coupled) from None
    except Exception as error:
        if isinstance(error, ValueError) and str(error).startswith(_UNLIKE):
            shapes = str(error).removeprefix(_UNLIKE)
            raise ValueError(
                f"Shapes{shapes} meet in the term {term!r}. Its observations and covariates need "
                "the same number of rows."
            ) from error
        error.add_note(
            f"This happened while the term {term!r} was taken apart. Use another step method, such as "
            "pm.NUTS or pm.Slice, for the variables in it. If pm.Model.compile_logp can evaluate it, this is "
            "a defect of pymc_austerity: please report the model."
        )
        raise


def refusal(name: str, size: int | None, coupled: Coupled) -> FactorisationError:
    """The error that names the term, the operation that couples its rows, and what to do."""
    term = f"the term {name!r}" + (f" ({size:,} rows)" if size else "")
    return FactorisationError(
        f"Rows of {term} cannot be computed from a subsample: {coupled}. Use another step method, "
        "such as pm.NUTS or pm.Slice, for the variables in it, or write the model so that each row "
        "depends on the parameters and on its own data only.",
        name,
    )
