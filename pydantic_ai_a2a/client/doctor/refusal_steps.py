"""The steps about refusals: of unknown tasks, of bad params, and of requests without credentials."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from dataclasses import replace
from uuid import uuid4

from ...errors import MethodNotFoundError, TaskNotFoundError
from ...types.a2a_objects import AgentCard
from ...types.operation_params import GetParams
from .findings import ExaminationStep, Finding
from .interface_probe import HttpAnswer, Probe
from .message_steps import harmless_message


def served(probe: Probe, unknown: HttpAnswer) -> Finding:
    """Return the finding about an interface, by its answer to a request for an unknown task."""
    step = ExaminationStep('interface', '8.3', unknown)
    if not unknown.status:
        return step.fault(
            f'{probe.name} is declared and cannot be reached.',
            'Serve the interface at the URL on the card, or take the interface from the card.',
        )
    is_absent = unknown.status in (404, 405, 501) and unknown.code is None
    if isinstance(unknown.error, MethodNotFoundError) or is_absent:
        return step.fault(
            f'{probe.name} is declared and not served.',
            'Serve this version and binding, or take them from the card.',
        )
    return step.ok(f'{probe.name} is served.')


async def security(probe: Probe, card: AgentCard, with_credentials: HttpAnswer) -> Finding:
    """Return the finding about requests without credentials."""
    declared = bool(card.get('security_schemes')) and bool(card.get('security_requirements'))
    anonymous = probe.without_credentials()
    try:
        answer = await anonymous.ask('GetTask', GetParams(id=uuid4().hex))
    finally:
        await anonymous.close()
    enforced = answer.status in (401, 403)
    declares, asks = ExaminationStep('security', '7.3', answer), ExaminationStep('security', '7.4', answer)
    if declared and not enforced:
        return asks.fault(
            'The card asks for credentials, and requests without credentials are served.',
            'Refuse requests without credentials with HTTP 401.',
        )
    if enforced and not declared:
        return declares.fault(
            'Requests without credentials are refused, and the card does not say so.',
            'Declare securitySchemes and securityRequirements on the card.',
        )
    if not enforced:
        return declares.found('hint', 'Everybody may call the agent: it asks for no credentials.')
    if with_credentials.status in (401, 403):
        text = 'The agent has refused the credentials, or got none.'
        advice = 'Give credentials with --token-env or --header.'
        return replace(asks, answer=with_credentials).found('warning', text, advice)
    return asks.ok('Requests without credentials are refused, as the card says.')


def error_answers(probe: Probe, unknown: HttpAnswer) -> Iterator[Finding]:
    """Yield the findings about the answer to a request for an unknown task."""
    is_rpc = probe.interface.binding == 'JSONRPC'
    if unknown.media_type not in ('application/json', 'application/a2a+json'):
        yield ExaminationStep('content type', '9.1' if is_rpc else '11.1', unknown).fault(
            f'Answers have the media type {unknown.media_type or "of nothing"}.', 'Answer with application/json.'
        )
    wanted = 'the error -32001' if is_rpc else 'HTTP 404 with the reason TASK_NOT_FOUND'
    step = ExaminationStep('unknown task', '3.3.2', unknown)
    if isinstance(unknown.error, TaskNotFoundError):
        yield step.ok(f'An unknown task is {wanted}.')
    else:
        advice = f'Answer with {wanted}, also for tasks of other callers.'
        yield step.fault(f'GetTask of an unknown task is not {wanted}.', advice)


async def bad_params(probe: Probe) -> AsyncGenerator[Finding, None]:
    """Yield the findings about requests with bad params, and with an unknown method."""
    answer = await probe.ask_wrongly('SendMessage', harmless_message('m'))
    is_rpc = probe.interface.binding == 'JSONRPC'
    wanted = 'the error -32602' if is_rpc else 'HTTP 400'
    step = ExaminationStep('bad params', '3.3.2', answer)
    if answer.code == -32602 if is_rpc else answer.status == 400:
        yield step.ok(f'SendMessage without a message is {wanted}.')
    else:
        advice = f'Check the params, and answer with {wanted}.'
        yield step.fault(f'SendMessage without a message is not {wanted}.', advice)
    if is_rpc:
        step = ExaminationStep('unknown method', '9.5', await probe.ask_nonsense())
        if step.answer.code == -32601:
            yield step.ok('An unknown method is the error -32601.')
        else:
            yield step.fault('An unknown method is not the error -32601.', 'Answer with the error -32601.')
