"""Copying a part of a row inside a kernel, in one instruction of the compiler.

A loop over a few features is compiled in ways that differ by a factor of five with its
surroundings (element by element, or across rows, which scatters); a block copy is always fast.
"""

from typing import Any

from numba.core import cgutils, types
from numba.extending import intrinsic

_tools: Any = cgutils  # untyped


def _copy_row(
    typing_context: Any, target: Any, i: Any, place: Any, source: Any, row: Any, n: Any
) -> Any:

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        def address(array_type: Any, array: Any, indices: Any) -> Any:
            parts = context.make_array(array_type)(context, builder, array)
            shape = _tools.unpack_tuple(builder, parts.shape)
            strides = _tools.unpack_tuple(builder, parts.strides)
            return _tools.get_item_pointer2(
                context, builder, parts.data, shape, strides, "C", indices
            )

        into, i_, place_, out_of, row_, n_ = arguments
        first = context.get_constant(types.intp, 0)
        size = context.get_abi_sizeof(context.get_value_type(types.float32))
        _tools.raw_memcpy(
            builder,
            address(signature.args[0], into, [i_, place_]),
            address(signature.args[3], out_of, [row_, first]),
            n_,
            size,
        )
        return context.get_dummy_value()

    assert target.dtype == source.dtype == types.float32, "rows of float32 only"
    return types.void(target, types.intp, types.intp, source, types.intp, types.intp), generate


copy_row_nb: Any = intrinsic(_copy_row)
"""``copy_row_nb(target, i, place, source, row, n)`` is ``target[i, place:place + n] = source[row]``
up to n, for C-ordered float32 arrays. Indices are not checked and must not be negative; a copy may
run over the end of a row of ``source`` into the next ones.
"""
