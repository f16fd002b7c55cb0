"""An A2A message as one user prompt of Pydantic AI.

Content that the agent's model does not accept is refused here, before anything is stored or run.
"""

from __future__ import annotations

import binascii
import mimetypes
import re
from collections.abc import Collection, Iterator, Sequence
from encodings import normalize_encoding
from encodings.aliases import aliases
from typing import NamedTuple, get_args
from urllib.parse import SplitResult, urlsplit

from pydantic_ai.messages import (
    AudioUrl,
    BinaryContent,
    BinaryImage,
    DocumentMediaType,
    DocumentUrl,
    FilePart,
    ImageMediaType,
    ImageUrl,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    StructuredContent,
    TextPart,
    UserContent,
    UserPromptPart,
    VideoUrl,
)
from pydantic_ai.models import Model, infer_model_profile
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.profiles import DEFAULT_PROFILE, ModelProfile
from pydantic_core import to_json

from ..errors import ContentTypeNotSupportedError, InvalidParamsError, PrivateAddressError
from ..public_hosts import is_public_host
from ..settings import HTTPS_ONLY
from ..types import Message, Part, frozen

_DOCUMENTS: frozenset[DocumentMediaType] = frozenset(get_args(DocumentMediaType))
"""The document types that a profile lists. `supports_document_input` alone decides about other documents."""
_IMAGES: tuple[str, ...] = get_args(ImageMediaType)
_WAV_AND_MP3 = ('audio/wav', 'audio/mpeg')
_FILENAME = re.compile(r'[^\x00-\x1f\x7f"<>]{1,255}')
"""File names that cannot break out of their frame in the prompt."""
_HEAD = 64
"""Characters of base64 with the first bytes of a file, for the detection of its type."""
_BAD_IN_URL = re.compile(r'[\x00-\x20\x7f\\]')
"""Characters that URL parsers disagree about."""

_DOWNLOADABLE = frozenset({'https', 'http'})
"""Schemes that Pydantic AI can download, so that no provider inside the network fetches the URL."""


@frozen
class Accepts:
    """The content that an agent accepts: the files that its model accepts, or the types that the app declares."""

    images: bool = True
    documents: frozenset[str] = _DOCUMENTS
    """The accepted document types among the known ones."""
    other_documents: bool = True
    """True if the model accepts documents of other types, such as presentations."""
    audio: bool = True
    audio_types: frozenset[str] | None = None
    """The accepted audio types, if `audio` is True; None: all."""
    video: bool = True
    url_schemes: frozenset[str] = HTTPS_ONLY
    """Accepted schemes of URLs, in lower case."""
    force_download: bool = True
    """True if downloadable URLs are downloaded here, and not left to the provider."""
    declared: tuple[str, ...] = ()
    """Media types and ranges such as `image/*` that the app declares. Then no other type is accepted, and a file may
    have each of them, whatever the model accepts."""

    def takes(self, media_type: str) -> bool:
        """Return True if a file of the type may be sent. The prompt can hold text, so text needs no support."""
        if self.declared:
            return in_ranges(media_type, self.declared)
        return is_text(media_type) or self.reads(media_type)

    def reads(self, media_type: str) -> bool:
        """Return True if the model gets a file of the type as a file, if the type is taken."""
        if self.declared and not is_text(media_type):
            return True
        if is_text(media_type) or media_type in _DOCUMENTS:
            return media_type in self.documents if media_type in _DOCUMENTS else self.other_documents
        match media_type.partition('/')[0]:
            case 'image':
                return self.images
            case 'audio':
                return self.audio and (self.audio_types is None or media_type in self.audio_types)
            case 'video':
                return self.video
            case _:
                return self.other_documents and BinaryContent(b'', media_type=media_type).is_document

    @property
    def input_modes(self) -> list[str]:
        """The accepted media types for the agent card."""
        if self.declared:
            return [*self.declared]
        documents = sorted(self.documents - {'text/plain'}, key=lambda name: (name != 'application/pdf', name))
        return [
            'text/plain',
            'application/json',
            *(_IMAGES if self.images else ()),
            *documents,
            *(_WAV_AND_MP3 if self.audio else ()),
            *(('video/mp4',) if self.video else ()),
        ]


