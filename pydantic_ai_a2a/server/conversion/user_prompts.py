"""An A2A message as one user prompt of Pydantic AI.

Content that the agent's model does not accept is refused here, before anything is stored or run.
"""

from __future__ import annotations

from pydantic_ai.messages import StructuredContent, UserContent, VideoUrl

from ...errors import ContentTypeNotSupportedError, InvalidParamsError
from ...types.a2a_objects import Message, Part
from ...wire.parts.file_parts import url_kind
from ...wire.parts.media_types import MediaType, is_text
from .accepted_content import Accepts
from .detected_media_types import decode_text, detect_media_type, file_signature
from .file_urls import checked_file_url, guessed_type
from .received_files import UNDECLARED, binary_content, bytes_of, declared_type, identifier_of

_HEAD = 64
"""Characters of base64 with the first bytes of a file, for the detection of its type."""

_DOWNLOADABLE = frozenset({'https', 'http'})
"""Schemes that Pydantic AI can download, so that no provider inside the network fetches the URL."""


def user_prompt(message: Message, accepts: Accepts, *, field: str = 'message') -> str | list[UserContent]:
    """Return all parts of one message as one user prompt, in order.

    Args:
        message: The message, of any role.
        accepts: The files that the agent's model accepts.
        field: Path of the message in the request, for error texts.

    Raises:
        InvalidParamsError: A part is malformed, or its URL must not be fetched.
        ContentTypeNotSupportedError: The model does not accept a part's media type, or the type is unknown.
    """
    parts = message['parts']
    if len(parts) == 1 and 'text' in parts[0]:
        return parts[0]['text']
    return [_content(part, f'{field}.parts[{index}]', accepts) for index, part in enumerate(parts)]


def check_parts(message: Message, accepts: Accepts) -> None:
    """Refuse a client's message that `user_prompt` refuses. A file is decoded only if it may be text.

    Raises:
        InvalidParamsError: As for `user_prompt`; the codec has checked the base64.
        ContentTypeNotSupportedError: As for `user_prompt`.
    """
    for index, part in enumerate(message['parts']):
        if 'text' in part or 'data' in part:
            continue
        field = f'message.parts[{index}]'
        if 'raw' not in part:
            _content(part, field, accepts)
            continue
        media, data = _checked_file(part, field, accepts)
        if is_text(media.name):
            _text(data, media, field)


def check_types(message: Message, accepts: Accepts = UNDECLARED) -> None:
    """Refuse text and data of a media type that the app does not declare, or else that is no text for the model.

    Text without a media type is `text/plain`, and data is `application/json`. A message to a task may always have
    both, because it may answer a question.

    Raises:
        InvalidParamsError: A `mediaType` is not a media type.
        ContentTypeNotSupportedError: The media type is not accepted.
    """
    for index, part in enumerate(message['parts']):
        if not ('text' in part or 'data' in part) or not ('media_type' in part or accepts.declared):
            continue
        field = f'message.parts[{index}]'
        media = declared_type(part, field)
        kind, plain = ('text', 'text/plain') if 'text' in part else ('data', 'application/json')
        name, field = (media.name, f'{field}.mediaType') if media else (plain, field)
        if accepts.declared:
            if not accepts.takes(name) and not (name == plain and 'task_id' in message):
                raise _unsupported(field, f'{name} is not supported', accepts)
        elif not is_text(name):
            raise ContentTypeNotSupportedError(
                f'{field}: {name} is not supported for {kind}: use a text type or a JSON type.',
                metadata={'field': field},
            )


def _content(part: Part, field: str, accepts: Accepts) -> UserContent:
    if 'text' in part:
        return part['text']
    if 'raw' in part:
        return _file(part, field, accepts)
    if 'url' in part:
        return _link(part, field, accepts)
    if 'data' in part:
        return StructuredContent(part['data'], tag='data_part')
    raise InvalidParamsError.of(field, 'must have one of text, raw, url and data')


def _file(part: Part, field: str, accepts: Accepts) -> UserContent:
    """Return a `raw` part as a file that the model reads, or as text."""
    media, data = _checked_file(part, field, accepts)
    if is_text(media.name):
        return _text_file(data, media, part, field, accepts)
    return binary_content(bytes_of(part.get('raw', ''), field), media.name, part)


def _checked_file(part: Part, field: str, accepts: Accepts) -> tuple[MediaType, bytes]:
    """Return the type of an accepted `raw` part, with all bytes of text and the first bytes of other files."""
    raw = part.get('raw', '')
    data = bytes_of(raw[:_HEAD], field)
    media = declared_type(part, field, accepts)
    where = f'{field}.mediaType' if media else f'{field}.raw'
    if media is None and (detected := file_signature(data)):
        media = MediaType(detected, None)
    if media is None or is_text(media.name):
        data = bytes_of(raw, field)
    if media is None and (detected := detect_media_type(data)):
        media = MediaType(detected, None)
    if media is None:
        raise _unsupported(where, 'needs a mediaType', accepts)
    if not accepts.takes(media.name):
        raise _unsupported(where, f'{media.name} is not supported', accepts)
    return media, data


def _text_file(data: bytes, media: MediaType, part: Part, field: str, accepts: Accepts) -> UserContent:
    """Return a text file; for models without text files, its text in Pydantic AI's frame for prompts."""
    text = _text(data, media, field)
    file = binary_content(text.encode() if media.charset else data, media.name, part)
    if media.name in accepts.documents:
        return file
    begin = f'-----BEGIN FILE id="{file.identifier}" type="{media.name}"-----'
    return f'{begin}\n{text}\n-----END FILE id="{file.identifier}"-----'


def _text(data: bytes, media: MediaType, field: str) -> str:
    try:
        return decode_text(data, media.charset)
    except ValueError:
        raise InvalidParamsError.of(f'{field}.raw', 'must be text in the charset of its mediaType, or UTF-8') from None


def _link(part: Part, field: str, accepts: Accepts) -> UserContent:
    """Return a `url` part by its type."""
    url = part.get('url', '')
    target = checked_file_url(url, f'{field}.url', accepts.url_schemes)
    media = declared_type(part, field, accepts)
    name = media.name if media else guessed_type(target, part)
    if name is None:
        raise _unsupported(f'{field}.url', 'needs a mediaType', accepts)
    if not (accepts.takes(name) and accepts.reads(name)):
        problem = f'{name} is not supported by URL' if accepts.takes(name) else f'{name} is not supported'
        raise _unsupported(f'{field}.{"mediaType" if media else "url"}', problem, accepts)
    file = url_kind(name)(url=url, media_type=name, identifier=identifier_of(part))
    if accepts.force_download and target.scheme in _DOWNLOADABLE:
        file.force_download = not (isinstance(file, VideoUrl) and file.is_youtube)
    return file


def _unsupported(field: str, problem: str, accepts: Accepts) -> ContentTypeNotSupportedError:
    return ContentTypeNotSupportedError(
        f'{field}: {problem}. This agent takes {", ".join(accepts.input_modes)}.', metadata={'field': field}
    )
