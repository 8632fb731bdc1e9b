"""Regular languages over bytes: expressions and the deterministic automata that accept them.

Text is UTF-8. Expressions are trees of a few node types; `determinise` turns one into a
`ByteDfa` by Thompson's construction and the subset construction, drops what cannot be
finished and merges states that agree in all that follows.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import numpy as np

from jaxlab.core.errors import ConfigError

#: Largest automata: states before and after determinisation, and sets of states in between.
_MAX_PLACES, _MAX_STATES, _MAX_WORK = 200_000, 60_000, 4_000_000


@dataclasses.dataclass(frozen=True)
class Bytes:
    """One byte of a set; bit b of `mask` stands for byte b."""

    mask: int


@dataclasses.dataclass(frozen=True)
class Sequence:
    """One part after the other; no parts match the empty string."""

    parts: tuple[Node, ...]


@dataclasses.dataclass(frozen=True)
class Choice:
    """One of the options."""

    options: tuple[Node, ...]


@dataclasses.dataclass(frozen=True)
class Repeat:
    """`least` to `most` times the same (None: any number)."""

    node: Node
    least: int
    most: int | None


@dataclasses.dataclass(frozen=True)
class Listing:
    """Items in their order with a separator between them; those not required may be left out.

    As a tree of choices this would grow as the square of the number of items.
    """

    items: tuple[tuple[Node, bool], ...]
    separator: Node


Node = Bytes | Sequence | Choice | Repeat | Listing


def literal(text: str | bytes) -> Node:
    """Exactly this text."""
    data = text.encode() if isinstance(text, str) else text
    return Sequence(tuple(Bytes(1 << byte) for byte in data))


def code_points(ranges: Iterable[tuple[int, int]]) -> Node:
    """One character out of inclusive ranges of code points, as UTF-8; surrogates are left out."""
    single, options = 0, []
    for low, high in ranges:
        for first, last in ((low, min(high, 0xD7FF)), (max(low, 0xE000), high)):
            for sequence in _utf8_ranges(first, last):
                masks = [(1 << (b + 1)) - (1 << a) for a, b in sequence]
                if len(masks) == 1:
                    single |= masks[0]
                else:
                    options.append(Sequence(tuple(map(Bytes, masks))))
    return Choice((Bytes(single), *options)) if options else Bytes(single)


def _utf8_ranges(low: int, high: int) -> list[list[tuple[int, int]]]:
    """Split code points into products of byte ranges, one pair per byte of the encoding."""
    if low > high:
        return []
    for limit in (0x7F, 0x7FF, 0xFFFF):
        if low <= limit < high:
            return _utf8_ranges(low, limit) + _utf8_ranges(limit + 1, high)
    for continuation in (1, 2, 3):
        rest = (1 << (6 * continuation)) - 1
        if high <= 0x7F or (low | rest) >= (high | rest):
            break
        if low & rest:
            return _utf8_ranges(low, low | rest) + _utf8_ranges((low | rest) + 1, high)
        if high & rest != rest:
            return _utf8_ranges(low, (high & ~rest) - 1) + _utf8_ranges(high & ~rest, high)
    return [list(zip(chr(low).encode(), chr(high).encode(), strict=True))]


@dataclasses.dataclass(frozen=True)
class ByteDfa:
    """A deterministic automaton over bytes; state 0 is the start, -1 is no way on.

    From every state some accepting state can be reached.

    Attributes:
      byte_class: Class of each byte, `[256]`, int32; bytes of a class act alike.
      transitions: Next state, `[states, classes]`, int32.
      accepting: Whether the text may end here, `[states]`, bool.
    """

    byte_class: np.ndarray
    transitions: np.ndarray
    accepting: np.ndarray

    @property
    def num_states(self) -> int:
        return len(self.accepting)

    def accepts(self, text: str | bytes) -> bool:
        """Whether the whole text belongs to the language."""
        state = 0
        for byte in text.encode() if isinstance(text, str) else text:
            state = int(self.transitions[state, self.byte_class[byte]])
            if state < 0:
                return False
        return bool(self.accepting[state])

    def bytes_used(self) -> np.ndarray:
        """Bytes that occur in some text of the language, sorted."""
        return np.flatnonzero(np.any(self.transitions >= 0, axis=0)[self.byte_class])

    def without(self, missing: np.ndarray) -> ByteDfa:
        """The texts that contain none of these bytes.

        Raises:
          ConfigError: There is none.
        """
        byte_class, table = self.byte_class.copy(), self.transitions
        byte_class[missing] = table.shape[1]
        table = np.pad(table, ((0, 0), (0, 1)), constant_values=-1)
        # A class of which no byte is left must not keep its transitions.
        gone = np.setdiff1d(np.arange(table.shape[1]), byte_class)
        table[:, gone] = -1
        return _reduced(byte_class, table, self.accepting)


def determinise(node: Node, what: str = "grammar") -> ByteDfa:
    """The automaton of an expression.

    Args:
      node: The expression.
      what: What it is called in messages.

    Raises:
      ConfigError: It matches nothing at all, or the automaton would be too large.
    """
    places = _Places(what)
    end = places.add(node, places.new())
    rows, accepting = _subsets(places, end)
    byte_class, table = _table(rows)
    try:
        return _reduced(byte_class, table, accepting)
    except ConfigError as error:
        raise ConfigError(f"{what}: {error}") from error


def _too_large(what: str, many: str) -> ConfigError:
    return ConfigError(
        f"{what}: the automaton would have more than {many}; shorten strings and repetitions"
    )


class _Places:
    """Thompson's construction: places, empty moves and moves on a set of bytes."""

    def __init__(self, what: str):
        self.what = what
        self.empty: list[list[int]] = []
        self.moves: list[list[tuple[int, int]]] = []
        self._closures: dict[int, frozenset[int]] = {}
        self._work = 0

    def new(self) -> int:
        if len(self.empty) >= _MAX_PLACES:
            raise _too_large(self.what, f"{_MAX_PLACES} places")
        self.empty.append([])
        self.moves.append([])
        return len(self.empty) - 1

    def add(self, node: Node, start: int) -> int:
        """Attach a node at a place; the place where it ends is new or the start itself."""
        if isinstance(node, Bytes):
            end = self.new()
            self.moves[start].append((node.mask, end))
            return end
        if isinstance(node, Sequence):
            for part in node.parts:
                start = self.add(part, start)
            return start
        if isinstance(node, Choice):
            end = self.new()
            for option in node.options:
                self.empty[self.add(option, start)].append(end)
            return end
        if isinstance(node, Repeat):
            return self._add_repeat(node, start)
        return self._add_listing(node, start)

    def _add_repeat(self, node: Repeat, start: int) -> int:
        for _ in range(node.least):
            start = self.add(node.node, start)
        end = self.new()
        if node.most is None:
            loop = self.new()
            self.empty[start].append(loop)
            self.empty[self.add(node.node, loop)].append(loop)
            self.empty[loop].append(end)
            return end
        for _ in range(node.most - node.least):
            self.empty[start].append(end)
            start = self.add(node.node, start)
        self.empty[start].append(end)
        return end

    def _add_listing(self, node: Listing, start: int) -> int:
        nothing, something = start, self.new()
        for item, required in node.items:
            begin, fresh = self.new(), self.new()
            self.empty[nothing].append(begin)
            self.empty[self.add(node.separator, something)].append(begin)
            done = self.add(item, begin)
            self.empty[done].append(fresh)
            nothing_yet = self.new()
            if not required:
                self.empty[nothing].append(nothing_yet)
                self.empty[something].append(fresh)
            nothing, something = nothing_yet, fresh
        end = self.new()
        self.empty[nothing].append(end)
        self.empty[something].append(end)
        return end

    def closure(self, place: int, end: int) -> frozenset[int]:
        """Places reached by empty moves, of those that matter: with moves, or the end."""
        if place not in self._closures:
            seen, stack = {place}, [place]
            while stack:
                for following in self.empty[stack.pop()]:
                    if following not in seen:
                        seen.add(following)
                        stack.append(following)
            self._work += len(seen)
            if self._work > _MAX_WORK:
                raise _too_large(self.what, f"{_MAX_WORK} empty moves")
            self._closures[place] = frozenset(p for p in seen if self.moves[p] or p == end)
        return self._closures[place]


