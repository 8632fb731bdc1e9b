"""The learned world model: trained for an environment when it is first needed, then kept."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from experiments.worldtest.agents import act_of, masked
from experiments.worldtest.options import Options
from experiments.worldtest.simulators import simulator_of
from jaxlab.agents.simulator_planner.search import Goal
from jaxlab.agents.simulator_planner.simulator import Simulator
from jaxlab.agents.world_model.acting import ModelPlayer
from jaxlab.agents.world_model.learner import make, network_of
from jaxlab.core.errors import Interrupted
from jaxlab.core.progress import say
from jaxlab.core.reporting import resume_command
from jaxlab.core.training import run
from jaxlab.envs.autumn.stepping import ACTIONS
from jaxlab.envs.autumn.tasks.formats import World
from jaxlab.envs.autumn.tasks.protocol import Act, Observation

#: Folder of a run with its models.
MODELS = "models"
#: How much more than the largest loss of the interaction is a surprise, and how many make a report.
MARGIN, SURPRISES = 1.25, 2
#: Frames over which surprises are counted.
WINDOW = 12


class Models:
    """Trained models by environment, each in a folder of the run, where an interrupted one goes on."""

    def __init__(self, options: Options):
        self._options = options
        self._players: dict[str, ModelPlayer] = {}

    def player(self, world: World) -> tuple[Simulator, ModelPlayer]:
        """The model of a world.

        Raises:
          Interrupted: a signal stopped training after it had saved.
        """
        options, simulator = self._options, simulator_of(world.compiled())
        if world.name not in self._players:
            assert options.run_dir is not None
            folder = options.run_dir / MODELS / world.name
            try:
                result = run(
                    make(simulator, options.model),
                    steps=options.steps,
                    seed=options.seed,
                    run_dir=folder,
                    resume=folder.exists(),
                    config=options.config(),
                    progress=options.progress,
                    label=f"model of {world.name}",
                )
            except Interrupted as stopped:
                message = f"Of the whole run: {resume_command(options.run_dir)}"
                say(message)
                raise Interrupted(f"{stopped} {message}") from None
            network = network_of(simulator, options.model)
            params = result.seed_state().params
            self._players = {world.name: ModelPlayer(simulator, network, params, options.planner)}
        return simulator, self._players[world.name]


class LearnedAgent:
    """Takes tests with a learned model; the interaction shows it how well the model predicts."""

    def __init__(self, simulator: Simulator, player: ModelPlayer, seed: int):
        self._actions, self._player = simulator.actions, player
        self._size = simulator.shape[1]
        self._seed = seed
        self._forget()

    def begin(self, observation: Observation) -> None:
        self._forget()

    def _forget(self) -> None:
        self._key = jax.random.key(self._seed)
        self._phase = ""
        self._last: int | None = None
        self._usual = 0.0
        self._surprises: list[int] = []
        self._chosen = False

    def act(self, observation: Observation) -> Act:
        self._key, key = jax.random.split(self._key)
        loss = self._look(observation)
        if observation.phase == "interaction":
            self._usual = max(self._usual, loss)
            return self._take(self._player.random_act(key))
        families: dict[str, Any] = {
            "masked_frame_prediction": self._fill_in,
            "planning": self._seek,
            "change_detection": self._find,
        }
        return families[observation.family](observation, loss, key)

    def _look(self, observation: Observation) -> float:
        """Take in what is seen; the loss of the prediction, 0 where there was none."""
        frame, visible = observation.frame, ~masked(observation)
        if observation.recorded is not None:
            act = observation.recorded
            kind = ACTIONS.index(act.kind)
            self._last = kind + act.y * self._size + act.x if act.kind == "click" else kind
        began = observation.phase != self._phase or self._last is None
        self._phase = observation.phase
        if began:
            if "submit" not in observation.offered:
                self._player.begin(frame)
            return 0.0
        assert self._last is not None
        return self._player.see(self._last, frame, visible)

    def _take(self, index: int) -> Act:
        self._last = index
        return act_of(self._actions[index])

    def _fill_in(self, observation: Observation, loss: float, key: jax.Array) -> Act:
        if "step" in observation.offered:
            return Act("step")
        assert observation.choices is not None
        scores = self._player.option_scores(observation.choices, masked(observation))
        return Act("choose_option", int(scores.argmax()))

    def _seek(self, observation: Observation, loss: float, key: jax.Array) -> Act:
        assert observation.goal is not None
        assert observation.mask is not None
        goal = Goal(observation.goal.astype(np.int32), observation.mask.astype(bool))
        return self._take(self._player.plan_act(key, goal, observation.remaining))

    def _find(self, observation: Observation, loss: float, key: jax.Array) -> Act:
        if "submit" in observation.offered:
            if self._chosen:
                return Act("submit")
            self._chosen = True
            return Act("choose_frame", self._surprises[0])
        now = observation.number
        if loss > MARGIN * self._usual:
            self._surprises = [s for s in self._surprises if s > now - WINDOW] + [now]
        late = observation.remaining <= 3 and len(self._surprises) > 0
        if "found" in observation.offered and (len(self._surprises) >= SURPRISES or late):
            self._last = None
            return Act("found")
        return self._take(self._player.random_act(key))
