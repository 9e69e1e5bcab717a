"""Which classes a file may name, and how they are found.

A file names a class by its module and its own name. Names are looked up in the ``custom_objects``
that the caller passes, and else in a few packages that everyone who reads the file has installed
anyway. Of those packages only some classes may be named: a class that opens files or starts
processes when it is built must not be built because a file says so.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from importlib import import_module
from typing import Any

from quantail.checkpoint.archive import CheckpointError


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """What a file may name."""

    roots: tuple[str, ...]
    """Modules in and below which classes are found."""
    bases: tuple[type, ...]
    """Parents of the classes that may be named as such."""
    records: Mapping[type, tuple[str, ...]]
    """Classes whose objects are stored by these fields, and built again from them by name."""
    custom: Mapping[str, Any] = field(default_factory=dict)
    """The caller's own classes, by ``module.name``; they come before everything else."""

    def find(self, module: str, name: str, place: str) -> type:
        """Return the class ``name`` of ``module``.

        Args:
            module: Full name of the module that defines the class.
            name: Qualified name of the class within it.
            place: Where the file names it, for messages.

        Raises:
            CheckpointError: The class may not be named, or does not exist.
        """
        full = f"{module}.{name}"
        if full in self.custom:
            found = self.custom[full]
            if not isinstance(found, type):
                raise CheckpointError(f"custom_objects[{full!r}] must be a class; was {found!r}")
            return found
        if not self.is_known(module):
            raise CheckpointError(
                f"{place} names {full}, and only {', '.join(self.roots)} are searched for classes. "
                f"If you trust it, pass custom_objects={{{full!r}: {name.rpartition('.')[2]}}}"
            )
        try:
            holder: Any = import_module(module)
        except ImportError as error:
            raise CheckpointError(
                f"{place} names {full}, which cannot be imported here: {error}"
            ) from error
        for part in name.split("."):
            holder = getattr(holder, part, None)
        # The class must say of itself that it lives there, or a module's own imports (such as
        # os in torch) could be reached through it.
        if not isinstance(holder, type) or (holder.__module__, holder.__qualname__) != (
            module,
            name,
        ):
            raise CheckpointError(f"{place} names {full}, which is not a class defined there")
        return holder

    def is_known(self, module: str) -> bool:
        """Whether ``module`` lies in one of the searched packages."""
        inside = any(module == root or module.startswith(f"{root}.") for root in self.roots)
        return inside and "__main__" not in module.split(".")

    def may_name(self, kind: type) -> bool:
        """Whether ``kind`` may be named as a class: the caller's own, or one of known parents."""
        own = not self.is_known(kind.__module__)
        return own or issubclass(kind, self.bases)

    def fields(self, kind: type) -> tuple[str, ...] | None:
        """Return the fields that objects of ``kind`` are stored by; None when they cannot be."""
        if kind in self.records:
            return self.records[kind]
        if is_dataclass(kind) and hasattr(kind, "__pydantic_config__"):  # made by @config
            return tuple(part.name for part in fields(kind))
        return None
