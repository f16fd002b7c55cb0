"""Named artifacts as the output of a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema


class Artifacts(Mapping[str, Any]):
    """Named artifacts as the result of a run, returned by an output function.

    ```python
    from pydantic_ai import Agent
    from pydantic_ai_a2a import Artifacts


    def report(city: str) -> Artifacts:
        return Artifacts({'raw data': [1, 2, 3]}, summary=f'All is well in {city}.')


    agent = Agent('test', output_type=report)
    ```

    A value may be a string, a file (`BinaryContent`, `ImageUrl` and the like), a list of files, or any value for
    Pydantic's JSON. Use the mapping for names with spaces and the like.

    Raises:
        ValueError: The result has no artifact, or an artifact has no name.
    """

    __module__ = 'pydantic_ai_a2a'
    # DBOS stores the class by this name, which does not tell where the code stands.

    __slots__ = ('_artifacts',)

    def __init__(self, artifacts: Mapping[str, Any] | None = None, /, **named: Any) -> None:
        self._artifacts = {**(artifacts or {}), **named}
        if not self._artifacts or '' in self._artifacts:
            raise ValueError('Artifacts needs at least one artifact, and a name for each.')

    def __getitem__(self, name: str) -> Any:
        return self._artifacts[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._artifacts)

    def __len__(self) -> int:
        return len(self._artifacts)

    def __repr__(self) -> str:
        return f'Artifacts({self._artifacts!r})'

    @classmethod
    def __get_pydantic_core_schema__(cls, source: type[Any], handler: GetCoreSchemaHandler) -> CoreSchema:
        values = core_schema.dict_schema(core_schema.str_schema(min_length=1), core_schema.any_schema(), min_length=1)
        built = core_schema.no_info_after_validator_function(cls, values)
        return core_schema.json_or_python_schema(
            json_schema=built,
            python_schema=core_schema.union_schema([core_schema.is_instance_schema(cls), built]),
            serialization=core_schema.plain_serializer_function_ser_schema(dict, return_schema=values),
        )
