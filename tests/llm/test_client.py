"""The chat client against a local server that misbehaves in every way a real one does."""

import copy
import email.utils
import json
import pickle
import socket
import time

import pytest

from jaxlab.core.errors import ConfigError, EndpointError
from jaxlab.llm.client import ChatClient, Retries
from tests.llm.misbehaving import Endpoint, raw, said, serving, unused_address

KEY = "sk-test-0123456789abcdef"
HELLO = [{"role": "user", "content": "Say hello."}]


@pytest.fixture(autouse=True)
def no_settings_of_the_user(monkeypatch):
    for name in ("OPENAI_BASE_URL", "OPENAI_API_KEY", "OPENAI_MODEL", "http_proxy", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)


class Waits(list):
    """Collects waits in place of waiting."""

    def retries(self, count=3, **numbers):
        return Retries(count, sleep=self.append, uniform=lambda low, high: high, **numbers)


def ask(endpoint, waits=None, **options):
    """One question to a scripted endpoint; no test really waits."""
    options = {"model": "m", "api_key": KEY, "timeout": 60.0} | options
    options.setdefault("retries", (Waits() if waits is None else waits).retries())
    with serving(endpoint) as url:
        return ChatClient(url, **options).chat(HELLO)


def failure(endpoint, **options):
    """The message of a question that fails, which never holds the key."""
    with pytest.raises(EndpointError) as caught:
        ask(endpoint, **options)
    message = str(caught.value)
    assert KEY not in message
    assert "\n" not in message
    return message


def test_an_answer_and_what_was_sent():
    endpoint = Endpoint(said("Hello."))
    with serving(endpoint) as url:
        client = ChatClient(url, "m", KEY, temperature=0.3, top_p=0.9, max_tokens=50)
        completion = client.chat(HELLO, seed=4)
    assert completion == (completion.__class__)("Hello.", "served", False, 11, 5)
    (request,) = endpoint.requests
    assert request["path"] == "/v1/chat/completions"
    assert request["headers"]["Authorization"] == f"Bearer {KEY}"
    assert request["body"] == {
        "model": "m",
        "messages": HELLO,
        "temperature": 0.3,
        "top_p": 0.9,
        "max_tokens": 50,
        "seed": 4,
    }


def test_settings_come_from_the_usual_variables(monkeypatch):
    endpoint = Endpoint(said("yes"))
    with serving(endpoint) as url:
        monkeypatch.setenv("OPENAI_BASE_URL", url + "/")
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        monkeypatch.setenv("OPENAI_MODEL", "from-environment")
        ChatClient().chat(HELLO)
        ChatClient(model="given", api_key="").chat(HELLO)
    first, second = endpoint.requests
    assert first["body"]["model"] == "from-environment"
    assert first["headers"]["Authorization"] == f"Bearer {KEY}"
    assert second["body"]["model"] == "given"
    assert "Authorization" not in second["headers"]


def test_fields_can_be_added_and_removed():
    endpoint = Endpoint(said("yes"))
    ask(endpoint, extra={"max_tokens": None, "max_completion_tokens": 9})
    body = endpoint.requests[0]["body"]
    assert "max_tokens" not in body
    assert body["max_completion_tokens"] == 9


def test_tokens_and_cost_add_up():
    endpoint = Endpoint(said("a"), said("b", usage={"prompt_tokens": 9}), said("c", usage=None))
    with serving(endpoint) as url:
        client = ChatClient(url, "m", KEY, prompt_price=2.0, completion_price=10.0)
        for _ in range(3):
            client.chat(HELLO)
    usage = client.usage
    assert (usage.requests, usage.retries, usage.unmetered) == (3, 0, 2)
    assert (usage.prompt_tokens, usage.completion_tokens) == (20, 5)
    assert usage.cost == pytest.approx((20 * 2 + 5 * 10) / 1e6)


def test_an_answer_cut_by_the_limit_of_tokens_says_so():
    choice = {"message": {"content": "Hel"}, "finish_reason": "length"}
    assert ask(Endpoint(said("", choices=[choice]))).truncated


def test_a_refusal_is_the_answer():
    choice = {"message": {"content": None, "refusal": "I must not."}}
    assert ask(Endpoint(said("", choices=[choice]))).text == "I must not."


def test_silence_ends_at_the_timeout_and_is_tried_again():
    endpoint = Endpoint()
    endpoint.replies = [endpoint.hang]
    waits = Waits()
    message = failure(endpoint, timeout=0.1, retries=waits.retries(2))
    assert "no answer after 3 attempts" in message
    assert "0.1 s" in message
    assert endpoint.count == 3
    assert waits == [1.0, 2.0]


