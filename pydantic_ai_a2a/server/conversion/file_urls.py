"""The URLs of files in messages: which URLs the server may fetch, and the media types by their paths."""

from __future__ import annotations

import mimetypes
import re
from urllib.parse import SplitResult, urlsplit

from pydantic_ai.messages import VideoUrl

from ...errors import InvalidParamsError, PrivateAddressError
from ...public_hosts import is_public_host
from ...types.a2a_objects import Part

_BAD_IN_URL = re.compile(r'[\x00-\x20\x7f\\]')
"""Characters that URL parsers disagree about."""


def checked_file_url(url: str, field: str, schemes: frozenset[str]) -> SplitResult:
    """Refuse URLs that the server must not fetch for a client (§13.2).

    Names are not resolved here: Pydantic AI's own guard checks the addresses at the download.

    Raises:
        InvalidParamsError: The URL has another scheme, credentials, or a private address, or is no URL.
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


def guessed_type(target: SplitResult, part: Part) -> str | None:
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
