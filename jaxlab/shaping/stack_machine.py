"""Evaluation of reward programs inside a compiled step.

Every operation is total: for finite features the result is finite, and so is its gradient.
Values are kept within +-`LARGEST`, a divisor keeps a distance of `SMALLEST` from zero, and
logarithms and roots of what has none are those of the nearest number that does.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jaxlab.shaping.reward_program import STACK_DEPTH, Op, RewardProgram, arity

LARGEST, SMALLEST = 1e6, 1e-3
#: Below it a root is 0: the slope there would be infinite.
_TINY = 1e-8


def evaluate(
    program: RewardProgram, features: Float[Array, "agents features"]
) -> Float[Array, " agents"]:
    """Value of a program for each agent, in the precision of the features.

    One compilation serves all programs of one length: `vmap(evaluate, (0, None))` runs a
    stack of them.

    Args:
      program: Arrays of one program.
      features: Finite features in the order of the catalogue.
    """
    real = features.dtype
    columns = jnp.clip(features, -LARGEST, LARGEST).T

    def step(stack: jax.Array, instruction: tuple[jax.Array, ...]) -> tuple[jax.Array, None]:
        code, feature, constant = instruction
        pushed = jnp.where(code == Op.FEATURE, columns[feature], constant.astype(real))
        result = _result(code, pushed, stack[0], stack[1], stack[2])
        taken = jnp.asarray([arity(op) for op in range(len(Op))], jnp.int32)[code]
        return jnp.where(code == Op.NOTHING, stack, _replaced(stack, taken, result)), None

    stack = jnp.zeros((STACK_DEPTH, features.shape[0]), real)
    parts = (jnp.asarray(program.code), jnp.asarray(program.feature), jnp.asarray(program.constant))
    stack, _ = jax.lax.scan(step, stack, parts)
    return stack[0]


def _replaced(
    stack: Float[Array, "depth agents"], taken: Int[Array, ""], result: Float[Array, " agents"]
) -> Float[Array, "depth agents"]:
    """The stack, top first, with `taken` values replaced by the result.

    Rows are shifted: a stack pointer would become a scatter under vmap.
    """
    zeros = jnp.zeros((2, *stack.shape[1:]), stack.dtype)
    long, rows = jnp.concatenate([stack, zeros]), stack.shape[0] - 1
    shifted = [long[n : n + rows] for n in range(4)]
    rest = jax.lax.select_n(jnp.broadcast_to(taken, shifted[0].shape), *shifted)
    return jnp.concatenate([result[None], rest])


def _result(
    code: Int[Array, ""],
    pushed: Float[Array, " agents"],
    c: Float[Array, " agents"],
    b: Float[Array, " agents"],
    a: Float[Array, " agents"],
) -> Float[Array, " agents"]:
    """What an operation leaves, of the three topmost values a, b, c (c on top)."""
    real = c.dtype
    # All are computed and one is chosen, so that programs can be vmapped.
    results = {
        Op.NOTHING: c,
        Op.CONSTANT: pushed,
        Op.FEATURE: pushed,
        Op.ADD: b + c,
        Op.SUBTRACT: b - c,
        Op.MULTIPLY: b * c,
        Op.DIVIDE: b / away_from_zero(c),
        Op.MIN: jnp.minimum(b, c),
        Op.MAX: jnp.maximum(b, c),
        Op.LESS: (b < c).astype(real),
        Op.LESS_EQUAL: (b <= c).astype(real),
        Op.EQUAL: (b == c).astype(real),
        Op.WHERE: jnp.where(a != 0, b, c),
        Op.NEGATE: -c,
        Op.ABS: jnp.abs(c),
        Op.SQUARE: c * c,
        Op.SQRT: jnp.where(c > _TINY, jnp.sqrt(jnp.maximum(c, _TINY)), jnp.zeros_like(c)),
        Op.EXP: jnp.exp(jnp.minimum(c, math.log(LARGEST))),
        Op.LOG: jnp.log(jnp.maximum(c, SMALLEST)),
        Op.LOG1P: jnp.log1p(jnp.maximum(c, SMALLEST - 1)),
        Op.TANH: jnp.tanh(c),
    }
    chosen = jax.lax.select_n(
        jnp.broadcast_to(code, c.shape), *(results[op].astype(real) for op in Op)
    )
    return jnp.clip(chosen, -LARGEST, LARGEST)


def away_from_zero(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """The divisor in use for x: itself, or +-`SMALLEST` where it is nearer to zero."""
    near = jnp.where(x < 0, -SMALLEST, SMALLEST).astype(x.dtype)
    return jnp.where(jnp.abs(x) < SMALLEST, near, x)
