"""How a part declares its configuration.

A configuration is a frozen, slotted, keyword-only dataclass that stands beside its part::

    @config
    class QuantileCritic:
        kind: Literal["quantile"] = "quantile"
        n_quantiles: Annotated[int, Ge(2)] = 32
        '''Cells of the quantile function.'''

Ranges are declared once, as ``annotated_types`` constraints in the annotation. They hold for every
way of building the object: this module checks them in Python code, and the border that reads files
(:mod:`quantail.config_file`) hands the same annotations to pydantic. Contradictions between fields
go into a method ``check(self)`` that raises :class:`~quantail.errors.ConfigError`.

A family of parts is a union told apart by ``kind``, and the union is the register::

    CriticConfig = Annotated[QuantileCritic | CategoricalCritic | ScalarCritic, BY_KIND]
"""

import dataclasses
import math
from collections.abc import Iterator
from functools import cache
from typing import Annotated, Any, Final, TypeVar, dataclass_transform, get_args, get_origin
from typing import get_type_hints as _hints

from annotated_types import Ge, Gt, Le, Lt, MinLen

from quantail.errors import ConfigError, ConfigProblem

_T = TypeVar("_T")

# What pydantic reads when it meets one of these dataclasses; plain data, so no import of it here.
_BORDER_RULES: Final = {"extra": "forbid", "allow_inf_nan": False}


@dataclass_transform(
    frozen_default=True, kw_only_default=True, field_specifiers=(dataclasses.field,)
)
def config(cls: type[_T]) -> type[_T]:
    """Make ``cls`` a configuration: frozen, slotted, keyword-only, ranges checked when built."""

    def __post_init__(self: Any) -> None:  # noqa: N807 - the dataclass hook
        problems = list(_range_problems(self))
        if problems:
            raise ConfigError(problems)
        check = getattr(self, "check", None)
        if check is not None:
            check()

    if "__post_init__" in vars(cls):
        raise TypeError(f"{cls.__name__}: write the checks into check(), not __post_init__")
    cls.__post_init__ = __post_init__  # type: ignore[attr-defined]
    made = dataclasses.dataclass(frozen=True, slots=True, kw_only=True)(cls)
    made.__pydantic_config__ = dict(_BORDER_RULES)  # type: ignore[attr-defined]
    return made


class ByKind:
    """Tells the border that the members of a union differ in their ``kind``.

    Pydantic asks this object for a schema; a schema is a plain dict, so the parts that declare
    unions need not import pydantic.
    """

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> dict[str, Any]:
        """Return pydantic's schema of a union whose members are told apart by ``kind``."""
        choices = {
            tag: handler.generate_schema(member)
            for member in get_args(source)
            for tag in get_args(_hints(member)["kind"])
        }
        return {"type": "tagged-union", "choices": choices, "discriminator": "kind"}


BY_KIND: Final = ByKind()


def bounds(annotation: Any) -> Iterator[object]:
    """Yield the ``annotated_types`` constraints of an annotation, also those inside a union."""
    if get_origin(annotation) is Annotated:
        inner, *constraints = get_args(annotation)
        yield from constraints
        yield from bounds(inner)
    else:
        for argument in get_args(annotation):
            if get_origin(argument) is Annotated:
                yield from bounds(argument)


@cache
def _field_bounds(cls: Any) -> tuple[tuple[str, tuple[object, ...]], ...]:
    hints = _hints(cls, include_extras=True)
    names = [field.name for field in dataclasses.fields(cls)]
    return tuple((name, tuple(bounds(hints[name]))) for name in names)


def _range_problems(instance: Any) -> Iterator[ConfigProblem]:
    """Yield one problem for every field outside its declared range, or not finite."""
    for name, constraints in _field_bounds(type(instance)):
        value = getattr(instance, name)
        if isinstance(value, float) and not math.isfinite(value):
            yield ConfigProblem(name, f"must be finite; was {value!r}")
            continue
        for constraint in constraints:
            rule = broken_rule(constraint, value)
            if rule:
                yield ConfigProblem(name, f"{rule}; was {value!r}")


def broken_rule(constraint: object, value: Any) -> str | None:
    """Return the rule that ``value`` breaks, in words, or None when it holds."""
    if isinstance(constraint, MinLen):
        short = hasattr(value, "__len__") and len(value) < constraint.min_length
        return f"must have at least {constraint.min_length} item(s)" if short else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    match constraint:
        case Ge(ge=low) if not value >= low:  # type: ignore[operator]
            return f"must be at least {low}"
        case Gt(gt=low) if not value > low:  # type: ignore[operator]
            return f"must be greater than {low}"
        case Le(le=high) if not value <= high:  # type: ignore[operator]
            return f"must be at most {high}"
        case Lt(lt=high) if not value < high:  # type: ignore[operator]
            return f"must be less than {high}"
    return None
