"""A page to play in, and the small JSON interface behind it.

    GET  /                the page
    GET  /api/offer       {"worlds": [name], "tasks": [{"id", "family", "environment"}], "colours": [[r, g, b]]}
    POST /api/free        {"world": name, "seed": 0}                      -> a view
    POST /api/test        {"task": id}                                    -> a view
    POST /api/act         {"session": id, "kind": kind, "x": 0, "y": 0}   -> a view

A view says what may be known: `frames` (new ones since the last act, indices of `colours`), `offered` kinds
of acts, `phase`, and in tests `family`, `goal`, `mask`, `choices`, `recorded`, `remaining`, `result`.
"""

from __future__ import annotations

import collections
import contextlib
import http.server
import itertools
import json
import pathlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from experiments.autumn.play_options import PlayOptions
from jaxlab.core.errors import ConfigError, JaxlabError
from jaxlab.envs.autumn.palette import COLOURS
from jaxlab.envs.autumn.pictures import rgb_table
from jaxlab.envs.autumn.stepping import ACTIONS
from jaxlab.envs.autumn.tasks.formats import Mode, Task, World
from jaxlab.envs.autumn.tasks.protocol import Act, Observation, Session
from jaxlab.envs.autumn.tasks.running import RunningWorld

PAGE = pathlib.Path(__file__).with_name("play.html")
#: Bytes of a request, and sessions that are remembered.
LONGEST, MOST_SESSIONS = 1 << 16, 64


class FreePlay:
    """A world without a test."""

    def __init__(self, world: World, seed: int):
        self._world = RunningWorld(world)
        self._world.restart(seed)
        self._steps = 0

    def act(self, act: Act) -> None:
        """Take an action of the language, or reset.

        Raises:
          ConfigError: there is no such action.
        """
        size = self._world.compiled.grid_size
        if act.kind == "reset":
            self._world.restart(int(self._world.seed))
            self._steps = 0
        elif act.kind in ACTIONS and 0 <= act.x < size and 0 <= act.y < size:
            self._world.step((ACTIONS.index(act.kind), act.x, act.y))
            self._steps += 1
        else:
            raise ConfigError(f"'{act.kind}' at {act.x}, {act.y} is no action of this world")

    def view(self) -> dict[str, Any]:
        """What the page shows."""
        return {
            "phase": "free",
            "offered": [*ACTIONS, "reset"],
            "frames": self._world.frame[None].tolist(),
            "number": self._steps,
            "frame_rate": self._world.compiled.frame_rate,
            "error": self._world.error,
        }


class TaskPlay:
    """A task from interaction to score."""

    def __init__(self, task: Task, mode: Mode = "fixed"):
        self._task, self._session = task, Session(task, mode=mode)

    def act(self, act: Act) -> None:
        """Take an act.

        Raises:
          ConfigError: it is not offered.
        """
        self._session.act(act)

    def view(self) -> dict[str, Any]:
        """What the page shows: what an agent may know, and the score at the end."""
        observation, result = self._session.observation, self._session.result
        view = _plain(observation)
        view["frame_rate"] = self._task.world.compiled().frame_rate
        view["result"] = None
        if result is not None:
            view["result"] = {
                "score": result.score,
                "acts": result.acts,
                "reported": result.verdict.reported,
                "trigger": result.verdict.trigger,
            }
        return view


Play = FreePlay | TaskPlay


def _plain(observation: Observation) -> dict[str, Any]:
    """An observation as plain data."""

    def listed(value: Any) -> Any:
        return None if value is None else np.asarray(value).tolist()

    recorded = observation.recorded
    return {
        "family": observation.family,
        "phase": observation.phase,
        "offered": list(observation.offered),
        "frames": listed(observation.frames),
        "acts": observation.acts,
        "remaining": observation.remaining,
        "number": observation.number,
        "recorded": None if recorded is None else list(recorded),
        "goal": listed(observation.goal),
        "mask": listed(observation.mask),
        "choices": listed(observation.choices),
        "error": observation.error,
    }