_UNDECLARED = Accepts()


def accepts(
    profile: ModelProfile,
    url_schemes: Collection[str] = HTTPS_ONLY,
    *,
    force_download: bool = True,
    audio_types: frozenset[str] | None = None,
) -> Accepts:
    """Return the files that a model with the profile accepts. Support is the default for each kind of file."""
    documents = profile.get('supports_document_input', True)
    return Accepts(
        images=profile.get('supports_image_input', True),
        documents=_DOCUMENTS & profile.get('supported_document_media_types', _DOCUMENTS) if documents else frozenset(),
        other_documents=documents,
        audio=profile.get('supports_audio_file_input', True),
        audio_types=audio_types,
        video=profile.get('supports_video_input', True),
        url_schemes=frozenset(scheme.lower() for scheme in url_schemes),
        force_download=force_download,
    )


def resolve_profile(models: Sequence[Model | str]) -> ModelProfile:
    """Return one profile for the files that all of the models accept, without a provider's key or package.

    A model with an unknown profile has the default profile.
    """
    profiles = [profile for model in models for profile in _profiles(model)]
    if len(profiles) <= 1:
        return profiles[0] if profiles else DEFAULT_PROFILE
    documents = (profile.get('supported_document_media_types', _DOCUMENTS) for profile in profiles)
    return ModelProfile(
        supports_image_input=all(profile.get('supports_image_input', True) for profile in profiles),
        supports_document_input=all(profile.get('supports_document_input', True) for profile in profiles),
        supports_audio_file_input=all(profile.get('supports_audio_file_input', True) for profile in profiles),
        supports_video_input=all(profile.get('supports_video_input', True) for profile in profiles),
        supported_document_media_types=_DOCUMENTS.intersection(*documents),
    )


def _profiles(model: Model | str) -> Iterator[ModelProfile]:
    """Yield the profile of a model, or of each model that it may fall back to."""
    try:
        yield model.profile if isinstance(model, Model) else infer_model_profile(model)
    except NotImplementedError:  # a `FallbackModel` and its wrappers have no profile
        if isinstance(model, FallbackModel):
            yield from (profile for inner in model.models for profile in _profiles(inner))
        elif isinstance(model, WrapperModel):
            yield from _profiles(model.wrapped)
        else:
            yield DEFAULT_PROFILE
    except ImportError:
        # The optional package of the provider is missing. The server still serves the card.
        yield DEFAULT_PROFILE


def resolve_audio_types(models: Sequence[Model | str]) -> frozenset[str] | None:
    """Return the audio types that all of the models accept, if they accept audio; None: all types.

    No profile has these types. The API of OpenAI, and APIs like it, take WAV and MP3.
    """
    of_openai = any(_is_of_openai(model) for model in models)
    return frozenset(_WAV_AND_MP3) if of_openai else None


def _is_of_openai(model: Model | str) -> bool:
    """Return whether a model, or one that it may fall back to, is of OpenAI's API, without an import of its package."""
    if isinstance(model, FallbackModel):
        return any(map(_is_of_openai, model.models))
    if isinstance(model, WrapperModel):
        return _is_of_openai(model.wrapped)
    if isinstance(model, Model):
        return any(kind.__module__.startswith('pydantic_ai.models.openai') for kind in type(model).__mro__)
    return any(name.startswith('openai_') for profile in _profiles(model) for name in profile)


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


def check_types(message: Message, accepts: Accepts = _UNDECLARED) -> None:
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
        media = _declared(part, field)
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


def model_messages(history: Sequence[Message], accepts: Accepts) -> list[ModelMessage]:
    """Return an A2A history as a Pydantic AI message history, for a `fasta2a.Worker`.

    Raises:
        InvalidParamsError: As for `user_prompt`.
        ContentTypeNotSupportedError: As for `user_prompt`.
    """
    messages: list[ModelMessage] = []
    for index, message in enumerate(history):
        field = f'history[{index}]'
        if message['role'] == 'user':
            content = user_prompt(message, accepts, field=field)
            messages.append(ModelRequest(parts=[UserPromptPart(content=content)]))
        else:
            parts = (_answer(part, f'{field}.parts[{i}]') for i, part in enumerate(message['parts']))
            messages.append(ModelResponse(parts=list(parts)))
    return messages


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