def _subsets(places: _Places, end: int) -> tuple[list[list[tuple[int, int]]], np.ndarray]:
    """The subset construction: for each state its moves (mask of bytes, state), and acceptance."""
    start = places.closure(0, end)
    number, order, rows = {start: 0}, [start], []
    work = 0
    for subset in order:
        by_mask: dict[int, set[int]] = {}
        for place in subset:
            for mask, target in places.moves[place]:
                by_mask.setdefault(mask, set()).add(target)
        row = []
        for mask, targets in _disjoint(by_mask):
            following = frozenset().union(*(places.closure(t, end) for t in targets))
            if following not in number:
                number[following] = len(order)
                order.append(following)
                work += len(following)
            row.append((mask, number[following]))
        rows.append(row)
        if len(order) > _MAX_STATES or work > _MAX_WORK:
            raise _too_large(places.what, f"{_MAX_STATES} states")
    return rows, np.array([end in subset for subset in order])


def _disjoint(by_mask: dict[int, set[int]]) -> list[tuple[int, set[int]]]:
    """Split masks where they overlap, so that each byte is in one of them."""
    pieces: list[tuple[int, set[int]]] = []
    for mask, targets in by_mask.items():
        split = []
        for other, theirs in pieces:
            if common := other & mask:
                split.append((common, theirs | targets))
                other, mask = other & ~common, mask & ~common
            if other:
                split.append((other, theirs))
        if mask:
            split.append((mask, targets))
        pieces = split
    return pieces


