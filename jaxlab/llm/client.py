"""A chat client for any endpoint that speaks OpenAI's protocol.

    client = ChatClient(base_url="http://localhost:8000/v1", model="qwen")
    completion = client.chat([{"role": "user", "content": "Say hello."}], seed=1)
    completion.text, client.usage

It rests on urllib of the standard library: one POST that returns JSON is all that is
needed, and an HTTP library would be one more dependency of every installation.
"""

from __future__ import annotations

import dataclasses
import json
import os
import random
import threading
import time
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jaxlab.core.errors import ConfigError, EndpointError
from jaxlab.llm.transport import Response, Transport, post, redacted

Json = dict[str, Any]
Message = Mapping[str, str]

#: Statuses below 500 that may pass by themselves, as those from 500 on may.
RETRIED = frozenset({408, 409, 425, 429})
_HINTS = {
    400: "the request itself is refused; see what the endpoint says",
    401: "the key is missing or wrong; set OPENAI_API_KEY",
    403: "the key may not use this model or endpoint",
    404: "the model or the address is unknown there; check OPENAI_MODEL and OPENAI_BASE_URL "
    "(it usually ends in /v1)",
    429: "too many requests, or the quota is used up; wait, or lower the number of requests",
}


@dataclasses.dataclass(frozen=True)
class Retries:
    """How often and how long apart a request is tried again.

    The n-th wait lies between half and the whole of `first_wait * 2**n` s, at most
    `longest_wait`; a `Retry-After` of the endpoint is waited for instead, unless it is
    longer than `longest_wait`, which ends the attempts.

    Attributes:
      count: Attempts after the first.
      sleep, uniform: Of the standard library, or a test's own.
    """

    count: int = 5
    first_wait: float = 1.0
    longest_wait: float = 60.0
    sleep: Callable[[float], None] = time.sleep
    uniform: Callable[[float, float], float] = random.uniform

    def wait(self, attempt: int) -> float:
        """Seconds before the next attempt when the endpoint names none."""
        longest = min(self.first_wait * 2.0**attempt, self.longest_wait)
        return self.uniform(longest / 2, longest)


@dataclasses.dataclass
class Usage:
    """What a client has used so far.

    Attributes:
      requests: Answers received; `retries` are further attempts.
      prompt_tokens, completion_tokens: As the endpoint counts them.
      unmetered: Answers for which it gave no count.
      cost: Tokens times prices, in the currency of the prices.
    """

    requests: int = 0
    retries: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    unmetered: int = 0
    cost: float = 0.0


@dataclasses.dataclass(frozen=True)
class Completion:
    """One answer.

    Attributes:
      text: What the model wrote.
      model: Name under which the endpoint answered.
      truncated: It stopped because the limit of tokens was reached.
      prompt_tokens, completion_tokens: None where the endpoint does not say.
    """

    text: str
    model: str
    truncated: bool
    prompt_tokens: int | None
    completion_tokens: int | None