def test_a_server_that_drips_is_held_to_the_timeout():
    endpoint = Endpoint()
    endpoint.replies = [endpoint.drip]
    began = time.monotonic()
    message = failure(endpoint, timeout=0.3, retries=Waits().retries(0))
    assert "after the only attempt" in message
    assert "within 0.3 s" in message
    assert time.monotonic() - began < 15


def test_a_slow_start_is_forgiven():
    endpoint = Endpoint()
    endpoint.replies = [endpoint.hang, said("at last")]
    assert ask(endpoint, timeout=0.2).text == "at last"


def test_a_web_page_is_an_error_that_names_the_address():
    endpoint = Endpoint(raw("<!DOCTYPE html><html><body>Please log in</body></html>"))
    message = failure(endpoint)
    assert "web page" in message
    assert "OPENAI_BASE_URL" in message
    assert "127.0.0.1" in message
    assert endpoint.count == 1


def test_text_that_is_no_json_and_an_empty_answer():
    assert "'All systems go', which is no JSON" in failure(Endpoint(raw("All systems go")))
    assert "it answered nothing" in failure(Endpoint(raw("")))
    assert "no JSON" in failure(Endpoint(raw("\x00\x01")))


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (400, "the request itself is refused"),
        (401, "OPENAI_API_KEY"),
        (403, "may not use"),
        (404, "OPENAI_MODEL"),
        (301, "has moved"),
        (418, "418"),
    ],
)
def test_a_refusal_is_final(status, expected):
    body = json.dumps({"error": {"message": f"Incorrect API key provided: {KEY}."}})
    endpoint = Endpoint(raw(body, status, Location="http://127.0.0.1:9/elsewhere"))
    message = failure(endpoint)
    assert f"status {status}" in message
    assert expected in message
    assert "Incorrect API key provided: ***" in message
    assert endpoint.count == 1


def test_too_many_requests_then_an_answer():
    endpoint = Endpoint(raw("slow down", 429, Retry_After="7"), raw("", 429), said("fine"))
    waits = Waits()
    with serving(endpoint) as url:
        client = ChatClient(url, "m", KEY, retries=waits.retries())
        assert client.chat(HELLO).text == "fine"
    assert waits == [7.0, 2.0]
    assert client.usage.retries == 2


def test_too_many_requests_for_ever():
    endpoint, waits = Endpoint(raw('{"error": {"message": "slow down"}}', 429)), Waits()
    message = failure(endpoint, waits=waits)
    assert "after 4 attempts" in message
    assert "status 429 (slow down)" in message
    assert waits == [1.0, 2.0, 4.0]


def test_the_endpoint_may_name_a_date_to_wait_for():
    date = email.utils.formatdate(time.time() + 30, usegmt=True)
    waits = Waits()
    assert ask(Endpoint(raw("", 503, Retry_After=date), said("fine")), waits).text == "fine"
    assert 25 < waits[0] <= 30


@pytest.mark.parametrize("value", ["soon", "nan", "inf", ""])
def test_a_senseless_retry_after_is_ignored(value):
    waits = Waits()
    assert ask(Endpoint(raw("", 429, Retry_After=value), said("fine")), waits).text == "fine"
    assert waits == [1.0]


def test_too_long_a_wait_is_an_error_at_once():
    endpoint = Endpoint(raw("", 429, Retry_After="3600"))
    assert "3600 s of patience" in failure(endpoint)
    assert endpoint.count == 1


def test_a_quota_that_is_used_up_does_not_come_back():
    endpoint = Endpoint(raw('{"error": {"code": "insufficient_quota", "message": "pay"}}', 429))
    assert "quota" in failure(endpoint)
    assert endpoint.count == 1


@pytest.mark.parametrize("status", [500, 502, 503, 504, 529])
def test_trouble_at_the_server_passes(status):
    assert ask(Endpoint(raw("<html>bad gateway</html>", status), said("back"))).text == "back"


def test_half_a_json_with_an_honest_length():
    body = '{"choices": [{"message": {"content": "Hel'
    endpoint = Endpoint(raw(body))
    message = failure(endpoint)
    assert f"breaks off or is damaged after {len(body)} bytes" in message
    assert endpoint.count == 1


def test_a_connection_that_breaks_half_way_is_tried_again():
    half = raw('{"choices": [{"mess', Content_Length="500")
    assert ask(Endpoint(half, said("whole"))).text == "whole"
    assert "IncompleteRead" in failure(Endpoint(half))


