"""A program compiled: `init` and `step`, pure functions over arrays of fixed shapes.

Tracing evaluates the program's syntax over abstract values. What the state must hold (which
variables, of which kinds, how long lists get) is found by tracing steps until nothing new
appears; what then never changes is a constant of the compiled functions.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import jax
import numpy as np
from flax import struct
from jax import lax

from jaxlab.core.errors import ProgramError
from jaxlab.envs.autumn import rendering, syntax
from jaxlab.envs.autumn.checker import require_sound
from jaxlab.envs.autumn.facts import Facts, Names
from jaxlab.envs.autumn.layouts import (
    Layout,
    changing,
    filled,
    first_layout,
    same_layout,
    wider_layout,
)
from jaxlab.envs.autumn.machine import IDENTITIES, Machine
from jaxlab.envs.autumn.occupancy import Occupied, table_side
from jaxlab.envs.autumn.palette import COLOURS
from jaxlab.envs.autumn.randomness import KeyRandom, ReferenceRandom
from jaxlab.envs.autumn.reader import Place
from jaxlab.envs.autumn.scalars import Number, array, choose, equal, invert, known
from jaxlab.envs.autumn.scopes import Binding
from jaxlab.envs.autumn.standard_library import library
from jaxlab.envs.autumn.stepping import advance, begin, declared, state_variables
from jaxlab.envs.autumn.structures import Fitting, empty
from jaxlab.envs.autumn.values import Instance, Scalar

#: Traces after which the state of a program must have settled.
MOST_TRACES = 12

OVERFLOW = "a list has more elements than its capacity"


#: Python calls that nest while a program is traced: those of the program times some ten.
MOST_NESTED = 5000


@contextlib.contextmanager
def _deep_recursion() -> Iterator[None]:
    """Room for the nesting of programs; what goes deeper still is an error of the program."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, MOST_NESTED))
    try:
        yield
    except RecursionError:
        raise ProgramError("the program nests too deeply to be compiled") from None
    finally:
        sys.setrecursionlimit(before)