class ChatClient:
    """Asks one model at one endpoint; may be used from several threads.

    Args:
      base_url: Address up to `/v1`; by default OPENAI_BASE_URL, then OpenAI's own.
      model: By default OPENAI_MODEL.
      api_key: By default OPENAI_API_KEY; local servers often need none. It is sent to
        this address only, redirections are refused, and appears in no message.
      temperature, top_p: Of the sampling; None leaves it to the endpoint.
      max_tokens: Longest answer.
      timeout: Seconds until an attempt is given up.
      prompt_price, completion_price: Per million tokens, for `usage.cost`.
      extra: Further fields of the request; None removes a field, for models that know
        `max_completion_tokens` instead of `max_tokens`, for instance.

    Raises:
      ConfigError: no model, or an address, price or limit that cannot be.
    """

    def __init__(
        self,
        base_url: str | None = None,
        model: str | None = None,
        api_key: str | None = None,
        *,
        temperature: float | None = 0.7,
        top_p: float | None = None,
        max_tokens: int | None = 2000,
        timeout: float = 120.0,
        retries: Retries | None = None,
        prompt_price: float = 0.0,
        completion_price: float = 0.0,
        extra: Mapping[str, Any] | None = None,
        transport: Transport = post,
    ):
        environment = os.environ.get
        given = base_url or environment("OPENAI_BASE_URL") or "https://api.openai.com/v1"
        self.base_url = _checked_address(given)
        self.model = model or environment("OPENAI_MODEL") or ""
        if not self.model:
            raise ConfigError("no model is named; give one or set OPENAI_MODEL")
        if timeout <= 0 or min(prompt_price, completion_price) < 0:
            raise ConfigError("the timeout must be positive and prices must not be negative")
        self.temperature, self.top_p, self.max_tokens = temperature, top_p, max_tokens
        self.timeout, self.retries = timeout, retries or Retries()
        self.prices = (prompt_price, completion_price)
        self.usage = Usage()
        self._key = (environment("OPENAI_API_KEY", "") if api_key is None else api_key).strip()
        if not self._key.isascii() or not all(map(str.isprintable, self._key)):
            raise ConfigError("the key holds characters no key has; set OPENAI_API_KEY anew")
        self._extra, self._transport = dict(extra or {}), transport
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"ChatClient({redacted(self.base_url, self._key)!r}, {self.model!r})"

    def __getstate__(self) -> Any:
        raise TypeError("a ChatClient holds a key and cannot be pickled or copied")

    def chat(self, messages: Sequence[Message], *, seed: int | None = None) -> Completion:
        """Send a conversation and wait for the answer.

        Args:
          messages: `{"role": "system" | "user" | "assistant", "content": text}` each.
          seed: Of the sampling, for endpoints that know it.

        Raises:
          EndpointError: no answer after all attempts, a refusal, or an answer of another
            form; the message says which and what to do.
        """
        fields = {
            "model": self.model,
            "messages": [dict(message) for message in messages],
            "temperature": self.temperature,
            "top_p": self.top_p,
            "max_tokens": self.max_tokens,
            "seed": seed,
        } | self._extra
        body = json.dumps({name: value for name, value in fields.items() if value is not None})
        completion = self._read(self._send(body.encode()))
        self._account(completion)
        return completion

    def _send(self, body: bytes) -> Response:
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        url = self.base_url + "/chat/completions"
        attempt = 0
        while True:
            wait = None
            try:
                response = self._transport(url, body, headers, self.timeout)
            except ConnectionError as error:
                problem, hint = str(error), "check OPENAI_BASE_URL and the connection"
            else:
                if response.status == 200:
                    return response
                problem = f"status {response.status} ({_said(response)})"
                hint = _hint(response.status)
                if not _may_pass(response):
                    raise self._error(problem, hint)
                wait = response.retry_after
                if wait is not None and wait > self.retries.longest_wait:
                    later = f"it asks for {wait:.0f} s of patience; try again after that"
                    raise self._error(problem, later)
            if attempt >= self.retries.count:
                tries = f"{attempt + 1} attempts" if attempt else "the only attempt"
                raise self._error(f"no answer after {tries}: {problem}", hint)
            self.retries.sleep(self.retries.wait(attempt) if wait is None else wait)
            attempt += 1
            with self._lock:
                self.usage.retries += 1

    def _read(self, response: Response) -> Completion:
        try:
            answer = json.loads(response.body)
        except (UnicodeDecodeError, json.JSONDecodeError, RecursionError):
            raise self._error(*_not_json(response)) from None
        try:
            choice = answer["choices"][0]
            message = choice["message"]
            text = message.get("content")
            text = message.get("refusal") if text is None else text
            if not isinstance(text, str):
                raise TypeError
        except (KeyError, IndexError, TypeError, AttributeError):
            raise self._error(
                f"the answer is JSON of another form: {_said(response)}; expected a text in "
                "choices[0].message.content",
                "the address must be that of a chat endpoint",
            ) from None
        usage = answer.get("usage")
        counts = usage if isinstance(usage, dict) else {}
        model = answer["model"] if isinstance(answer.get("model"), str) else self.model
        # Answers go into logs, and a server may send back whatever it was sent.
        text, model = (
            part.replace(self._key, "***") if self._key else part for part in (text, model)
        )
        return Completion(
            text=text,
            model=model,
            truncated=choice.get("finish_reason") == "length",
            prompt_tokens=_count(counts.get("prompt_tokens")),
            completion_tokens=_count(counts.get("completion_tokens")),
        )

    def cost(self, completion: Completion) -> float:
        """What one answer cost, as far as its tokens were counted."""
        prompt, written = completion.prompt_tokens or 0, completion.completion_tokens or 0
        return (prompt * self.prices[0] + written * self.prices[1]) / 1e6

    def _account(self, completion: Completion) -> None:
        with self._lock:
            self.usage.requests += 1
            self.usage.prompt_tokens += completion.prompt_tokens or 0
            self.usage.completion_tokens += completion.completion_tokens or 0
            self.usage.cost += self.cost(completion)
            if completion.prompt_tokens is None or completion.completion_tokens is None:
                self.usage.unmetered += 1

    def _error(self, problem: str, hint: str) -> EndpointError:
        text = f"endpoint {self.base_url}, model {self.model}: {problem}; {hint}"
        text = "".join(c if c.isprintable() else " " for c in redacted(text, self._key))
        return EndpointError(" ".join(text.split()))


