"""One test for all cases of a rule: each case is a subtest with its own name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from functools import update_wrapper
from itertools import repeat
from typing import Any

import pytest
from _pytest.mark import ParameterSet

Test = Callable[..., Any]


def each_case(
    names: str | Sequence[str], cases: Iterable[Any], *, ids: Callable[[Any], str] | Iterable[str] | None = None
) -> Any:
    """Run a test with each case, as `pytest.mark.parametrize` does. The cases share the fixtures of the test.

    Where one app serves all cases, as it does if each is refused, a test takes `subtests` and has the loop itself.

    Args:
        names: Names of arguments.
        cases: Their values: one value for one name, a tuple for several names, or a `pytest.param`.
        ids: Names of the cases, or a function that names a value. Default: the case itself.
    """
    fields = [name.strip() for name in names.split(',')] if isinstance(names, str) else [*names]
    given = repeat(None) if ids is None or callable(ids) else ids
    rows = [_row(fields, case, ids if callable(ids) else name) for case, name in zip(cases, given, strict=False)]
    assert rows

    def decorate(test: Test) -> Test:
        takes = inspect.signature(test).parameters
        nested = 'subtests' in takes  # a table of a table

        async def run_async(subtests: pytest.Subtests, **fixtures: Any) -> None:
            for name, values in rows:
                with subtests.test(msg=name):
                    await test(**fixtures, **values, **({'subtests': subtests} if nested else {}))

        def run(subtests: pytest.Subtests, **fixtures: Any) -> None:
            for name, values in rows:
                with subtests.test(msg=name):
                    test(**fixtures, **values, **({'subtests': subtests} if nested else {}))

        wrapper: Any = update_wrapper(run_async if inspect.iscoroutinefunction(test) else run, test)
        del wrapper.__wrapped__  # pytest would take its arguments
        fixtures = [each for each in takes.values() if each.name not in (*fields, 'subtests')]
        subtests = inspect.Parameter('subtests', inspect.Parameter.KEYWORD_ONLY)
        wrapper.__signature__ = inspect.Signature([*fixtures, subtests])
        return wrapper

    return decorate


def _row(fields: Sequence[str], case: Any, name: Callable[[Any], str] | str | None) -> tuple[str, dict[str, Any]]:
    if isinstance(case, ParameterSet):
        assert not case.marks
        name = str(case.id) if case.id else name
        case = case.values if len(fields) > 1 else case.values[0]
    values = case if len(fields) > 1 else (case,)
    shown = name(case) if callable(name) else name or repr(case)[:100]
    return shown, dict(zip(fields, values, strict=True))
