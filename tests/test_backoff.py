"""Pauses between attempts that fail."""

from itertools import islice

from pydantic_ai_a2a.backoff import backoff, backoff_after, spread


def test_backoff_doubles_up_to_longest_pause() -> None:
    assert list(islice(backoff(1.0, 30.0), 7)) == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    assert list(islice(backoff(1.0, 3.0, factor=1.5), 5)) == [1.0, 1.5, 2.25, 3.0, 3.0]


def test_backoff_never_exceeds_longest_pause() -> None:
    assert list(islice(backoff(60.0, 30.0), 2)) == [30.0, 30.0]


def test_backoff_after_many_failures_is_longest_pause() -> None:
    assert backoff_after(10**6, 0.001, 3600.0, factor=4.0) == 3600.0


def test_spread_stays_between_bounds() -> None:
    assert [spread(2.0, chance=chance) for chance in (0.0, 0.5, 1.0)] == [1.0, 1.5, 2.0]
    assert [spread(2.0, 1, 1.5, chance=chance) for chance in (0.0, 1.0)] == [2.0, 3.0]
    assert 1.0 <= spread(2.0) <= 2.0
