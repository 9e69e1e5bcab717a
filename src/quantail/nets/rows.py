"""Laws that hold one row per environment and step, and what all of them share."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self, TypeVar

import torch
from torch import Tensor

from quantail.flow import RowIndex


@dataclass(frozen=True, slots=True)
class RowLaw:
    """A frozen record whose fields named in ``ROW_FIELDS`` start with the row axes.

    The other fields are shared by all rows.
    """

    ROW_FIELDS: ClassVar[tuple[str, ...]] = ()

    def detach(self) -> Self:
        """Return the same law outside the graph."""
        return self.map_rows(Tensor.detach)

    def rows(self, index: RowIndex) -> Self:
        """Index the leading axes."""
        return self.map_rows(lambda tensor: tensor[index])

    def map_rows(self, function: Callable[[Tensor], Tensor]) -> Self:
        """Return the law with ``function`` applied to every field that holds rows."""
        return replace(self, **{name: function(getattr(self, name)) for name in self.ROW_FIELDS})

    @classmethod
    def stack(cls, laws: Sequence[Self]) -> Self:
        """Put laws with rows [...] together into one with rows [len(laws), ...].

        Fields that are not rows (levels, the return scale) are those of the last law.
        """
        return _joined(laws, torch.stack)

    @classmethod
    def join(cls, laws: Sequence[Self]) -> Self:
        """Put laws together along their first row axis; other fields as in :meth:`stack`."""
        return _joined(laws, torch.cat)


_Law = TypeVar("_Law", bound=RowLaw)


def _joined(laws: Sequence[_Law], put: Callable[[list[Tensor]], Tensor]) -> _Law:
    last = laws[-1]
    parts = {name: put([getattr(law, name) for law in laws]) for name in last.ROW_FIELDS}
    return replace(last, **parts)
