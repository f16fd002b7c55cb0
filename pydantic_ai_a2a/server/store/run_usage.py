"""The usage of runs as JSON, complete for Pydantic AI to load again."""

from __future__ import annotations

from dataclasses import fields
from decimal import Decimal
from functools import cache
from typing import Any, TypeVar

from pydantic import TypeAdapter
from pydantic_ai.usage import RequestUsage, RunUsage
from pydantic_core import SchemaValidator, core_schema, to_json

from ...json_values import as_object
from ...reported_numbers import LARGEST, bounded, count_of

UsageT = TypeVar('UsageT', bound=RunUsage | RequestUsage)

_COUNTS = frozenset(field.name for field in fields(RunUsage)) - {'details', 'cost', 'audio_seconds'}
_COUNT = core_schema.int_schema(strict=True, ge=0, le=LARGEST)
_COST = core_schema.decimal_schema(strict=True, ge=Decimal(0), le=Decimal(LARGEST))
_IS_PLAIN = SchemaValidator(
    core_schema.typed_dict_schema(
        {
            'details': core_schema.typed_dict_field(core_schema.dict_schema(values_schema=_COUNT)),
            'cost': core_schema.typed_dict_field(core_schema.nullable_schema(_COST), required=False),
            'audio_seconds': core_schema.typed_dict_field(
                core_schema.float_schema(strict=True, ge=0, le=LARGEST), required=False
            ),
        },
        extras_schema=_COUNT,
        extra_behavior='allow',
    )
).isinstance_python
"""Returns True for the fields of a usage that can be stored as they are, in one call."""
_DETAILS = {'details'}


@cache
def _usage_ta() -> TypeAdapter[RunUsage]:
    return TypeAdapter(RunUsage)


def dump_usage(usage: RunUsage | RequestUsage) -> bytes:
    """Return a usage as JSON, with the fields that were set."""
    # The adapter of a usage calls Python to find values beyond its fields. All values are plain: none is needed.
    values = usage.__dict__ if _IS_PLAIN(usage.__dict__) else vars(plain_usage(usage))
    return to_json(values, exclude=None if usage.details else _DETAILS, inf_nan_mode='null')


def plain_usage(usage: UsageT) -> UsageT:
    """Return a usage with numbers that can be stored, loaded and added. A provider may report any numbers."""
    if _IS_PLAIN(vars(usage)):
        return usage
    return type(usage)(**{name: _number(name, value) for name, value in vars(usage).items()})


def _number(name: str, value: Any) -> Any:
    match name:
        case 'details':
            return {key: count_of(count) for key, count in as_object(value).items()}
        case 'cost':
            return None if value is None else Decimal(bounded(value))
        case 'audio_seconds':
            return float(bounded(value))
        case _ if name in _COUNTS:
            return count_of(value)
        case _:
            return bounded(value) if isinstance(value, int | float) else value


def load_usage(body: bytes) -> RunUsage:
    """The inverse of `dump_usage`."""
    return _usage_ta().validate_json(body)
