"""The page to play in: its JSON interface over HTTP, and what the page asks for."""

import json
import re
import urllib.error
import urllib.request

import numpy as np
import pytest

from experiments.autumn.__main__ import main
from experiments.autumn.playing import PAGE, Room, serving
from jaxlab.envs.autumn.palette import COLOURS
from tests.experiments.worldtest_tasks import RED, picture, tasks


@pytest.fixture(scope="module")
def address():
    worlds = {"dot": tasks()[0].world}
    with serving(Room(worlds, tasks()), "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.server_address[1]}"


def get(url):
    with urllib.request.urlopen(url, timeout=60) as answer:
        return answer.headers.get_content_type(), answer.read()


def post(url, data, kind="application/json"):
    body = data if isinstance(data, bytes) else json.dumps(data).encode()
    request = urllib.request.Request(url, body, {"Content-Type": kind})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


def act(address, view, kind, x=0, y=0):
    status, view = post(
        f"{address}/api/act", {"session": view["session"], "kind": kind, "x": x, "y": y}
    )
    assert status == 200, view
    return view


def begun(address, id):
    status, view = post(f"{address}/api/test", {"task": id})
    assert status == 200
    assert view["phase"] == "interaction"
    return act(address, view, "go_to_test")


def test_the_page_comes_with_all_it_names(address):
    kind, page = get(address)
    assert kind == "text/html"
    text = page.decode()
    assert page == PAGE.read_bytes()
    assert not re.search(r"(src|href)=|https?://", text)
    # Every element that the script looks up is there.
    wanted = set(re.findall(r'\$\("(\w+)"\)', text))
    assert wanted <= set(re.findall(r'id="(\w+)"', text))


def test_it_offers_worlds_tests_and_colours(address):
    _, body = get(f"{address}/api/offer")
    offer = json.loads(body)
    assert offer["worlds"] == ["dot"]
    assert [task["id"] for task in offer["tasks"]] == ["dot-mfp", "dot-planning", "dot-cd"]
    assert len(offer["colours"]) == len(COLOURS)
    assert offer["colours"][RED] == [255, 0, 0]


def test_free_play_steps_and_begins_again(address):
    status, view = post(f"{address}/api/free", {"world": "dot"})
    assert status == 200
    np.testing.assert_array_equal(view["frames"], picture(0, 1)[None])
    view = act(address, view, "right")
    view = act(address, view, "click", 3, 2)
    np.testing.assert_array_equal(view["frames"], picture(3, 2)[None])
    assert view["number"] == 2
    view = act(address, view, "reset")
    np.testing.assert_array_equal(view["frames"], picture(0, 1)[None])


def test_a_goal_is_reached(address):
    view = begun(address, "dot-planning")
    assert view["goal"] == picture(3, 3).tolist()
    view = act(address, view, "click", 3, 3)
    assert view["phase"] == "over"
    assert view["result"]["score"] == 1


def test_a_hidden_patch_is_chosen(address):
    view = begun(address, "dot-mfp")
    while "step" in view["offered"]:
        view = act(address, view, "step")
    assert view["recorded"] == ["right", 0, 0]
    assert len(view["choices"]) == 6
    view = act(address, view, "choose_option", 2)
    assert view["result"]["score"] == 1


def test_a_change_is_reported(address):
    view = begun(address, "dot-cd")
    for number in range(1, 10):
        before = view["frames"][-1]
        view = act(address, view, "right" if number % 2 else "left")
        if number % 2 and view["frames"][-1] == before:
            break
    view = act(address, view, "found")
    view = act(address, view, "choose_frame", number)
    view = act(address, view, "submit")
    assert view["result"]["score"] == 1


@pytest.mark.parametrize(
    ("path", "data", "said"),
    [
        ("act", {"session": "99999", "kind": "noop"}, "session"),
        ("act", {"session": 3}, "session: expected a text"),
        ("free", {"world": "nowhere"}, "expected one of dot"),
        ("free", {"world": "dot", "seed": "x"}, "seed"),
        ("test", {"task": "none"}, "no task"),
        ("test", [], "expected a JSON object"),
        ("test", b"{", "no JSON"),
        ("test", b"[" * 60000, "no JSON"),
        ("test", b" " * 100000, "expected a JSON object"),
    ],
)
def test_wrong_requests_are_refused_with_a_reason(address, path, data, said):
    status, answer = post(f"{address}/api/{path}", data)
    assert status == 400
    assert said in answer["error"]


def test_acts_that_are_not_offered_are_refused_and_nothing_happens(address):
    _, view = post(f"{address}/api/free", {"world": "dot"})
    for wrong in ({"kind": "fly"}, {"kind": "click", "x": 9}, {"kind": "submit"}):
        status, answer = post(f"{address}/api/act", {"session": view["session"], **wrong})
        assert status == 400
        assert "no action" in answer["error"]
    assert act(address, view, "noop")["number"] == 1


def test_other_types_and_pages_are_refused(address):
    assert post(f"{address}/api/free", {"world": "dot"}, kind="text/plain")[0] == 400
    assert post(f"{address}/api/nothing", {})[0] == 404
    with pytest.raises(urllib.error.HTTPError, match="404"):
        get(f"{address}/etc/passwd")


def test_a_port_that_is_taken_is_an_error_of_one_line(address, tmp_path, capsys):
    program = tmp_path / "dot.sexp"
    program.write_text(tasks()[0].world.source)
    port = address.rpartition(":")[2]
    with pytest.raises(SystemExit):
        main(["play", "--program", str(program), "--port", port])
    assert f"--port {port}" in capsys.readouterr().err


def test_options_out_of_range_are_refused(capsys):
    for wrong, said in ((["--port", "70000"], "--port"), (["--program", "none.sexp"], "none.sexp")):
        with pytest.raises(SystemExit):
            main(["play", *wrong])
        assert said in capsys.readouterr().err
