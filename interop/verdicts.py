"""What the clients are to show, and what became of it."""

from __future__ import annotations

TEXT = 'It is sunny in Rome today, and it will be warm until the evening comes.'
DATA = {'city': 'Rome', 'degrees': 21}


def of_text(shown: str) -> str:
    """What became of the text on its way to a user."""
    if shown == TEXT:
        return 'whole'
    if not shown.strip():
        return 'empty'
    plain, wanted = ''.join(shown.split()), ''.join(TEXT.split())
    if plain == wanted:
        return 'broken up'
    if plain == wanted * 2:
        return 'doubled' if shown.replace('\n', ' ').count(TEXT) == 2 else 'doubled, broken up'
    return 'part'


def of_data(shown: str) -> str:
    """Whether the data can be read."""
    return 'read' if all(str(value) in shown for value in DATA.values()) else 'not read'
