"""A plain numpy evaluation of reward sources, apart from the library's parser and machine."""

from __future__ import annotations

import ast

import numpy as np

LARGEST, SMALLEST = 1e6, 1e-3


class Reference:
    """Values of a source for each row of features, in the precision of the features.

    `margin` is the least distance of two numbers that were compared, or of a number from a
    place where an operation has a corner: below rounding, results may rightly differ.
    """

    def __init__(self, source, names, features):
        self.margin = np.inf
        function = ast.parse(source).body[0]
        self.scope = {a.arg: features[:, names.index(a.arg)] for a in function.args.args}
        self.like = features[:, 0]
        for statement in function.body:
            if isinstance(statement, ast.Assign):
                self.scope[statement.targets[0].id] = self.of(statement.value)
        result = self.of(function.body[-1].value)
        self.value = np.broadcast_to(result, self.like.shape).astype(self.like.dtype)

    def of(self, node):
        with np.errstate(all="ignore"):
            value = getattr(self, f"_{type(node).__name__.lower()}")(node)
        if np.asarray(value).dtype == bool:
            return value
        return np.clip(np.asarray(value, self.like.dtype), -LARGEST, LARGEST)

    def _constant(self, node):
        return np.float32(node.value)

    def _name(self, node):
        return self.scope[node.id]

    def _unaryop(self, node):
        value = self.of(node.operand)
        return np.logical_not(value) if isinstance(node.op, ast.Not) else -number(value)

    def _binop(self, node):
        a, b = number(self.of(node.left)), number(self.of(node.right))
        kind = type(node.op)
        if kind is ast.Pow:
            return a * a if float(b) == 2 else self.sqrt(a)
        if kind is ast.Div:
            return self.divided(a, b)
        return {ast.Add: np.add, ast.Sub: np.subtract, ast.Mult: np.multiply}[kind](a, b)

    def divided(self, a, b):
        self.corner(b)  # the sign of a rounding error would be that of the quotient
        self.corner(np.abs(b) - SMALLEST)
        return a / np.where(np.abs(b) < SMALLEST, np.where(b < 0, -SMALLEST, SMALLEST), b)

    def sqrt(self, a):
        self.corner(a)
        return np.sqrt(np.maximum(a, 0))

    def corner(self, distance):
        near = np.abs(np.asarray(distance, float))
        near = near[near > 0]  # exact zeros come out the same everywhere
        if near.size:
            self.margin = min(self.margin, float(near.min()))

    def _boolop(self, node):
        combine = np.logical_and if isinstance(node.op, ast.And) else np.logical_or
        return combine.reduce([np.broadcast_to(self.of(v), self.like.shape) for v in node.values])

    def _compare(self, node):
        values = [number(self.of(v)) for v in (node.left, *node.comparators)]
        compare = {
            **{ast.Lt: np.less, ast.LtE: np.less_equal, ast.Gt: np.greater},
            **{ast.GtE: np.greater_equal, ast.Eq: np.equal, ast.NotEq: np.not_equal},
        }
        results = []
        for op, a, b in zip(node.ops, values, values[1:], strict=False):
            self.corner(a - b)
            results.append(np.broadcast_to(compare[type(op)](a, b), self.like.shape))
        return np.logical_and.reduce(results)

    def _ifexp(self, node):
        return np.where(
            self.of(node.test), number(self.of(node.body)), number(self.of(node.orelse))
        )

    def _call(self, node):
        name = node.func.id
        values = [self.of(a) for a in node.args]
        if name == "where":
            return np.where(values[0], number(values[1]), number(values[2]))
        values = np.broadcast_arrays(*(number(v) for v in values), self.like)[:-1]
        a = values[0]
        if name == "log":
            return np.log(np.maximum(a, SMALLEST))
        if name == "log1p":
            return np.log1p(np.maximum(a, SMALLEST - 1))
        if name == "exp":
            return np.exp(np.minimum(a, 20))
        if name == "clip":
            return np.minimum(np.maximum(a, values[1]), values[2])
        if name in ("min", "max", "sum", "mean"):
            reduced = {"min": np.min, "max": np.max}.get(name, np.sum)(values, axis=0)
            return reduced / len(values) if name == "mean" else reduced
        return {"tanh": np.tanh, "abs": np.abs, "sqrt": self.sqrt}[name](a)


def number(value):
    return np.asarray(value).astype(float) if np.asarray(value).dtype == bool else value
