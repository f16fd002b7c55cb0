"""Tests of the configurations of webhooks."""

from __future__ import annotations

from datetime import timedelta

import pytest

from pydantic_ai_a2a.errors import InvalidParamsError, TaskNotFoundError
from pydantic_ai_a2a.settings import Retention
from pydantic_ai_a2a.store.ports import DEAD_LETTER, Backend

from .base import PortSuite
from .push import config, configs_of, lease, register, sweep, told
from .values import AT, OWNER, message, run, submit

__all__ = ('PushConfigSuite',)


class PushConfigSuite(PortSuite):
    """Tests of configurations."""

    async def test_a_configuration_is_read_as_it_was_written(self, backend: Backend) -> None:
        await submit(backend, message(new='t'))
        first, second = config('a', 'statuses', b'\x00\xff'), config('b', 'chunks')
        for webhook in (first, second):
            await configs_of(backend).create('t', OWNER, webhook, limit=2)
        assert list(await configs_of(backend).list('t', OWNER)) == [first, second]
        assert await configs_of(backend).get('t', OWNER, 'b') == second
        assert await configs_of(backend).get('t', OWNER, None) == first

    async def test_one_of_the_same_id_is_replaced_also_when_there_may_be_no_more(self, backend: Backend) -> None:
        await submit(backend, message(new='t'))
        await register(backend, 'a')
        await configs_of(backend).create('t', OWNER, config('a', body=b'new'), limit=1)
        with pytest.raises(InvalidParamsError):
            await configs_of(backend).create('t', OWNER, config('b'), limit=1)
        assert list(await configs_of(backend).list('t', OWNER)) == [config('a', body=b'new')]

    async def test_what_is_deleted_is_gone_and_may_be_deleted_again(self, backend: Backend) -> None:
        await submit(backend, message(new='t'))
        await register(backend, 'a', 'b')
        for _ in range(2):
            await configs_of(backend).delete('t', OWNER, 'a')
        assert list(await configs_of(backend).list('t', OWNER)) == [config('b')]
        with pytest.raises(TaskNotFoundError):
            await configs_of(backend).get('t', OWNER, 'a')

    async def test_who_was_to_be_told_of_a_dead_letter_is_told_of_its_retry(self, backend: Backend) -> None:
        await submit(backend, message(new='t'))
        await register(backend, 'a')
        await register(backend, 'b', takes='statuses')
        await run(backend, 't', 'failed', failure=DEAD_LETTER)
        await told(backend)
        await backend.housekeeping.retry('t', new_id='u', at=AT)
        assert list(await configs_of(backend).list('u', OWNER)) == [config('a'), config('b', 'statuses')]
        await run(backend, 'u')
        assert await told(backend) == {'a': ['1 working', '2 completed'], 'b': ['1 working', '2 completed']}

    @pytest.mark.parametrize(('task_id', 'owner'), [('t', '/bob'), ('no such task', OWNER)])
    async def test_for_others_there_is_nothing(self, backend: Backend, task_id: str, owner: str) -> None:
        await submit(backend, message(new='t'))
        await register(backend, 'c')
        configs = configs_of(backend)
        with pytest.raises(TaskNotFoundError):
            await configs.create(task_id, owner, config('d'), limit=10)
        with pytest.raises(TaskNotFoundError):
            await configs.get(task_id, owner, 'c')
        with pytest.raises(TaskNotFoundError):
            await configs.list(task_id, owner)
        with pytest.raises(TaskNotFoundError):
            await configs.delete(task_id, owner, 'c')
        assert list(await configs.list('t', OWNER)) == [config()]

    @pytest.mark.parametrize('way', ['erase_task', 'erase', 'sweep'])
    async def test_they_go_with_their_task_and_what_was_not_told_with_them(self, backend: Backend, way: str) -> None:
        await submit(backend, message(new='t'))
        await register(backend, 'c')
        await run(backend, 't')
        housekeeping = backend.housekeeping
        if way == 'erase_task':
            await housekeeping.erase_task('t', OWNER, at=AT)
        elif way == 'erase':
            await housekeeping.erase(OWNER, at=AT)
        else:
            await sweep(backend, Retention(tasks=timedelta(seconds=1), waiting=timedelta(seconds=1)), at=AT + 1001)
        assert await lease(backend) == []
        await submit(backend, message('again', new='t'))
        assert list(await configs_of(backend).list('t', OWNER)) == []
