from __future__ import annotations
import pytest
from .rows import covers


@pytest.mark.parametrize('body', [b'', b'{'], ids=['empty', 'malformed'])
@covers('malformed JSON, empty, bad UTF-8, 100k-deep array')
async def test_x(body: bytes) -> None:
    assert body is not None


@covers('`42`, `[]` / batch, no `jsonrpc`, wrong id type', 'unknown method')
async def test_y() -> None:
    pass
