"""Type checkers see the options of `to_a2a` as they are."""

from __future__ import annotations

import re
from inspect import signature

from pydantic_ai_a2a import RunOptions, to_a2a
from pydantic_ai_a2a.server.app.app_options import AppOptions


def test_typed_options_equal_arguments_of_to_a2a() -> None:
    arguments = {name: parameter.annotation for name, parameter in signature(to_a2a).parameters.items()}
    own = {name: hint.__forward_arg__ for name, hint in AppOptions.__annotations__.items() if name in arguments}
    bare = {name: re.sub(r'\[(DepsT|OutputT)\]', '', hint) for name, hint in own.items()}
    assert bare == {name: hint for name, hint in arguments.items() if name not in ('agent', 'run')}
    assert AppOptions.__annotations__.keys() - own.keys() == RunOptions.__annotations__.keys() - {'output_type'}