def test_an_answer_that_is_no_http_at_all():
    def babble(handler):
        handler.wfile.write(b"SSH-2.0-OpenSSH_9.6\r\n")

    assert "the connection broke (BadStatusLine" in failure(Endpoint(babble))


@pytest.mark.parametrize(
    "body",
    [
        "[]",
        "3",
        "null",
        "{}",
        '{"choices": []}',
        '{"choices": {}}',
        '{"choices": [null]}',
        '{"choices": [{"message": null}]}',
        '{"choices": [{"message": {"content": null}}]}',
        '{"choices": [{"message": {"content": [1]}}]}',
        '{"choices": [{"text": "an older form"}]}',
        '{"error": {"message": "overloaded"}}',
    ],
)
def test_json_of_another_form(body):
    message = failure(Endpoint(raw(body)))
    assert "JSON of another form" in message
    assert "choices[0].message.content" in message
    assert ("overloaded" in message) == ("overloaded" in body)


def test_json_that_is_nested_without_end():
    assert "damaged" in failure(Endpoint(raw("[" * 200_000)))


def test_counts_that_are_no_numbers_are_no_counts():
    answer = ask(Endpoint(said("a", usage={"prompt_tokens": "many", "completion_tokens": True})))
    assert (answer.prompt_tokens, answer.completion_tokens) == (None, None)


def test_an_endless_answer_is_cut(monkeypatch):
    monkeypatch.setattr("jaxlab.llm.transport.LARGEST_ANSWER", 1000)
    assert "longer than 1000 bytes" in failure(Endpoint(raw("x" * 2000)))


def test_nobody_listens():
    waits = Waits()
    client = ChatClient(unused_address(), "m", KEY, retries=waits.retries())
    with pytest.raises(EndpointError, match=r"no answer after 4 attempts: no connection \(.*refus"):
        client.chat(HELLO)
    assert waits == [1.0, 2.0, 4.0]


def test_a_name_that_is_unknown(monkeypatch):
    def unknown(*_, **__):
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    client = ChatClient("http://nowhere.invalid/v1", "m", KEY, retries=Waits().retries(0))
    with pytest.raises(EndpointError, match="Name or service not known"):
        client.chat(HELLO)


def test_a_redirection_does_not_carry_the_key_away():
    thief = Endpoint(said("thanks for the key"))
    with serving(thief) as url:
        message = failure(Endpoint(raw("", 307, Location=url + "/chat/completions")))
    assert "has moved" in message
    assert thief.count == 0


def test_a_server_that_echoes_the_key_does_not_bring_it_into_a_log():
    completion = ask(Endpoint(said(f"Your key is {KEY}!", model=KEY)))
    assert (completion.text, completion.model) == ("Your key is ***!", "***")


def test_an_error_holds_no_control_characters():
    message = failure(Endpoint(raw("\x1b[31mred\x07\r\nalert\u202e", 418)))
    assert message.isprintable()
    assert "red alert" in message


def test_waits_grow_with_jitter_up_to_a_limit():
    retries = Retries(first_wait=1.0, longest_wait=10.0)
    for attempt, most in enumerate([1, 2, 4, 8, 10, 10]):
        drawn = [retries.wait(attempt) for _ in range(50)]
        assert most / 2 <= min(drawn) < max(drawn) <= most


def test_the_key_is_shown_nowhere():
    client = ChatClient("http://127.0.0.1:1/v1", "m", KEY)
    assert KEY not in repr(client)
    assert KEY not in str(client)
    for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="holds a key"):
            attempt(client)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"base_url": "localhost:8000/v1"}, "no address"),
        ({"base_url": "file:///etc/passwd"}, "no address"),
        ({"base_url": "http://"}, "no address"),
        ({"base_url": "http://h:99999999/v1"}, "no address"),
        ({"base_url": "http://a b/v1"}, "no address"),
        ({"base_url": "http://me:secret@h/v1"}, "no user name"),
        ({"base_url": "http://h/v1?key=1"}, "query"),
        ({"model": ""}, "OPENAI_MODEL"),
        ({"api_key": "two\nlines"}, "OPENAI_API_KEY"),
        ({"api_key": "schlüssel"}, "OPENAI_API_KEY"),
        ({"timeout": 0.0}, "timeout"),
        ({"prompt_price": -1.0}, "prices"),
    ],
)
def test_settings_that_cannot_be(options, expected):
    with pytest.raises(ConfigError, match=expected) as caught:
        ChatClient(**{"base_url": "http://h/v1", "model": "m", "api_key": KEY} | options)
    assert "secret" not in str(caught.value)
    assert "lines" not in str(caught.value)
