"""How a part declares its configuration.

A configuration is a frozen, slotted, keyword-only dataclass that stands beside its part::

    @config
    class QuantileCritic:
        kind: Literal["quantile"] = "quantile"
        n_quantiles: Annotated[int, Ge(2)] = 32
        '''Cells of the quantile function.'''

Types and ranges are declared once, in the annotation (ranges as ``annotated_types`` constraints).
They hold for every way of building the object: this module checks them in Python code, and the
border that reads files (:mod:`quantail.config_file`) hands the same annotations to pydantic.
Contradictions between fields go into a method ``check(self)`` that raises
:class:`~quantail.errors.ConfigError`.

A family of parts is a union told apart by ``kind``, and the union is the register::

    CriticConfig = Annotated[QuantileCritic | CategoricalCritic | ScalarCritic, BY_KIND]
"""

import dataclasses
import math
from collections.abc import Iterator
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    TypeVar,
    Union,
    dataclass_transform,
    get_args,
    get_origin,
)
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
        hints = _hints(type(self), include_extras=True)
        problems = [
            problem
            for field in dataclasses.fields(self)
            for problem in _problems(hints[field.name], getattr(self, field.name), field.name)
        ]
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
    """Yield the ``annotated_types`` constraints of an annotation."""
    if get_origin(annotation) is Annotated:
        inner, *constraints = get_args(annotation)
        yield from constraints
        yield from bounds(inner)


def _problems(annotation: Any, value: Any, path: str) -> Iterator[ConfigProblem]:
    """Yield what is wrong with ``value`` under its annotation, item by item."""
    rules = [rule for constraint in bounds(annotation) if (rule := _broken(constraint, value))]
    while get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType):
        yield from _union_problems(arguments, value, path)
        return
    rule = _scalar_rule(annotation, value)
    if rule or rules:
        yield ConfigProblem(path, f"{rule or ' and '.join(rules)}; was {value!r}")
    elif origin is tuple and isinstance(value, tuple):
        if arguments == (float, Ellipsis) and _are_plain(value):
            return
        items = [arguments[0]] * len(value) if arguments[-1] is Ellipsis else arguments
        if len(items) != len(value):
            yield ConfigProblem(path, f"must have {len(items)} entries; was {value!r}")
            return
        for number, (item, given) in enumerate(zip(items, value, strict=True)):
            yield from _problems(item, given, f"{path}[{number}]")


def _are_plain(numbers: tuple[Any, ...]) -> bool:
    """Say quickly whether all are finite floats: a run's state has thousands, in every update."""
    return set(map(type, numbers)) <= {float} and all(map(math.isfinite, numbers))


def _union_problems(members: tuple[Any, ...], value: Any, path: str) -> Iterator[ConfigProblem]:
    """Yield the problems of the first member, which tells the most, unless some member fits."""
    found = [list(_problems(member, value, path)) for member in members]
    if not all(found):
        return
    if all(map(dataclasses.is_dataclass, members)):
        names = ", ".join(member.__name__ for member in members)
        yield ConfigProblem(path, f"must be one of {names}; was {value!r}")
    else:
        yield from found[0]


def _scalar_rule(annotation: Any, value: Any) -> str | None:
    if get_origin(annotation) is Literal:
        allowed = get_args(annotation)
        return None if value in allowed else f"must be one of {', '.join(map(repr, allowed))}"
    if annotation is NoneType:
        return None if value is None else "must be None"
    if annotation is bool:
        return None if isinstance(value, bool) else "must be True or False"
    if annotation is str:
        return None if isinstance(value, str) else "must be text"
    if annotation is int:
        whole = isinstance(value, Integral) and not isinstance(value, bool)
        return None if whole else "must be a whole number"
    if annotation is float:
        if isinstance(value, bool) or not isinstance(value, Real):
            return "must be a number"
        return None if math.isfinite(value) else "must be finite"
    if annotation is tuple or get_origin(annotation) is tuple:
        return None if isinstance(value, tuple) else "must be a tuple"
    if dataclasses.is_dataclass(annotation):
        name = getattr(annotation, "__name__", str(annotation))
        return None if isinstance(value, annotation) else f"must be a {name}"  # type: ignore[arg-type]
    return None


def _broken(constraint: object, value: Any) -> str | None:
    """Return the rule that ``value`` breaks, in words, or None when it holds."""
    if isinstance(constraint, MinLen):
        short = hasattr(value, "__len__") and len(value) < constraint.min_length
        return f"must have at least {constraint.min_length} item(s)" if short else None
    if isinstance(value, bool) or not isinstance(value, Real):
        return None
    number: Any = value
    match constraint:
        case Ge(ge=low) if not number >= low:
            return f"must be at least {low}"
        case Gt(gt=low) if not number > low:
            return f"must be greater than {low}"
        case Le(le=high) if not number <= high:
            return f"must be at most {high}"
        case Lt(lt=high) if not number < high:
            return f"must be less than {high}"
    return None