def _answer(part: Part, field: str) -> TextPart | FilePart:
    """Return a part of an earlier answer of the agent: files stay files, links and data become text."""
    if 'raw' in part:
        data = _bytes(part['raw'], field)
        media = _declared(part, field) or MediaType(detect_media_type(data) or OCTET_STREAM, None)
        return FilePart(_binary(data, media.name, part))
    if 'data' in part:
        return TextPart(to_json(part['data']).decode())
    return TextPart(part['text'] if 'text' in part else part.get('url', ''))


def _file(part: Part, field: str, accepts: Accepts) -> UserContent:
    """Return a `raw` part as a file that the model reads, or as text."""
    media, data = _checked_file(part, field, accepts)
    if is_text(media.name):
        return _text_file(data, media, part, field, accepts)
    return _binary(_bytes(part.get('raw', ''), field), media.name, part)


def _checked_file(part: Part, field: str, accepts: Accepts) -> tuple[MediaType, bytes]:
    """Return the type of an accepted `raw` part, with all bytes of text and the first bytes of other files."""
    raw = part.get('raw', '')
    data = _bytes(raw[:_HEAD], field)
    media = _declared(part, field, accepts)
    where = f'{field}.mediaType' if media else f'{field}.raw'
    if media is None and (detected := file_signature(data)):
        media = MediaType(detected, None)
    if media is None or is_text(media.name):
        data = _bytes(raw, field)
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
    file = _binary(text.encode() if media.charset else data, media.name, part)
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
    target = _checked_url(url, f'{field}.url', accepts.url_schemes)
    media = _declared(part, field, accepts)
    name = media.name if media else _guessed(target, part)
    if name is None:
        raise _unsupported(f'{field}.url', 'needs a mediaType', accepts)
    if not (accepts.takes(name) and accepts.reads(name)):
        problem = f'{name} is not supported by URL' if accepts.takes(name) else f'{name} is not supported'
        raise _unsupported(f'{field}.{"mediaType" if media else "url"}', problem, accepts)
    file = url_kind(name)(url=url, media_type=name, identifier=_identifier(part))
    if accepts.force_download and target.scheme in _DOWNLOADABLE:
        file.force_download = not (isinstance(file, VideoUrl) and file.is_youtube)
    return file


def url_kind(media_type: str) -> type[ImageUrl | AudioUrl | VideoUrl | DocumentUrl]:
    """Return the class of Pydantic AI for the URL of a file."""
    if is_text(media_type):
        return DocumentUrl
    kinds = {'image': ImageUrl, 'audio': AudioUrl, 'video': VideoUrl}
    return kinds.get(media_type.partition('/')[0], DocumentUrl)


def _bytes(raw: str, field: str) -> bytes:
    try:
        return decode_base64(raw)
    except ValueError:
        raise InvalidParamsError.of(f'{field}.raw', 'must be base64') from None


def _binary(data: bytes, media_type: str, part: Part) -> BinaryContent:
    kind = BinaryImage if media_type.startswith('image/') else BinaryContent
    return kind(data, media_type=media_type, identifier=_identifier(part))


def _identifier(part: Part) -> str | None:
    """Return the file's name if the prompt can hold it."""
    filename = part.get('filename', '')
    return filename if _FILENAME.fullmatch(filename) else None


def _declared(part: Part, field: str, accepts: Accepts = _UNDECLARED) -> MediaType | None:
    """Return the media type of the part; None for an absent one, and for one that means bytes of an unknown type."""
    value = part.get('media_type')
    if not value:
        return None
    media = parse_media_type(value)
    if media is None:
        raise InvalidParamsError.of(f'{field}.mediaType', 'must be a media type, such as image/png')
    return None if media.name == OCTET_STREAM and OCTET_STREAM not in accepts.declared else media


