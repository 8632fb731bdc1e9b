"""Evaluation at trace time: scopes, branches, and everything that changes in a step.

The program's syntax is walked once, in Python, with constants kept as constants. Where a
condition is known, one side is walked; where it is not, both are, from the same start, and
what they left behind is selected name by name. Scopes are dynamic: a function runs in the
scopes of its caller.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jaxlab.core.errors import ProgramError
from jaxlab.envs.autumn.combining import Select, length
from jaxlab.envs.autumn.facts import Facts
from jaxlab.envs.autumn.kinds import relabelled_identities, type_name, type_of
from jaxlab.envs.autumn.reader import Place
from jaxlab.envs.autumn.scalars import Number, add, both, choose, either, equal, invert, known, less
from jaxlab.envs.autumn.scopes import Binding, Failure, Frame, Snapshot, merged
from jaxlab.envs.autumn.values import (
    NOTHING,
    Cells,
    Constructor,
    Identity,
    Instance,
    ListValue,
    ObjectClass,
    Scalar,
    Union,
    Value,
)

#: Deepest nesting of calls; a program that goes deeper calls itself without end.
MOST_CALLS = 50
#: Calls that are traced for one step; the programs of the benchmark make some tens.
MOST_CALLS_ALTOGETHER = 20_000
#: Rounds of a loop, and places in a program, that may each make an instance in a step.
ROUNDS = 512
#: Identities that a step may give out; those of the next step begin behind them.
IDENTITIES = ROUNDS * ROUNDS


class Machine:
    """The state of an evaluation. Functions of the language live in modules of their own."""

    def __init__(self, facts: Facts, library: dict[str, Value], random: Any, capacity: int):
        self.facts = facts
        self.library = library
        self.random = random
        self.capacity = capacity
        self.globals = Frame({}, None)
        self.frame = self.globals
        self.classes: dict[str, ObjectClass] = {}
        self.previous: dict[str, Binding] | None = None
        self.inputs: Any = None
        self.occupied: Any = None
        self.on_grid: list[tuple[Any, Any]] = []
        self.updated: dict[str, Number] = {}
        self.order: tuple[str, ...] = ()
        self.turned: dict[Cells, Cells] = {}
        self.error: Number = 0
        self.random_state: Any = None
        self.draws = 0
        self.made = 0
        self.first_identity: Number | None = None
        self.depth = 0
        self.calls = 0
        self.lanes = 1
        self.lane: Number | None = None
        self.lane_traces: tuple[Any, ...] = ()

    @property
    def grid_size(self) -> int:
        """Rows, and columns, of the grid."""
        binding = self.globals.bindings.get("GRID_SIZE")
        value = self.library["GRID_SIZE"] if binding is None else binding.value
        if not isinstance(value, Scalar) or not known(value.number) or value.number < 1:
            raise ProgramError(
                "GRID_SIZE must be one positive integer that nothing changes while the program runs"
            )
        return int(value.number)

    # What a branch changes.

    def save(self) -> Snapshot:
        """Everything as it is now."""
        scopes, frame = [], self.frame
        while frame is not None:
            scopes.append((frame, frame.bindings, frame.types))
            frame = frame.parent  # type: ignore[assignment]
        return Snapshot(
            self.frame,
            tuple(scopes),
            self.updated,
            self.order,
            self.turned,
            self.previous,
            self.error,
            self.random_state,
        )

    def restore(self, snapshot: Snapshot) -> None:
        """Everything as it was."""
        self.frame = snapshot.frame
        for frame, bindings, types in snapshot.scopes:
            frame.bindings, frame.types = bindings, types
        self.updated, self.order = snapshot.updated, snapshot.order
        self.turned, self.error = snapshot.turned, snapshot.error
        self.previous = snapshot.previous
        self.random_state = snapshot.random_state

    def branch(
        self, condition: Number, on_true: Callable[[], Value], on_false: Callable[[], Value]
    ) -> Value:
        """The value of one of two sides, and of all that they change."""
        if known(condition):
            return (on_true if condition else on_false)()
        start = self.save()
        left, left_failure = self._attempt(on_true)
        after_left = self.save()
        self.restore(start)
        right, right_failure = self._attempt(on_false)
        if left_failure is not None and right_failure is not None:
            self.restore(start)
            self.fail_where(condition, str(left_failure))
            raise right_failure
        if left_failure is not None:
            self.fail_where(condition, str(left_failure))
            return right
        if right_failure is not None:
            self.restore(after_left)
            self.fail_where(invert(condition), str(right_failure))
            return left
        after_right = self.save()
        value = self._select(condition, after_left, after_right).value(left, right)
        self._merge(condition, after_left, after_right)
        return value

    def only_if(self, condition: Number, body: Callable[[], Value]) -> Value:
        """The value of a body, of which the effects stay where the condition holds."""
        values: list[Value] = []

        def kept() -> Value:
            values.append(body())
            return NOTHING

        self.branch(condition, kept, lambda: NOTHING)
        return values[0] if values else NOTHING

    def _attempt(self, body: Callable[[], Value]) -> tuple[Value, Failure | None]:
        depth = self.depth
        try:
            return body(), None
        except Failure as failure:
            self.depth = depth
            return NOTHING, failure

    def _select(self, condition: Number, left: Snapshot, right: Snapshot) -> Select:
        return Select(
            condition,
            (
                lambda cells: left.turned.get(cells, cells),
                lambda cells: right.turned.get(cells, cells),
            ),
        )

    def _merge(self, condition: Number, left: Snapshot, right: Snapshot) -> None:
        select = self._select(condition, left, right)
        self.frame = left.frame
        for (frame, lefts, types), (_, rights, _) in zip(left.scopes, right.scopes, strict=True):
            frame.types = types
            frame.bindings = lefts if lefts is rights else merged(select, lefts, rights)
        if left.updated is not right.updated:
            names = {**left.updated, **right.updated}
            self.updated = {
                name: choose(
                    condition, left.updated.get(name, False), right.updated.get(name, False)
                )
                for name in names
            }
        self.order = left.order + tuple(n for n in right.order if n not in left.order)
        self.previous = left.previous
        if left.previous is not right.previous:
            self.previous = merged(select, left.previous or {}, right.previous or {})
        if left.turned is not right.turned:
            both_turned = {**left.turned, **right.turned}
            self.turned = {
                cells: self._one_turned(select, cells, left, right) for cells in both_turned
            }  # type: ignore[assignment]
        self.error = choose(condition, left.error, right.error)
        self.random_state = choose(condition, left.random_state, right.random_state)

    def _one_turned(self, select: Select, cells: Cells, left: Snapshot, right: Snapshot) -> Cells:
        after = select.value(left.turned.get(cells, cells), right.turned.get(cells, cells))
        assert isinstance(after, Cells)
        return after

    # Errors.

    def fail_where(self, condition: Number, message: str) -> None:
        """Note an error of the program where a condition holds and none was before."""
        if known(condition):
            if condition:
                raise Failure(message)
            return
        code = choose(condition, self.facts.message(message), 0)
        self.error = (
            code
            if known(self.error) and self.error == 0
            else choose(equal(self.error, 0), code, self.error)
        )

    # Names.

    def lookup(self, name: str, place: Place) -> Value:
        """The value of a name: a class, or the nearest variable up the calls."""
        if name in self.classes:
            return Constructor(self.classes[name])
        found, frame = [], self.frame
        while frame is not None:
            binding = frame.bindings.get(name)
            if binding is not None:
                found.append(binding)
                if known(binding.present) and binding.present:
                    break
            frame = frame.parent  # type: ignore[assignment]
        else:
            if name in self.library:
                found.append(Binding(self.library[name]))
        found = [b for b in found if not (known(b.present) and not b.present)]
        if not found:
            raise Failure(f"{place}: '{name}' is not defined")
        value, present = found[-1].value, found[-1].present
        for binding in found[-2::-1]:
            value = Select(binding.present).value(binding.value, value)
            present = either(binding.present, present)
        if not known(present):
            self.fail_where(invert(present), f"{place}: '{name}' is not defined")
        return value

    def visible(self, name: str) -> bool:
        """Whether a variable of the program has this name, perhaps."""
        frame: Frame | None = self.frame
        while frame is not None:
            if name in frame.bindings:
                return True
            frame = frame.parent
        return False

    def define(self, frame: Frame, name: str, value: Value, where: Number = True) -> None:
        """A new variable in a scope."""
        old = frame.bindings.get(name)
        present: Number = where
        if old is not None:
            value = Select(where).value(value, old.value)
            present = either(where, old.present)
        frame.bindings = {**frame.bindings, name: Binding(value, present)}
        if frame is self.globals:
            self.updated = {
                **self.updated,
                name: both(self.updated.get(name, False), invert(where)),
            }
            if name not in self.order:
                self.order = (*self.order, name)

    def assign(self, name: str, value: Value, place: Place, *, declared: bool = True) -> Value:
        """A value for the nearest variable of a name; where there is none, a new one here.

        With `declared` its type must be the one that the variable is declared to have.
        """
        if isinstance(value, Union):
            return self.over(
                value, lambda option: self.assign(name, option, place, declared=declared)
            )
        if declared:
            self._check_declared(name, value, place)
        frame: Frame | None = self.frame
        left: Number = True
        while frame is not None:
            old = frame.bindings.get(name)
            if old is None and frame is self.globals and name in self.library:
                old = Binding(self.library[name])
            if old is not None:
                self._replace(frame, name, old, value, both(left, old.present), place)
                left = both(left, invert(old.present))
                if known(left) and not left:
                    return value
            frame = frame.parent
        self.define(self.frame, name, value, left)
        return value

    def _replace(
        self, frame: Frame, name: str, old: Binding, value: Value, where: Number, place: Place
    ) -> None:
        if known(where) and not where:
            return
        new_type = type_name(value)
        tag, options = _options(old.value)
        for index, option in enumerate(options):
            old_type = type_name(option)
            if new_type not in (old_type, "List"):
                message = f"{place}: a {new_type} for '{name}', which holds a {old_type}"
                self.fail_where(both(where, equal(tag, index)), message)
        if type_name(old.value) not in (new_type, None) and new_type != "List":
            return
        if isinstance(value, Instance) and isinstance(old.value, Instance):
            self._rename(value.identity, old.value.identity, where)
            value = Instance(value.type, value.fields, old.value.identity)
            old = frame.bindings.get(name, old)
        value = Select(where).value(value, old.value)
        frame.bindings = {**frame.bindings, name: Binding(value, old.present)}
        if frame is self.globals:
            self.updated = {**self.updated, name: either(self.updated.get(name, False), where)}

    def _rename(self, before: Identity, after: Identity, where: Number) -> None:
        """What was one instance takes another identity, in whatever else holds it, too."""
        if before.number is None or before is after or before.origins == {"now"}:
            return

        def renamed(part: Any) -> Any:
            if not isinstance(part, Identity) or part.number is None:
                return part
            if not part.origins & before.origins:
                return part
            same = both(equal(part.number, before.number), where)
            number = choose(same, after.number, part.number)
            return Identity(part.origins | after.origins, number)

        def everywhere(bindings: dict[str, Binding]) -> dict[str, Binding]:
            return {
                name: Binding(relabelled_identities(renamed, binding.value), binding.present)
                for name, binding in bindings.items()
            }

        frame: Frame | None = self.frame
        while frame is not None:
            frame.bindings = everywhere(frame.bindings)
            frame = frame.parent
        if self.previous is not None:
            self.previous = everywhere(self.previous)

    def _check_declared(self, name: str, value: Value, place: Place) -> None:
        frame: Frame | None = self.frame
        while frame is not None:
            declared = frame.types.get(name)
            if declared is not None:
                if declared.name != "List" and type_of(declared) != type_name(value):
                    raise Failure(
                        f"{place}: a {type_name(value)} for '{name}', "
                        f"which is declared as {declared.name}"
                    )
                return
            frame = frame.parent

    # Values.

    def over(self, value: Value, body: Callable[[Value], Value]) -> Value:
        """A body on whichever value it is."""
        if not isinstance(value, Union):
            return body(value)

        def option(index: int) -> Value:
            if index == len(value.options) - 1:
                return body(value.options[index])
            return self.branch(
                equal(value.tag, index),
                lambda: body(value.options[index]),
                lambda: option(index + 1),
            )

        return option(0)

    def text(self, string: str) -> Scalar:
        """A string of the language."""
        return Scalar("String", self.facts.string(string))

    def fresh(self, kind: str) -> Identity:
        """An identity that nothing else has, with a number if those of its kind are asked for.

        Kinds are the classes of the language, `OBJECT` for those of the program, and `CELLS`.
        """
        wanted = kind in self.facts.identified
        self.made += 1
        origin: Any = self.made if self.first_identity is None else "now"
        number: Number | None = None
        if wanted:
            number = add(
                0 if self.first_identity is None else self.first_identity,
                self.made % ROUNDS * ROUNDS,
            )
        if self.lane is not None:
            origin = "early" if self.first_identity is None else "now"
            number = add(number, self.lane) if wanted else None
        return Identity(frozenset([origin]), number)

    def differs_by_lane(self, leaf: Any) -> bool:
        """Whether an array differs between the rounds of a loop that run side by side."""
        trace = getattr(leaf, "_trace", None)
        return trace is not None and any(trace is one for one in self.lane_traces)

    def current(self, cells: Cells) -> Cells:
        """Cells as they are after the rotations of this step."""
        return self.turned.get(cells, cells)

    def truthy(self, value: Value, place: Place) -> Number:
        """Whether a value counts as true: all but false and the empty list do."""
        if isinstance(value, Union):
            result = self.over(value, lambda option: Scalar("Bool", self.truthy(option, place)))
            assert isinstance(result, Scalar)
            return result.number
        if isinstance(value, Scalar):
            return value.number if value.kind == "Bool" else True
        if isinstance(value, ListValue):
            return less(0, length(value))
        if value is NOTHING:
            raise Failure(f"{place}: a condition without a value")
        return True

    def enter(self, place: Place) -> None:
        """One call deeper."""
        self.depth += 1
        self.calls += 1
        if self.calls > MOST_CALLS_ALTOGETHER:
            raise ProgramError(
                f"{place}: the program makes more than {MOST_CALLS_ALTOGETHER} calls in a step; "
                "it is too large to be compiled"
            )
        if self.depth > MOST_CALLS:
            raise ProgramError(
                f"{place}: calls nest deeper than {MOST_CALLS}; a function that calls itself "
                "cannot be compiled"
            )


def _options(value: Value) -> tuple[Number, tuple[Value, ...]]:
    return (value.tag, value.options) if isinstance(value, Union) else (0, (value,))
