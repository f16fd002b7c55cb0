"""The figures of the documentation are those of the benchmarks' results."""

from __future__ import annotations

from .figures import PERFORMANCE, capacity, performance, results

REPAIR = 'run: python -m tests.docs.figures'


def test_the_performance_page_has_the_results_of_the_benchmarks() -> None:
    page = PERFORMANCE.read_text()
    assert page == performance(page, results()), REPAIR
    assert '| plain send, memory |' in page


def test_the_capacity_page_calculates_with_the_results_of_the_benchmarks() -> None:
    page = PERFORMANCE.read_text()
    assert page == capacity(page, results()), REPAIR
    assert '\n     1000       10000 ' in page
