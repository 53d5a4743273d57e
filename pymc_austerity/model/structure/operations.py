"""Operations of PyTensor, by what they do with the numbers of their first input."""

import pytensor.scalar as ps
from pytensor.compile.ops import DeepCopyOp, ViewOp
from pytensor.graph.op import Op
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.basic import Alloc, Join, MakeVector, ScalarFromTensor, TensorFromScalar
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.reshape import JoinDims, SplitDims
from pytensor.tensor.shape import Reshape, SpecifyShape
from pytensor.tensor.subtensor import AdvancedIncSubtensor, AdvancedSubtensor, IncSubtensor, Subtensor

# They leave all as it is.
UNCHANGED = (SpecifyShape, CheckAndRaise, ViewOp, DeepCopyOp, TensorFromScalar, ScalarFromTensor)
# They keep the order of the numbers.
RESHAPING = (Reshape, JoinDims, SplitDims)
# They only change the shape.
VIEWS = (DimShuffle, *RESHAPING, SpecifyShape)
# They take some of the numbers.
SELECTING = (Subtensor, AdvancedSubtensor)
# They write others, which are the second input, in the place of some; or add these.
WRITING = (IncSubtensor, AdvancedIncSubtensor)
# They move the numbers to other places, which the other inputs say.
MOVING = (*VIEWS, *SELECTING, Alloc, TensorFromScalar, ScalarFromTensor)
# They put the numbers of all inputs together.
JOINING = (Join, MakeVector)

# Scalar operations that are linear in all of their inputs together.
ADDING = (ps.Add, ps.Sub, ps.Neg, ps.Identity, ps.Cast)


def core_of(op: Op) -> Op:
    """The operation that a batched one applies to each element of the batch."""
    return op.core_op if isinstance(op, Blockwise) else op
