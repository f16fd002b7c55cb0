"""The payloads of workflows, which the database of the app keeps: Temporal has only their ids."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from hashlib import blake2b
from typing import Any, ClassVar

from pydantic_core import PydanticSerializationError, to_jsonable_python
from temporalio import converter
from temporalio.api.common.v1 import Payload
from temporalio.contrib.workflow_streams import PollInput, PollResult

from ..json_values import without_surrogates
from ..server.store.ports import Backend
from .temporal_names import NAME, task_of

logger = logging.getLogger('pydantic_ai_a2a')
_INLINE = 'pydantic_ai_a2a'
"""Key in the metadata of a payload that Temporal passes on and does not keep: the question and the answer of a poll."""
_LARGEST_POLL = 1_500_000
"""Bytes of a poll up to which Temporal passes it on. Temporal refuses payloads above 2 MB."""


def keeping_payloads(backend: Backend, own: converter.DataConverter | None) -> converter.DataConverter:
    """Return a data converter that keeps payloads in the database of an app, in the place of a user's.

    Small payloads, too: Temporal then has no text of clients and models, also not in errors. Only polls go through
    Temporal, in no history. Polls are known by their type: a selector sees no query, and a text can begin as a poll.
    """
    assert own is not None, 'PydanticAIPlugin comes before'
    driver = _Payloads(backend)
    storage = converter.ExternalStorage(
        [driver],
        driver_selector=lambda _, payload: None if _INLINE in payload.metadata else driver,
        payload_size_threshold=0,
    )
    kind = own.payload_converter_class
    return replace(
        own,
        payload_converter_class=type(kind.__name__, (_MarksPolls,), {'kind': kind}),
        payload_codec=None if own.payload_codec is None else _KeepsMarks(own.payload_codec),
        failure_converter_class=converter.DefaultFailureConverterWithEncodedAttributes,
        external_storage=storage,
    )


class _MarksPolls(converter.PayloadConverter, converter.WithSerializationContext):
    """The payload converter of a user, which marks the payloads of polls."""

    kind: ClassVar[Any]

    def __init__(self) -> None:
        self._own = self.kind()

    def with_context(self, context: converter.SerializationContext) -> _MarksPolls:
        marking = copy(self)
        marking._own = self._own.with_context(context)
        return marking

    def from_payloads(self, payloads: Sequence[Payload], type_hints: list[type] | None = None) -> list[Any]:
        return self._own.from_payloads(payloads, type_hints)

    def to_payloads(self, values: Sequence[Any]) -> list[Payload]:
        try:
            payloads = self._own.to_payloads(values)
        except PydanticSerializationError:  # also for half of an emoji in a text of a model or a tool
            payloads = self._own.to_payloads(without_surrogates(to_jsonable_python(values)))
        if len(values) == 1 and isinstance(values[0], (PollInput, PollResult)):
            for payload in payloads:
                if len(payload.data) <= _LARGEST_POLL:
                    payload.metadata[_INLINE] = b'poll'
        return payloads


class _KeepsMarks(converter.PayloadCodec, converter.WithSerializationContext):
    """The payload codec of a user, which leaves polls marked."""

    def __init__(self, own: converter.PayloadCodec) -> None:
        self._own = own

    def with_context(self, context: converter.SerializationContext) -> _KeepsMarks:
        own = self._own
        return _KeepsMarks(own.with_context(context)) if isinstance(own, converter.WithSerializationContext) else self

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        encoded = await self._own.encode(payloads)
        if all(_INLINE in payload.metadata for payload in payloads):
            for payload in encoded:
                payload.metadata[_INLINE] = b'poll'
        return encoded

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return await self._own.decode(payloads)


class _Payloads(converter.StorageDriver):
    """Keeps the payloads of workflows in the database of an app."""

    def __init__(self, backend: Backend) -> None:
        self._store = backend.payloads

    def name(self) -> str:
        return NAME

    async def store(
        self, context: converter.StorageDriverStoreContext, payloads: Sequence[Payload]
    ) -> list[converter.StorageDriverClaim]:
        assert isinstance(context.target, converter.StorageDriverWorkflowInfo), 'an app starts activities in workflows'
        task_id = task_of(context.target.id or '')
        bodies = [payload.SerializeToString() for payload in payloads]
        ids = [blake2b(body, digest_size=16).hexdigest() for body in bodies]
        await self._store.put(task_id, dict(zip(ids, bodies, strict=True)))
        return [converter.StorageDriverClaim({'task': task_id, 'id': name}) for name in ids]

    async def retrieve(
        self, context: converter.StorageDriverRetrieveContext, claims: Sequence[converter.StorageDriverClaim]
    ) -> list[Payload]:
        keys = [(claim.claim_data['task'], claim.claim_data['id']) for claim in claims]
        bodies = await asyncio.gather(*(self._store.get(*key) for key in keys))
        if None in bodies:
            logger.error('Task %s was erased, or is in a database of other servers.', claims[0].claim_data['task'])
        # No converter reads the empty payload: the workflow fails. An error here would be tried again for ever.
        return [Payload() if body is None else Payload.FromString(body) for body in bodies]