def _guessed(target: SplitResult, part: Part) -> str | None:
    """Return the media type by the extension of the URL's path, else of the part's file name."""
    for path in (target.path or '/', f'/{part.get("filename", "")}'):
        if mimetypes.guess_type(path)[1]:
            continue  # compressed, such as .tar.gz: the extension is not the content's
        try:
            # Only VideoUrl also recognises pages of YouTube, whose URLs have no extension.
            return VideoUrl(f'{target.scheme}://{target.netloc}{path}').media_type
        except ValueError:
            continue
    return None


def _unsupported(field: str, problem: str, accepts: Accepts) -> ContentTypeNotSupportedError:
    return ContentTypeNotSupportedError(
        f'{field}: {problem}. This agent takes {", ".join(accepts.input_modes)}.', metadata={'field': field}
    )


def _checked_url(url: str, field: str, schemes: frozenset[str]) -> SplitResult:
    """Refuse URLs that the server must not fetch for a client (§13.2).

    Names are not resolved here: Pydantic AI's own guard checks the addresses at the download.
    """
    try:
        target = urlsplit(url)
        host = (target.hostname or '').encode('idna').decode()
        bad = bool(_BAD_IN_URL.search(url) or target.port == 0 or '%' in host)
    except ValueError:
        raise InvalidParamsError.of(field, 'must be a URL') from None
    if target.scheme not in schemes:
        needed = f'must be an {" or ".join(sorted(schemes))} URL' if schemes else 'URLs are not accepted'
        raise InvalidParamsError.of(field, needed)
    if bad or not host.strip('.'):
        raise InvalidParamsError.of(field, 'must be a URL')
    if '@' in target.netloc:
        raise InvalidParamsError.of(
            field, 'must not hold credentials: send the bytes of the file, or a URL without a user name and password'
        )
    if not is_public_host(host):
        raise PrivateAddressError.of(
            field, 'must not point to a private address: send the bytes of the file instead of its URL'
        )
    return target


# --- detection of file types by their bytes, and the spelling of media types ------------------------------------------

OCTET_STREAM = 'application/octet-stream'
"""Media type without information: the type is detected, as if none were declared."""

_PREFIXES = (
    (b'\x89PNG\r\n\x1a\n', 'image/png'),
    (b'\xff\xd8\xff', 'image/jpeg'),
    (b'GIF87a', 'image/gif'),
    (b'GIF89a', 'image/gif'),
    (b'%PDF-', 'application/pdf'),
)
_RIFF = {b'WEBP': 'image/webp', b'WAVE': 'audio/wav'}
_FTYP = {
    b'M4A ': 'audio/mp4',
    b'M4B ': 'audio/mp4',
    b'avif': 'image/avif',
    b'heic': 'image/heic',
    b'mif1': 'image/heif',
    b'qt  ': 'video/quicktime',
}
"""Brands of the MP4 container that are no MP4 video."""

_ALIASES = {
    'application/x-pdf': 'application/pdf',
    'audio/mp3': 'audio/mpeg',
    'audio/vnd.wave': 'audio/wav',
    'audio/wave': 'audio/wav',
    'audio/x-wav': 'audio/wav',
    'image/jpg': 'image/jpeg',
}
"""Other spellings in use, with the spelling of Pydantic AI's models."""

_TEXT = frozenset(
    f'application/{subtype}'
    for subtype in (
        'graphql',
        'javascript',
        'json',
        'jsonl',
        'sql',
        'toml',
        'x-ndjson',
        'x-sh',
        'x-yaml',
        'xml',
        'yaml',
    )
)
_CODECS = frozenset(
    [
        *('ascii', 'utf_8', 'utf_8_sig', 'utf_16', 'utf_16_be', 'utf_16_le', 'utf_32', 'utf_32_be', 'utf_32_le'),
        *(
            'latin_1',
            *(f'iso8859_{n}' for n in range(2, 17) if n != 12),
            *(f'cp125{n}' for n in range(9)),
            'koi8_r',
            'koi8_u',
        ),
        *('big5', 'gb2312', 'gbk', 'gb18030', 'euc_jp', 'shift_jis', 'euc_kr', 'cp949'),
    ]
)
"""Python's names of the supported charsets. Each charset is read in one pass. Other charsets of Python take quadratic
time (`punycode`) or return no text."""
_CHUNK = 65_536
"""Characters of base64 to decode at once. Other threads run in between."""
_NAME = re.compile(r"[a-z0-9][\w!#$&^.+'*-]{0,126}/[\w!#$&^.+'*-]{1,127}", re.ASCII)
_CHARSET = re.compile(r'\bcharset="?([\w.:+-]+)', re.ASCII)


