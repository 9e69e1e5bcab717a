"""From a configuration to a judged agent: the only place where market and learning meet.

The public names are imported on first use, so that reading a configuration stays quick.
"""

from importlib import import_module
from typing import Any, Final

# public name -> module that defines it
_PUBLIC: Final[dict[str, str]] = {
    "AgentConfig": "quantail.experiment.config",
    "RunConfig": "quantail.experiment.config",
    "RunFolder": "quantail.experiment.folder",
    "run": "quantail.experiment.run",
}

__all__ = [*_PUBLIC]  # noqa: PLE0604 - the table above is the single list of names


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'quantail.experiment' has no attribute {name!r}")