class Room:
    """The worlds and tasks on offer and the sessions under way.

    Args:
      worlds: Worlds by name.
      tasks: Tasks on offer.
      seed: Seed of free play where none is given.
    """

    def __init__(self, worlds: Mapping[str, World], tasks: Sequence[Task], seed: int = 0):
        self._worlds = dict(worlds)
        self._tasks = {task.id: task for task in tasks}
        self._seed = seed
        self._plays: collections.OrderedDict[str, Play] = collections.OrderedDict()
        self._numbers = itertools.count(1)
        # One step at a time: requests come on threads of their own.
        self._lock = threading.Lock()

    def offer(self) -> dict[str, Any]:
        """What can be played."""
        return {
            "worlds": sorted(self._worlds),
            "tasks": [
                {"id": task.id, "family": task.family, "environment": task.world.name}
                for task in self._tasks.values()
            ],
            "colours": rgb_table(COLOURS).tolist(),
        }

    def free(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Begin free play.

        Raises:
          ConfigError: there is no such world, or the seed is none.
        """
        world = self._worlds.get(_text(request, "world"))
        if world is None:
            raise ConfigError(f"world: expected one of {', '.join(sorted(self._worlds))}")
        seed = _number(request, "seed", self._seed)
        with self._lock:
            return self._begun(FreePlay(world, seed % 2**32))

    def test(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Begin a task.

        Raises:
          ConfigError: there is no such task.
        """
        task = self._tasks.get(_text(request, "task"))
        if task is None:
            raise ConfigError("task: there is no task of this name")
        with self._lock:
            return self._begun(TaskPlay(task))

    def act(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Take an act in a session.

        Raises:
          ConfigError: there is no such session, or the act is not offered.
        """
        name = _text(request, "session")
        act = Act(_text(request, "kind"), _number(request, "x", 0), _number(request, "y", 0))
        with self._lock:
            play = self._plays.get(name)
            if play is None:
                raise ConfigError("session: it is over or was never begun; begin another one")
            play.act(act)
            return {"session": name, **play.view()}

    def _begun(self, play: Play) -> dict[str, Any]:
        name = str(next(self._numbers))
        self._plays[name] = play
        while len(self._plays) > MOST_SESSIONS:
            self._plays.popitem(last=False)
        return {"session": name, **play.view()}


def _text(request: Mapping[str, Any], name: str) -> str:
    value = request.get(name)
    if not isinstance(value, str):
        raise ConfigError(f"{name}: expected a text")
    return value


def _number(request: Mapping[str, Any], name: str, default: int) -> int:
    value = request.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ConfigError(f"{name}: expected a whole number")
    return value


def handler_of(room: Room) -> type[http.server.BaseHTTPRequestHandler]:
    """What answers requests."""
    posts: dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
        "/api/free": room.free,
        "/api/test": room.test,
        "/api/act": room.act,
    }

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            if self.path in ("/", "/index.html"):
                self._answer(200, PAGE.read_bytes(), "text/html; charset=utf-8")
            elif self.path == "/api/offer":
                self._json(200, room.offer())
            else:
                self._json(404, {"error": f"{self.path}: there is no such page"})

        def do_POST(self) -> None:
            answer = posts.get(self.path)
            body = self._body()
            if answer is None:
                self._json(404, {"error": f"{self.path}: there is no such page"})
                return
            try:
                # Pages of other origins cannot send this type unasked.
                if self.headers.get_content_type() != "application/json" or body is None:
                    raise ConfigError("expected a JSON object of the type application/json")
                request = json.loads(body)
                if not isinstance(request, dict):
                    raise ConfigError("expected a JSON object")
                self._json(200, answer(request))
            except (ValueError, RecursionError) as error:
                self._json(400, {"error": f"the request is no JSON: {error}"})
            except JaxlabError as error:
                self._json(400, {"error": str(error)})

        def _body(self) -> bytes | None:
            """The body; None if it is too long or of unknown length, and then the connection ends."""
            length = self.headers.get("Content-Length", "")
            if not length.isdecimal() or int(length) > LONGEST:
                self.close_connection = True
                return None
            return self.rfile.read(int(length))

        def _json(self, status: int, data: Any) -> None:
            self._answer(status, json.dumps(data).encode(), "application/json")

        def _answer(self, status: int, body: bytes, kind: str) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                self.wfile.write(body)

        def log_message(self, format: str, *arguments: Any) -> None:
            """Nothing: the terminal stays quiet."""

    return Handler


@contextlib.contextmanager
def serving(room: Room, host: str, port: int) -> Iterator[http.server.ThreadingHTTPServer]:
    """A server on a thread of its own.

    Raises:
      ConfigError: the address cannot be had.
    """
    try:
        server = http.server.ThreadingHTTPServer((host, port), handler_of(room))
    except OSError as error:
        raise ConfigError(f"--port {port}: {host} cannot be listened on there: {error}") from None
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def main(options: PlayOptions) -> None:
    """Serve until interrupted.

    Raises:
      ConfigError, DataError, ProgramError: see the messages.
    """
    from experiments.autumn.offers import offered

    worlds, tasks = offered(options)
    with serving(Room(worlds, tasks, options.seed), options.host, options.port) as server:
        host, port = server.server_address[:2]
        print(
            f"http://{host!s}:{port}  {len(worlds)} worlds, {len(tasks)} tests; Ctrl-C ends",
            flush=True,
        )
        with contextlib.suppress(KeyboardInterrupt):
            threading.Event().wait()