def _checked_address(text: str) -> str:
    """The address without a slash or the method's own path at its end."""
    text = text.strip().rstrip("/").removesuffix("/chat/completions")
    try:
        parts = urllib.parse.urlsplit(text)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        valid = False
    if not valid or any(c.isspace() or not c.isascii() for c in text):
        raise ConfigError(
            f"the base URL '{redacted(text[:200], '')}' is no address; expected one such as "
            "https://api.openai.com/v1"
        )
    if parts.username or parts.query or parts.fragment:
        raise ConfigError(
            "the base URL must hold no user name, password, query or fragment; the key goes "
            "into OPENAI_API_KEY"
        )
    return text


def _not_json(response: Response) -> tuple[str, str]:
    """What an answer that cannot be read is, and what to do."""
    start = response.body[:200].lstrip().lower()
    if start.startswith((b"<!doctype", b"<html", b"<")):
        return (
            f"it answered with a web page, not with JSON ({_said(response)})",
            "check OPENAI_BASE_URL (it usually ends in /v1) and whether a login or proxy "
            "stands in between",
        )
    if start.startswith((b"{", b"[")):
        return (
            f"the answer breaks off or is damaged after {len(response.body)} bytes "
            f"(...{response.body[-60:].decode(errors='replace')!r})",
            "try again; if it stays so, something between here and the endpoint cuts answers",
        )
    what = f"'{_said(response)}'" if response.body else "nothing"
    return f"it answered {what}, which is no JSON", "check OPENAI_BASE_URL"


def _said(response: Response) -> str:
    """The endpoint's own words, on one line."""
    text = response.body[:2000].decode(errors="replace")
    try:
        found = json.loads(response.body)
        inner = found.get("error", found.get("message", text))
        text = inner.get("message", text) if isinstance(inner, dict) else str(inner)
    except (ValueError, AttributeError, RecursionError):
        pass
    return " ".join(str(text).split())[:300] or "without a word"


def _may_pass(response: Response) -> bool:
    """Whether the same request may succeed later; a quota that is used up does not come back."""
    quota = response.status == 429 and b"insufficient_quota" in response.body[:2000]
    return (response.status >= 500 or response.status in RETRIED) and not quota


def _hint(status: int) -> str:
    if 300 <= status < 400:
        return "the endpoint has moved; set OPENAI_BASE_URL to its new address"
    return _HINTS.get(status, "see what the endpoint says, or try later")


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
