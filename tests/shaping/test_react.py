"""A model that reasons and acts: prompts, repairs, notes, records."""

import json

import pytest

from jaxlab.core.errors import DataError, EndpointError
from jaxlab.llm.client import ChatClient, Retries
from jaxlab.shaping.architects.language_model import Answer, EndpointModel, LocalModel
from jaxlab.shaping.react import Decision, ReactLoop, RecordedModel
from tests.llm.misbehaving import Endpoint, raw, said, serving


def says(action, thought="why not", **more):
    return json.dumps({"thought": thought, "scratchpad": "walls hurt", "action": action} | more)


class Script:
    """In place of a model: prepared answers, one after the other."""

    def __init__(self, *answers):
        self.answers, self.asked, self.seeds = list(answers), [], []

    def __call__(self, conversations, schema, seeds):
        self.asked += [list(conversation) for conversation in conversations]
        self.seeds += seeds
        return [self.answers.pop(0) for _ in conversations]


def loop(*answers, **options):
    script = Script(*answers)
    return ReactLoop(LocalModel(script, "tiny", 0.5), "Find the door.", **options), script


def problem(action):
    return None if action in ("left", "right") else f"'{action}' is no way"


def test_the_model_is_told_what_it_did_and_noted():
    agent, script = loop(says("left"), says("right", "back again"))
    assert agent.decide("a wall", problem, "left") == Decision("left", "why not", "accepted")
    assert agent.decide("a door", problem, "left").action == "right"
    system, user = script.asked[0]
    assert system["content"].startswith("Find the door.")
    assert '"scratchpad"' in system["content"]
    assert user["content"] == "Your scratchpad:\n(empty)\n\nObservation now:\na wall"
    told = script.asked[1][1]["content"]
    assert told.startswith("Your scratchpad:\nwalls hurt")
    assert "Observation:\na wall\nThought: why not\nAction: left" in told
    assert told.endswith("Observation now:\na door")
    assert len(set(script.seeds)) == 2


def test_only_the_last_turns_are_told():
    agent, script = loop(*[says("left")] * 4, history=2, scratchpad=False)
    for n in range(4):
        agent.decide(f"room {n}", problem, "left")
    told = script.asked[3][1]["content"]
    assert "room 0" not in told
    assert "room 1" in told
    assert "scratchpad" not in told + script.asked[3][0]["content"]
    assert agent.schema["required"] == ["thought", "action"]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (says("up"), "'up' is no way"),
        ("I go left.", "no '{' is in it"),
        ('{"thought": "hm", "action": "left"}', "'scratchpad' must be a text"),
        (says(3), "'action' must be a text"),
    ],
)
def test_an_answer_that_cannot_be_used_is_sent_back(answer, message):
    agent, script = loop(answer, says("right"))
    assert agent.decide("a wall", problem, "left") == Decision("right", "why not", "repaired")
    assert message in script.asked[1][-1]["content"]
    assert script.asked[1][-2] == {"role": "assistant", "content": answer}


def test_where_nothing_can_be_used_the_fallback_is_taken():
    agent, script = loop(says("up"), "", says("down"), repairs=2)
    assert agent.decide("a wall", problem, "left") == Decision("left", "", "fallback")
    assert len(script.asked) == 3
    assert agent.notes == ""


def test_a_recorded_loop_is_repeated_word_for_word():
    records = []
    agent, _ = loop(says("up"), says("right"), says("left", "on"), watch=records.append, seed=4)
    first = [agent.decide(seen, problem, "left") for seen in ("a wall", "a door")]
    assert [record["problem"] for record in records] == ["'up' is no way", None, None]
    recorded = RecordedModel(json.loads(json.dumps(records)))
    assert (recorded.name, recorded.temperature) == ("tiny", 0.5)
    again = ReactLoop(recorded, "Find the door.", seed=4)
    assert [again.decide(seen, problem, "left") for seen in ("a wall", "a door")] == first
    with pytest.raises(DataError, match="no answer to this conversation"):
        again.decide("a window", problem, "left")
    with pytest.raises(DataError, match="none of a ReAct loop"):
        RecordedModel([{"answer": "left"}])


def test_an_endpoint_is_asked_through_the_same_client(monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    endpoint = Endpoint(said(says("left")), raw("no", 400))
    with serving(endpoint) as url:
        client = ChatClient(url, model="m", retries=Retries(0))
        agent = ReactLoop(EndpointModel(client), "Find the door.")
        assert agent.decide("a wall", problem, "right").action == "left"
        with pytest.raises(EndpointError, match="status 400"):
            agent.decide("a wall", problem, "right")
    body = endpoint.requests[0]["body"]
    assert [message["role"] for message in body["messages"]] == ["system", "user"]
    assert isinstance(body["seed"], int)
    assert Answer("", {}).usage == {}
