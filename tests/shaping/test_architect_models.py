"""Architects that are language models: repair, fallback, provenance, endpoints."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxlab.core.errors import ConfigError, EndpointError
from jaxlab.llm.client import ChatClient, Retries
from jaxlab.shaping.architect import Request
from jaxlab.shaping.architect_log import ArchitectLog
from jaxlab.shaping.architects import make_architect
from jaxlab.shaping.architects.language_model import (
    LanguageArchitect,
    LocalModel,
    parse_answer,
)
from jaxlab.shaping.architects.ruled import ruled_design
from tests.llm.misbehaving import Endpoint, raw, said, serving
from tests.shaping import hill

SPACE = hill.space()
GOOD = json.dumps(hill.GOOD)
TOO_STEEP = json.dumps(hill.GOOD | {"scenario": {"slope": 77}})
KEY = "sk-test-0123456789abcdef"


class Script:
    """In place of a model: gives prepared answers by seed, and keeps what it was asked."""

    def __init__(self, answers):
        self.answers = {seed: list(texts) for seed, texts in answers.items()}
        self.batches = []

    def __call__(self, conversations, schema, seeds):
        assert schema == SPACE.schema()
        self.batches.append((list(conversations), list(seeds)))
        asked = [conversation[1]["content"] for conversation in conversations]
        return [self.answers[int(text.split("tag ")[1].split()[0])].pop(0) for text in asked]


def ask(answers, log=None, stage=0, **options):
    """Designs for the seeds of `answers`, the script, and the log."""
    script, log = Script(answers), ArchitectLog() if log is None else log
    architect = make_architect(
        "model", SPACE, log, generate=script, model="tiny", temperature=0.4, **options
    )
    # A rejection tells the seeds apart in the prompt.
    requests = [Request(seed, stage, rejections=(f"tag {seed} ",)) for seed in answers]
    return architect.design(requests), script, log


def test_a_good_answer_is_accepted_and_everything_is_written_down():
    (made,), script, log = ask({3: [GOOD]})
    assert (made.architect, made.verdict) == ("model", "accepted")
    assert made.scenario == {"slope": 12.5}
    assert made.difficulty == 0.2
    assert made.source == hill.SOURCE
    assert (made.reward, made.prior) == (hill.GOOD["reward"], {"uphill": 1.5})
    assert made.reason == "they slip"
    (record,) = log.records
    (conversations, seeds) = script.batches[0]
    assert record["messages"] == conversations[0]
    assert [message["role"] for message in record["messages"]] == ["system", "user"]
    assert record["sampling_seed"] == seeds[0]
    assert record["design"] == made._asdict()
    expected = {
        "version": 1,
        "architect": "model",
        "model": "tiny",
        "temperature": 0.4,
        "prompt": "A",
        "seed": 3,
        "stage": 0,
        "attempt": 0,
        "answer": GOOD,
        "verdict": "accepted",
        "problems": [],
    }
    assert {name: record[name] for name in expected} == expected
    assert {"hash", "request", "space", "jaxlab"} <= set(record)


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (TOO_STEEP, "scenario.slope: 77 is greater than the maximum of 40"),
        ("", "the answer is empty"),
        ("Let me think about hills.", "no '{' is in it"),
        ("<html><body>Hello</body></html>", "no '{' is in it"),
        (GOOD[:60], "it breaks off before its end"),
        (GOOD.replace('"', "'"), "property name enclosed in double quotes"),
        ("[" + GOOD[1:-1] + "]", "'reason' is a required property"),
        (GOOD.replace("12.5", "NaN"), "scenario.slope: expected a finite number"),
        (GOOD.replace("12.5", "9" * 5000), "a number in it is too long"),
        ('{"a": ' * 20_000, "the answer is longer than 100000 characters"),
        ('{"a": ' * 10_000, "it is nested too deeply"),
        ("{}", "'reason' is a required property"),
        (GOOD.replace('"slip"', '"__import__"'), "'__import__' is not one of ['slip', 'grip']"),
        (GOOD.replace("-0.5", "0.5"), "it pays for slipping"),
    ],
)
def test_a_malformed_answer_is_sent_back_once_with_its_problem(answer, problem):
    (made,), script, log = ask({3: [answer, GOOD]})
    assert made.verdict == "repaired"
    assert made.architect == "model"
    assert made.scenario == {"slope": 12.5}
    first, second = script.batches[0][0][0], script.batches[1][0][0]
    assert second[:2] == first
    assert second[2] == {"role": "assistant", "content": answer}
    assert problem in second[3]["content"]
    assert [record["verdict"] for record in log.records] == ["rejected", "accepted"]
    assert log.records[0]["design"] is None
    assert problem in log.records[0]["problems"][0]


def test_a_model_may_write_the_reward_itself():
    def answer(source):
        return json.dumps(hill.GOOD | {"reward": {"source": source, "form": "potential"}})

    texts = [answer("def reward(slip):\n    return slip.__class__"), answer(hill.SOURCE)]
    log = ArchitectLog()
    model = LocalModel(lambda *_: [texts.pop(0)], "tiny")
    architect = LanguageArchitect("model", SPACE, log, model, sources=True)
    (made,) = architect.design([Request(0, 0)])
    assert made.verdict == "repaired"
    assert made.source == hill.SOURCE
    assert SPACE.template(made.reward, made.prior).potential
    assert "line 2" in log.records[0]["problems"][0]


def test_malformed_twice_is_left_to_the_rules():
    (made,), script, log = ask({3: [TOO_STEEP, "sorry"]})
    request = Request(3, 0, rejections=("tag 3 ",))
    assert made == ruled_design(SPACE, request, "fallback")
    assert (made.architect, made.verdict) == ("rules", "fallback")
    assert len(script.batches) == 2
    assert [record["verdict"] for record in log.records] == ["rejected", "rejected", "fallback"]
    assert [record["attempt"] for record in log.records] == [0, 1, 2]


def test_all_seeds_are_asked_at_once_and_only_the_refused_again():
    made, script, log = ask({0: [GOOD], 1: [TOO_STEEP, GOOD], 2: ["?", "?"], 3: [GOOD]})
    assert [one.verdict for one in made] == ["accepted", "repaired", "fallback", "accepted"]
    assert [len(seeds) for _, seeds in script.batches] == [4, 2]
    seeds = [seed for _, seeds in script.batches for seed in seeds]
    assert len(set(seeds)) == 6
    assert log.summary() == {
        "designs": 4,
        "accepted": 2,
        "repaired": 1,
        "fallback": 1,
        "designed_by": {"model": 3, "rules": 1},
        "rejected": 3,
        "prompt_tokens": 0,
        "completion_tokens": 0,
        "cost": 0,
    }


def test_nothing_is_asked_twice_when_a_run_is_resumed(tmp_path):
    path = tmp_path / "architect.jsonl"
    answers = {0: [GOOD], 1: [TOO_STEEP, GOOD], 2: ["?", "?"]}
    made, _, _ = ask(answers, ArchitectLog(path))
    written = path.read_bytes()
    again, script, log = ask({0: [], 1: [], 2: []}, ArchitectLog(path))
    assert again == made
    assert script.batches == []
    assert path.read_bytes() == written
    # Another stage is another question.
    _, script, _ = ask({0: [GOOD], 1: [GOOD], 2: [GOOD]}, log, stage=1)
    assert len(script.batches[0][1]) == 3
    assert path.read_bytes().startswith(written)


@pytest.mark.parametrize("cut", range(0, 100, 7))
def test_a_run_killed_while_it_writes_asks_for_what_is_missing_alone(tmp_path, cut):
    path = tmp_path / "architect.jsonl"
    answers = {0: [GOOD], 1: [TOO_STEEP, GOOD], 2: ["?", "?"]}
    made, _, _ = ask(answers, ArchitectLog(path))
    written = path.read_bytes()
    path.write_bytes(written[: len(written) * cut // 100])
    have = [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]]
    left = {
        seed: texts[sum(record["seed"] == seed and "answer" in record for record in have) :]
        for seed, texts in answers.items()
    }
    again, script, _ = ask(left, ArchitectLog(path))
    assert again == made
    assert sum(len(seeds) for _, seeds in script.batches) == 5 - sum("answer" in r for r in have)
    assert path.read_bytes() == written


def test_the_two_prompts_differ_and_are_named_in_the_log():
    asked = {}
    for prompt in ("A", "B"):
        _, script, log = ask({0: [GOOD]}, prompt=prompt)
        asked[prompt] = script.batches[0][0][0]
        assert log.records[0]["prompt"] == prompt
    assert asked["A"][0] != asked["B"][0]
    assert asked["A"][1] == asked["B"][1]
    with pytest.raises(ConfigError, match="choose from A, B"):
        ask({0: [GOOD]}, prompt="C")


def test_architects_may_share_a_log():
    other = json.dumps(hill.GOOD | {"reason": "another"})
    (one,), _, log = ask({0: [GOOD]}, prompt="A")
    (two,), _, _ = ask({0: [other]}, log, prompt="B")
    request = Request(0, 0, rejections=("tag 0 ",))
    (three,) = make_architect("rules", SPACE, log).design([request])
    (four,) = make_architect("random", SPACE, log).design([request])
    assert [d.reason for d in (one, two)] == ["they slip", "another"]
    assert [d.architect for d in (one, two, three, four)] == ["model", "model", "rules", "random"]
    assert ask({0: []}, log, prompt="A")[0] == [one]
    assert log.summary()["designed_by"] == {"model": 2, "random": 1, "rules": 1}


@pytest.mark.parametrize(
    "text",
    [
        GOOD,
        f"Here it is:\n```json\n{GOOD}\n```\nI hope it helps.",
        f"<think>What about {{'slope': 3}} or {TOO_STEEP}?</think>{GOOD}",
        f'An object such as {{"slope": 1}} will do. {GOOD}',
        f"{{slope}} is the question. {GOOD} {{",
        f"{TOO_STEEP} is too steep, so: {GOOD}",
        json.dumps(hill.GOOD, indent=4),
    ],
)
def test_the_object_is_found_in_what_stands_around_it(text):
    assert parse_answer(text, hill.GOOD) == hill.GOOD


def test_thoughts_without_an_end_are_no_answer():
    with pytest.raises(ValueError, match="empty"):
        parse_answer(f"<think>{GOOD}", hill.GOOD)


@given(st.text(alphabet='{}[]":,\\aé0.-<think/>\n', max_size=80))
def test_any_text_gives_an_object_or_a_reason(text):
    try:
        assert isinstance(parse_answer(text, ["a"]), dict)
    except ValueError as error:
        assert "answer" in str(error)  # noqa: PT017


@pytest.fixture
def client():
    """A function from an address to a client that never waits."""

    def build(url, retries=1):
        return ChatClient(
            url,
            "served-model",
            KEY,
            temperature=0.3,
            timeout=60.0,
            retries=Retries(retries, sleep=lambda seconds: None),
            prompt_price=2.0,
            completion_price=4.0,
        )

    return build


def test_a_model_behind_an_endpoint(tmp_path, client):
    endpoint = Endpoint(raw("", 429), said(TOO_STEEP), said(f"Sure!\n{GOOD}"))
    log = ArchitectLog(tmp_path / "architect.jsonl")
    with serving(endpoint) as url:
        architect = make_architect("openai", SPACE, log, client=client(url))
        (made,) = architect.design([Request(7, 2, hill.history(0.9, 0.9))])
    assert (made.architect, made.verdict) == ("openai", "repaired")
    assert made.difficulty == pytest.approx(0.3)
    summary = log.summary()
    assert (summary["prompt_tokens"], summary["completion_tokens"]) == (22, 10)
    assert summary["cost"] == pytest.approx((22 * 2 + 10 * 4) / 1e6)
    assert [record["model"] for record in log.records] == ["served-model"] * 2
    assert [record["temperature"] for record in log.records] == [0.3] * 2
    assert log.records[0]["usage"]["model"] == "served"
    sent = [request["body"] for request in endpoint.requests[1:]]
    assert [body["seed"] for body in sent] == [r["sampling_seed"] for r in log.records]
    assert sent[1]["messages"] == log.records[1]["messages"]
    assert KEY not in log.path.read_text()


def test_what_was_answered_before_the_endpoint_failed_is_kept(tmp_path, client):
    path = tmp_path / "architect.jsonl"
    requests = [Request(seed, 0) for seed in range(4)]
    # Of four seeds that are asked at once, two get an answer.
    endpoint = Endpoint(said(GOOD), said(GOOD), raw("<html>login</html>"))
    with serving(endpoint) as url:
        architect = make_architect("openai", SPACE, ArchitectLog(path), client=client(url))
        with pytest.raises(EndpointError, match="web page"):
            architect.design(requests)
    kept = path.read_bytes()
    assert kept.count(b"\n") == 2
    endpoint = Endpoint(said(GOOD))
    with serving(endpoint) as url:
        architect = make_architect("openai", SPACE, ArchitectLog(path), client=client(url))
        made = architect.design(requests)
    assert [one.verdict for one in made] == ["accepted"] * 4
    assert endpoint.count == 2
    assert path.read_bytes().startswith(kept)


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (raw("{}", 401), "OPENAI_API_KEY"),
        (raw("{}", 429), "no answer after 2 attempts"),
        (raw('{"choices": [{'), "breaks off"),
        (raw("{}"), "another form"),
    ],
)
def test_trouble_of_an_endpoint_is_an_error_and_no_fallback(tmp_path, client, reply, expected):
    log = ArchitectLog(tmp_path / "architect.jsonl")
    with serving(Endpoint(reply)) as url:
        architect = make_architect("openai", SPACE, log, client=client(url))
        with pytest.raises(EndpointError, match=expected) as caught:
            architect.design([Request(0, 0)])
    assert caught.value.exit_code != 0
    assert log.records == []
    assert KEY not in str(caught.value)