def _deep(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method that traces a program."""

    @functools.wraps(method)
    def traced(*arguments: Any, **options: Any) -> Any:
        with _deep_recursion():
            return method(*arguments, **options)

    return traced


@struct.dataclass
class ProgramState:
    """The state of a running program.

    Attributes:
      values: What changes of the values of each variable, arrays of fixed shapes.
      present: Whether a variable is defined, for those that not always are.
      random: State of the reference interpreter's generator, uint32 `[]`.
      error: 0, or the code of the error that froze the program, int32 `[]`.
      steps: Steps taken, int32 `[]`.
      triggered: Whether the condition that was asked for held when the step began, bool `[]`.
      frame: The picture: indices of colours in `CompiledProgram.palette`, int32 `[size, size]`.
      covered: Which places the picture covers, with a margin around the grid, bool.
    """

    values: dict[str, tuple[jax.Array, ...]]
    present: dict[str, jax.Array]
    random: jax.Array
    error: jax.Array
    steps: jax.Array
    triggered: jax.Array
    frame: jax.Array
    covered: jax.Array


@struct.dataclass
class PaintedCells:
    """The cells of a state in the order of painting, those off the grid among them.

    `variable` indexes `CompiledProgram.variables`; all are `[cells]`, and `exists` says which
    cells are there.
    """

    variable: jax.Array
    x: jax.Array
    y: jax.Array
    colour: jax.Array
    exists: jax.Array


class CompiledProgram:
    """A program as pure functions, which `jax.jit` and `jax.vmap` take.

    Attributes:
      grid_size: Rows, and columns, of the grid.
      palette: Names of colours (and other strings of the program) by their index in frames.
      background: Name of the background's colour at the start.
      frame_rate: Frames a second at which the program is meant to be seen.
      variables: Variables in the order of painting.
      messages: Errors of the program by their code.
      capacity: Places that a list gets that grows.
    """

    def __init__(
        self,
        program: syntax.Program,
        *,
        random: Literal["jax", "reference"] = "jax",
        capacity: int | None = None,
        next_order: Sequence[str] | None = None,
        condition: str | None = None,
        names: Names | None = None,
    ):
        """Compile a program.

        Args:
          program: The program, from `syntax.parse`.
          random: Draw from keys, or as the reference interpreter does from a seed.
          capacity: Places that a list gets that grows; by default one for each place of the
            grid, at most 256.
          next_order: Order in which the next-expressions run, by default that of declaration.
          condition: An expression to evaluate at the start of each step (`triggered`).
          names: Names of another compiled program, to share its palette and its messages.

        Raises:
          ProgramError: the program cannot be compiled; the message says where and why.
        """
        require_sound(program)
        self.program = program
        self.random = random
        self.names = Names(list(COLOURS), [""]) if names is None else names
        self.facts = Facts(self.names)
        self._states = state_variables(program, next_order)
        self._clauses = [s for s in program.statements if isinstance(s, syntax.OnStatement)]
        self._condition = None if condition is None else syntax.parse_expression(condition)
        self._given_capacity = capacity
        self.capacity = capacity or 256
        with _deep_recursion():
            self._settle()

    @property
    def palette(self) -> tuple[str, ...]:
        """Names by their index in frames."""
        return tuple(self.names.strings)

    @property
    def messages(self) -> tuple[str, ...]:
        """Errors of the program by their code; 0 is none."""
        return tuple(self.names.messages)

    @property
    def next_order(self) -> tuple[str, ...]:
        """State variables in the order in which their next-expressions run."""
        return tuple(name for name, *_ in self._states)

    @property
    def variables(self) -> tuple[str, ...]:
        """Variables in the order of painting."""
        states = [name for name, *_ in declared(self.program)]
        return tuple(dict.fromkeys((*states, *self._layout.order)))

    # Functions of a compiled program.

    @_deep
    def init(self, key: jax.Array) -> ProgramState:
        """The state at the start, from a key, or from a seed (uint32 `[]`) in reference mode."""
        machine = self._machine(key)
        if self.random == "reference":
            machine.random_state = jax.numpy.asarray(key).astype(np.uint32)
        begin(machine, self.program, self._states)
        values, present, overflow = self._fitted(machine)
        if not (known(overflow) and not overflow):
            machine.fail_where(overflow, OVERFLOW)
        return self._finished(
            machine, values, present, machine.error, jax.numpy.zeros((), np.int32), False
        )

    @_deep
    def step(self, key: jax.Array, state: ProgramState, action: jax.Array) -> ProgramState:
        """The state after an action `[kind, x, y]`, int32 `[3]`; `kind` is its place in `ACTIONS`.

        The key is not used in reference mode. A program that failed stays as it was.
        """
        machine = self._resumed(key, state)
        triggered = self._advance(machine, action)
        values, present, overflow = self._fitted(machine)
        error = machine.error
        if not (known(overflow) and not overflow):
            code = choose(overflow, self.facts.message(OVERFLOW), 0)
            error = choose(equal(error, 0), code, error)
        error = choose(equal(state.error, 0), error, state.error)
        failed = invert(equal(error, 0))
        values = jax.tree.map(lambda old, new: choose(failed, old, new), dict(state.values), values)
        present = jax.tree.map(
            lambda old, new: choose(failed, old, new), dict(state.present), present
        )
        if machine.random_state is not None:
            machine.random_state = choose(failed, state.random, machine.random_state)
        steps = lax.add(state.steps, choose(failed, np.int32(0), np.int32(1)))
        return self._finished(machine, values, present, error, steps, triggered)

    @_deep
    def cells(self, state: ProgramState) -> PaintedCells:
        """The cells of a state in the order of painting."""
        machine = self._resumed(jax.random.key(0), state)
        painted = rendering.layers(machine, list(self.variables))
        order = {name: index for index, name in enumerate(self.variables)}
        if not painted:
            none = jax.numpy.zeros(0, np.int32)
            return PaintedCells(none, none, none, none, none.astype(bool))
        variable = np.concatenate(
            [np.full(len(layer.x), order[layer.variable], np.int32) for layer in painted]
        )
        parts = [
            rendering.joined([getattr(layer, name) for layer in painted])
            for name in ("x", "y", "colour", "exists")
        ]
        return PaintedCells(*(jax.numpy.asarray(part) for part in (variable, *parts)))

    # Their parts.

    def _machine(self, key: Any) -> Machine:
        random = ReferenceRandom() if self.random == "reference" else KeyRandom(key)
        return Machine(self.facts, library(self.facts), random, self.capacity)

    def _advance(self, machine: Machine, action: Any) -> Number:
        return advance(machine, self._clauses, self._states, self._condition, action)

    def _resumed(self, key: Any, state: ProgramState) -> Machine:
        """A machine with the variables of a state."""
        machine = self._machine(key)
        layout = self._layout
        machine.classes = dict(layout.classes)
        machine.order = layout.order
        machine.globals.types = dict(layout.types)
        machine.globals.bindings = {
            name: Binding(
                filled(structure, state.values[name]),
                state.present.get(name, layout.present[name]),
            )
            for name, structure in layout.values.items()
        }
        machine.previous = machine.globals.bindings
        if self.random == "reference":
            machine.random_state = state.random
        click = machine.previous.get("click")
        if click is not None and isinstance(click.value, Instance):
            x, y = click.value.fields["x"], click.value.fields["y"]
            machine.on_grid.append((x.number, y.number))  # type: ignore[attr-defined]
        machine.first_identity = 0
        if self.facts.identified:
            machine.first_identity = lax.mul(
                lax.add(state.steps, np.int32(1)), np.int32(IDENTITIES)
            )
        machine.occupied = Occupied(state.covered, machine.grid_size, None)
        if self.facts.far_cells:
            painted = rendering.layers(machine, list(self.variables))
            machine.occupied.far = _all_cells(painted)
        if self.facts.liquids:
            machine.occupied.prepare_liquids()
        return machine

    def _fitted(self, machine: Machine) -> tuple[dict[str, Any], dict[str, Any], Number]:
        """The variables as the state holds them, and whether a list had no room."""
        fitting = Fitting()
        values, present = {}, {}
        for name, structure in self._layout.values.items():
            binding = machine.globals.bindings.get(name)
            if binding is None:
                binding = Binding(empty(structure), False)
            there = known(binding.present) and not binding.present
            value = empty(structure) if there else fitting.value(binding.value, structure)
            values[name] = changing(structure, value)
            if isinstance(self._layout.present[name], jax.ShapeDtypeStruct):
                present[name] = jax.numpy.asarray(array(binding.present))
        return values, present, fitting.overflow

    def _finished(
        self,
        machine: Machine,
        values: dict[str, Any],
        present: dict[str, Any],
        error: Number,
        steps: Any,
        triggered: Number,
    ) -> ProgramState:
        """A state with its picture."""
        zero = jax.numpy.zeros((), np.uint32)
        state = ProgramState(
            values=values,
            present=present,
            random=zero if machine.random_state is None else machine.random_state,
            error=jax.numpy.asarray(array(error)),
            steps=steps,
            triggered=jax.numpy.asarray(array(triggered)),
            frame=jax.numpy.zeros((machine.grid_size,) * 2, np.int32),
            covered=jax.numpy.zeros((table_side(machine.grid_size),) * 2, bool),
        )
        painter = self._painter(state)
        painted = rendering.layers(painter, list(self.variables))
        background = painter.lookup("background", Place(0, 0))
        if not isinstance(background, Scalar) or background.kind != "String":
            raise ProgramError("background must be the name of a colour")
        frame, covered = rendering.paint(painter, painted, background.number)
        wrong = choose(equal(state.error, 0), painter.error, state.error)
        return state.replace(  # type: ignore[attr-defined]
            frame=frame, covered=covered, error=jax.numpy.asarray(array(wrong))
        )

    def _painter(self, state: ProgramState) -> Machine:
        liquids, far = self.facts.liquids, self.facts.far_cells
        self.facts.liquids = self.facts.far_cells = False
        try:
            return self._resumed(jax.random.key(0), state)
        finally:
            self.facts.liquids, self.facts.far_cells = liquids, far

    # What the state holds.

    def _settle(self) -> None:
        """Trace until the layout of the state and all facts are known."""
        for _ in range(MOST_TRACES):
            needs = self.facts.needs()
            self._layout = self._first_layout()
            for _ in range(MOST_TRACES):
                wider = self._wider_layout()
                if self.facts.needs() != needs:
                    break
                if same_layout(self._layout, wider):
                    return
                self._layout = wider
            else:
                raise ProgramError(
                    "the variables of the program change their kinds without end; "
                    "a list of lists that grows cannot be compiled"
                )
        raise ProgramError("the program needs ever more of its past; it cannot be compiled")

    def _first_layout(self) -> Layout:
        found: list[Layout] = []

        def trace(key: Any) -> None:
            machine = self._machine(key)
            if self.random == "reference":
                machine.random_state = key
            begin(machine, self.program, self._states)
            self._constants(machine)
            machine.capacity = self.capacity
            found.append(first_layout(machine))

        jax.eval_shape(trace, self._abstract_key())
        return found[0]

    def _constants(self, machine: Machine) -> None:
        """What of a program is known from its start."""
        size = machine.grid_size
        self.grid_size = size
        self.capacity = self._given_capacity or min(size * size, 256)
        background = machine.lookup("background", Place(0, 0))
        if not isinstance(background, Scalar) or background.kind != "String":
            raise ProgramError("background must be the name of a colour")
        shade = background.number
        self.background = self.palette[shade] if known(shade) else "black"
        rate = machine.lookup("FRAME_RATE", Place(0, 0))
        is_known = isinstance(rate, Scalar) and rate.kind == "Number" and known(rate.number)
        self.frame_rate = max(rate.number, 1) if is_known else 8  # type: ignore[attr-defined]

    def _abstract_key(self) -> Any:
        if self.random == "reference":
            return jax.ShapeDtypeStruct((), np.uint32)
        return jax.eval_shape(lambda: jax.random.key(0))

    def _wider_layout(self) -> Layout:
        """The layout with room for what a step makes of it."""
        found: list[Layout] = []

        def trace(key: Any, state: ProgramState, action: Any) -> None:
            machine = self._resumed(key, state)
            self._advance(machine, action)
            found.append(wider_layout(self._layout, machine))

        jax.eval_shape(
            trace,
            jax.eval_shape(lambda: jax.random.key(0)),
            self._abstract_state(),
            jax.ShapeDtypeStruct((3,), np.int32),
        )
        return found[0]

    def _abstract_state(self) -> ProgramState:
        layout = self._layout
        flag: Any = jax.ShapeDtypeStruct((), np.bool_)
        word: Any = jax.ShapeDtypeStruct((), np.int32)
        abstract: Any = jax.ShapeDtypeStruct
        side = table_side(self.grid_size)
        return ProgramState(
            values={n: changing(s, s) for n, s in layout.values.items()},
            present={n: flag for n, p in layout.present.items() if not known(p)},
            random=abstract((), np.uint32),
            error=word,
            steps=word,
            triggered=flag,
            frame=abstract((self.grid_size,) * 2, np.int32),
            covered=abstract((side, side), np.bool_),
        )


def _all_cells(painted: list[rendering.Layer]) -> tuple[Any, Any, Any]:
    if not painted:
        none = np.zeros(0, np.int32)
        return none, none, none.astype(bool)
    x, y, exists = (
        rendering.joined([getattr(layer, name) for layer in painted])
        for name in ("x", "y", "exists")
    )
    return x, y, exists