class MediaType(NamedTuple):
    """A media type in its usual spelling."""

    name: str
    """Type and subtype in lower case, without parameters, such as `image/png`."""
    charset: str | None
    """The `charset` parameter in lower case; None without one."""


def parse_media_type(value: str) -> MediaType | None:
    """Read a media type of a client; None if it is malformed."""
    name, _, parameters = value.lower().partition(';')
    name = name.strip()
    if not _NAME.fullmatch(name):
        return None
    charset = _CHARSET.search(parameters)
    return MediaType(_ALIASES.get(name, name), charset[1] if charset else None)


def media_range(value: str) -> str:
    """Return a media type or a range in its usual spelling, without parameters. A bare `text` is `text/*`."""
    if (media := parse_media_type(value)) is not None:
        return media.name
    name = value.partition(';')[0].strip().lower()
    return name if '/' in name else f'{name}/*'


def in_ranges(name: str, ranges: Collection[str]) -> bool:
    """Return True for a media type among media types, `type/*` and `*/*`."""
    return not {name, f'{name.partition("/")[0]}/*', '*/*'}.isdisjoint(ranges)


def is_text(name: str) -> bool:
    """Return True for text files, which every model can read."""
    return name.startswith('text/') or name in _TEXT or name.endswith(('+json', '+xml'))


def decode_text(data: bytes, charset: str | None) -> str:
    """Return text of a declared charset, UTF-8 without one.

    Raises:
        ValueError: The bytes are not text of the charset, or the charset is not in use.
    """
    name = normalize_encoding(charset or 'utf-8-sig')
    codec = aliases.get(name, name)
    if codec not in _CODECS:  # codecs.lookup() imports modules by unknown names, and caches misses
        raise ValueError
    return data.decode(codec)


def detect_media_type(data: bytes) -> str | None:
    """Return the media type of a file by its first bytes, or `text/plain` for UTF-8 text; None for anything else."""
    return file_signature(data) or ('text/plain' if _is_utf8(data) else None)


def file_signature(data: bytes) -> str | None:
    """Return the media type of PNG, JPEG, GIF, WebP, PDF, WAV, MP3 and MP4 by the first 12 bytes; None for others."""
    for prefix, name in _PREFIXES:
        if data.startswith(prefix):
            return name
    if data[:4] == b'RIFF' and (riff := _RIFF.get(data[8:12])):
        return riff
    # The length of the box is first. Below 16 MB, the first byte is zero; text never has this byte.
    if data[4:8] == b'ftyp' and data[0] == 0:
        return _FTYP.get(data[8:12], 'video/mp4')
    return 'audio/mpeg' if _is_mp3(data) else None


def _is_mp3(data: bytes) -> bool:
    """Return True for an ID3v2 tag, or the header of an MPEG audio frame: sync, layer III, nothing in it reserved."""
    if data[:3] == b'ID3':
        return data[3:4] in {b'\x02', b'\x03', b'\x04'}
    if len(data) < 4 or data[0] != 0xFF or data[1] & 0xE6 != 0xE2:
        return False
    return data[1] & 0x18 != 0x08 and data[2] & 0xF0 != 0xF0 and data[2] & 0x0C != 0x0C


def _is_utf8(data: bytes) -> bool:
    if b'\0' in data:
        return False
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def decode_base64(value: str) -> bytes:
    """Decode base64, standard or URL-safe, padded or not, as in ProtoJSON (A2A 1.0 §5.5).

    Raises:
        ValueError: The text is not base64.
    """
    text = value.rstrip('=')
    if '=' in text:  # the decoder would accept padding at the end of a chunk
        raise ValueError
    if '-' in text or '_' in text:
        text = text.replace('-', '+').replace('_', '/')
    text += '=' * (-len(text) % 4)
    chunks = (text[start : start + _CHUNK] for start in range(0, len(text), _CHUNK))
    return b''.join(binascii.a2b_base64(chunk, strict_mode=True) for chunk in chunks)
