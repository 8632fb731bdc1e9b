"""Random numbers of a program: the reference interpreter's generator, or keys.

The generator of the reference interpreter multiplies its state, wraps at 32 bits, takes
the remainder by 2^31 - 1 and then by the number of choices; from seed 0 it draws 0 for
ever. With keys, draw number `i` of a step comes from `fold_in(key, i)`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jax import lax

from jaxlab.envs.autumn.scalars import Number, array, choose, equal, known, spread

if TYPE_CHECKING:
    from jaxlab.envs.autumn.machine import Machine

MULTIPLIER = np.uint32(48271)
MODULUS = np.uint32(2**31 - 1)


class OrderMatters(Exception):
    """A draw (or another effect) in the body of a loop, whose rounds must follow each other."""


class ReferenceRandom:
    """The reference interpreter's generator; its state, uint32 `[]`, is the machine's."""

    in_order = True

    def draw(self, machine: Machine, bound: Number) -> Number:
        """A number below `bound`; a bound of 0 gives 0 and draws nothing."""
        if known(bound) and bound <= 0:
            return 0
        state = machine.random_state
        drawn = lax.rem(lax.mul(state, MULTIPLIER), MODULUS)
        divisor = lax.convert_element_type(array(bound), np.uint32)
        if not known(bound):
            drawn = choose(equal(bound, 0), state, drawn)
            divisor = lax.max(divisor, np.uint32(1))
        machine.random_state = drawn
        return lax.convert_element_type(lax.rem(drawn, divisor), np.int32)


class KeyRandom:
    """Draws from a key, each with a number of its own."""

    in_order = False

    def __init__(self, key: jax.Array):
        self.key = key

    def bits(self, machine: Machine, shape: tuple[int, ...]) -> Any:
        """Random words, uint32."""
        machine.draws += 1
        return jax.random.bits(jax.random.fold_in(self.key, machine.draws), shape, np.uint32)

    def draw(self, machine: Machine, bound: Number) -> Number:
        """A number below `bound` (at most 65,536), uniform to one part in 65,536 by it."""
        if known(bound) and bound <= 0:
            return 0
        word = lax.shift_right_logical(self.bits(machine, ()), np.uint32(16))
        scaled = lax.mul(word, lax.convert_element_type(array(bound), np.uint32))
        return lax.convert_element_type(lax.shift_right_logical(scaled, np.uint32(16)), np.int32)


class LaneRandom(KeyRandom):
    """Draws inside a loop whose rounds run side by side.

    Without words it only notes what is drawn; with words it hands them out in that order.
    """

    def __init__(self, words: list[Any] | None):
        self.words = words
        self.plan: list[tuple[int, ...]] = []

    def bits(self, machine: Machine, shape: tuple[int, ...]) -> Any:
        self.plan.append(shape)
        if self.words is None:
            return spread(np.uint32(0), shape)
        return self.words[len(self.plan) - 1]


class NoLaneRandom:
    """Refuses to draw side by side, since the generator's draws follow each other."""

    in_order = True

    def draw(self, machine: Machine, bound: Number) -> Number:
        """Nothing below `bound`."""
        raise OrderMatters