def _table(rows: list[list[tuple[int, int]]]) -> tuple[np.ndarray, np.ndarray]:
    """Byte classes and the table of transitions over them."""
    masks = sorted({mask for row in rows for mask, _ in row})
    words = np.frombuffer(b"".join(m.to_bytes(32, "little") for m in masks), np.uint8)
    member = np.unpackbits(words.reshape(len(masks), 32), axis=1, bitorder="little")
    _, byte_class = np.unique(member, axis=1, return_inverse=True)
    byte_class = byte_class.reshape(256).astype(np.int32)
    classes_of = {
        mask: np.unique(byte_class[np.flatnonzero(bits)])
        for mask, bits in zip(masks, member, strict=True)
    }
    table = np.full((len(rows), byte_class.max() + 1), -1, np.int32)
    for state, row in enumerate(rows):
        for mask, target in row:
            table[state, classes_of[mask]] = target
    return byte_class, table


def _reduced(byte_class: np.ndarray, table: np.ndarray, accepting: np.ndarray) -> ByteDfa:
    """Without states from which nothing can be accepted, equal states merged."""
    useful = _reaching(table, accepting)
    if not useful[0]:
        raise ConfigError("no text at all matches it")
    table = np.where((table >= 0) & useful[table], table, -1)
    merged = _merged(table, accepting)
    table = np.where(table >= 0, merged[table], -1)
    # Breadth first from the start, so that equal expressions give equal tables.
    order, position = [int(merged[0])], {int(merged[0]): 0}
    for state in order:
        for target in table[state].tolist():
            if target >= 0 and target not in position:
                position[target] = len(order)
                order.append(target)
    renumber = np.full(len(table), -1)
    renumber[order] = np.arange(len(order))
    kept = table[order]
    kept = np.where(kept >= 0, renumber[kept], -1).astype(np.int32)
    return ByteDfa(byte_class, kept, accepting[order])


def _reaching(table: np.ndarray, accepting: np.ndarray) -> np.ndarray:
    """States from which an accepting one can be reached, `[states]`, bool."""
    source, column = np.nonzero(table >= 0)
    edges = np.unique(np.stack([table[source, column], source], 1), axis=0)
    begin = np.searchsorted(edges[:, 0], np.arange(len(table) + 1))
    reached = accepting.copy()
    stack = np.flatnonzero(accepting).tolist()
    while stack:
        state = stack.pop()
        for before in edges[begin[state] : begin[state + 1], 1].tolist():
            if not reached[before]:
                reached[before] = True
                stack.append(before)
    return reached


def _merged(table: np.ndarray, accepting: np.ndarray) -> np.ndarray:
    """A representative of each state, depth first: states with the same rows are one.

    States on a cycle of several states are left as they are; a full minimisation takes
    as many rounds as the longest text is long.
    """
    unseen, open_, itself = -2, -3, -4
    merged = np.full(len(table), unseen)
    known: dict[tuple[bool, bytes], int] = {}
    stack = [(0, iter(np.unique(table[0]).tolist()))]
    merged[0] = open_
    while stack:
        state, following = stack[-1]
        target = next((t for t in following if t >= 0 and merged[t] == unseen), None)
        if target is not None:
            merged[target] = open_
            stack.append((target, iter(np.unique(table[target]).tolist())))
            continue
        stack.pop()
        row = np.where(table[state] >= 0, merged[table[state]], -1)
        row[table[state] == state] = itself
        key = (bool(accepting[state]), row.tobytes())
        merged[state] = state if (row == open_).any() else known.setdefault(key, state)
    return merged
