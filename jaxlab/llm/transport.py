"""One POST over HTTP with a deadline, a limit on the answer, and no redirections."""

from __future__ import annotations

import email.utils
import http.client
import math
import re
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

#: Longest answer that is read, in bytes.
LARGEST_ANSWER = 32 * 2**20


class Response(NamedTuple):
    """What came back.

    Attributes:
      status: HTTP status, an error or not.
      body: All of it.
      retry_after: Seconds the server asks to wait, if it does.
    """

    status: int
    body: bytes
    retry_after: float | None = None


class Transport(Protocol):
    """Sends a request; every failure on the way is a ConnectionError with one clear line."""

    def __call__(
        self, url: str, body: bytes, headers: Mapping[str, str], timeout: float
    ) -> Response: ...


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirection would carry the key to another address."""

    def redirect_request(self, *arguments: Any) -> None:
        return None


def post(url: str, body: bytes, headers: Mapping[str, str], timeout: float) -> Response:
    """POST `body` and read the answer, whatever its status.

    Args:
      timeout: Seconds for the whole exchange.

    Raises:
      ConnectionError: no connection, no whole answer in time, or too long a one.
    """
    deadline = time.monotonic() + timeout
    request = urllib.request.Request(url, body, dict(headers), method="POST")
    try:
        try:
            stream = urllib.request.build_opener(_NoRedirect).open(request, timeout=timeout)
        except urllib.error.HTTPError as error:
            stream = error
        with stream:
            text = _read(stream, deadline, timeout)
            return Response(stream.status, text, _retry_after(stream.headers))
    except TimeoutError as error:
        raise ConnectionError(f"no answer within {timeout:g} s") from error
    except urllib.error.URLError as error:
        if isinstance(error.reason, TimeoutError):
            raise ConnectionError(f"no connection within {timeout:g} s") from error
        raise ConnectionError(f"no connection ({error.reason})") from error
    except (http.client.HTTPException, OSError) as error:
        raise ConnectionError(f"the connection broke ({type(error).__name__}: {error})") from error


def _read(stream: Any, deadline: float, timeout: float) -> bytes:
    """The whole body; a server that sends drop by drop is held to the deadline as well."""
    parts, size = [], 0
    while part := stream.read1(2**16):
        parts.append(part)
        size += len(part)
        if size > LARGEST_ANSWER:
            raise http.client.HTTPException(f"the answer is longer than {LARGEST_ANSWER} bytes")
        if time.monotonic() > deadline:
            raise TimeoutError(f"no whole answer within {timeout:g} s")
    promised = stream.headers.get("Content-Length", "")
    if promised.isdecimal() and size < int(promised):
        raise http.client.IncompleteRead(b"", int(promised) - size)
    return b"".join(parts)


def _retry_after(headers: Any) -> float | None:
    """Seconds, from a number or a date; None where it is missing or makes no sense."""
    value = headers.get("Retry-After")
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(value).timestamp() - time.time()
        except (ValueError, TypeError, OverflowError):
            return None
    return max(seconds, 0.0) if math.isfinite(seconds) else None


def redacted(text: str, key: str) -> str:
    """The text without the key, without what looks like one, and without passwords in addresses."""
    if key:
        text = text.replace(key, "***")
    text = re.sub(r"\b(sk|pk|gsk|hf|xai)[-_][\w*.-]{6,}", "***", text)
    text = re.sub(r"(?i)\bbearer\s+[^\s\"']+", "Bearer ***", text)
    return re.sub(r"://[^/\s@]+@", "://***@", text)
