"""Source texts of reward functions as checked syntax trees; nothing is ever executed."""

from __future__ import annotations

import ast
import dataclasses
import unicodedata
import warnings

from jaxlab.shaping.reward_program import LENGTH, RewardError

SCOPE = "free-form Python is out of scope: only one function of arithmetic over the features"
ADVICE: dict[type[ast.AST], str] = {
    ast.Attribute: "attributes ('.') do not exist here; write tanh(x), not np.tanh(x)",
    ast.Subscript: "there is nothing to index; features are single numbers with names",
    ast.If: "write where(condition, a, b) or a if condition else b",
    ast.For: "there are no loops; write the terms out",
    ast.While: "there are no loops; write the terms out",
    ast.Lambda: "there are no inner functions; use a local variable",
    ast.FunctionDef: "there are no inner functions; use a local variable",
    ast.ListComp: "there are no comprehensions; write sum(a, b, c)",
    ast.GeneratorExp: "there are no comprehensions; write sum(a, b, c)",
    ast.List: "there are no lists; pass values as arguments, as in mean(a, b)",
    ast.Tuple: "there are no tuples; return and assign one number",
    ast.Import: "nothing can be imported; the functions are there already",
    ast.ImportFrom: "nothing can be imported; the functions are there already",
    ast.JoinedStr: "there are no strings",
    ast.NamedExpr: "assign on a line of its own: name = value",
    ast.Starred: "write the arguments out",
    ast.AnnAssign: "leave the annotation out: name = value",
    ast.Expr: "an expression on a line of its own has no effect; use # for comments",
}


@dataclasses.dataclass(frozen=True)
class Limits:
    """Sizes of a reward function.

    Attributes:
      characters: Of the source.
      nodes, depth: Of the syntax tree.
      constants: Numbers written down.
      largest_constant: Their largest absolute value.
      instructions: Of the program, local variables written out where they are used.
    """

    characters: int = 4000
    nodes: int = 400
    depth: int = 32
    constants: int = 64
    largest_constant: float = 1000.0
    instructions: int = LENGTH


def normalised(source: str, limits: Limits) -> str:
    """The source in compatibility form, as it is parsed, shown and kept.

    Raises:
      RewardError: It is empty, too long, or has invisible characters.
    """
    if not isinstance(source, str) or not source.strip():
        raise RewardError("the reward is empty; write def reward(...): with a return")
    if len(source) > limits.characters:
        raise RewardError(
            f"the source has {len(source)} characters, the limit is {limits.characters}; shorten it"
        )
    source = unicodedata.normalize("NFKC", source).replace("\r\n", "\n").strip() + "\n"
    for character in source:
        # Control and format characters can make a text look other than it is.
        if unicodedata.category(character)[0] == "C" and character not in "\n\t":
            raise RewardError(
                f"the source has the invisible character U+{ord(character):04X}; leave it out"
            )
    return source


def syntax_tree(source: str, limits: Limits) -> ast.Module:
    """Parse a source and hold it against the sizes.

    Raises:
      RewardError: It is not Python, or too large.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source)
    except SyntaxError as error:
        raise RewardError(f"line {error.lineno}: not valid Python ({error.msg})") from error
    except (ValueError, MemoryError, RecursionError, OverflowError) as error:
        raise RewardError("the source nests too deeply to be read; nest less") from error
    count = 0
    level: list[ast.AST] = [tree]
    for _ in range(limits.depth + 1):
        count += len(level)
        if count > limits.nodes:
            raise RewardError(
                f"the reward has more than {limits.nodes} syntax nodes; write a shorter one"
            )
        level = [child for node in level for child in ast.iter_child_nodes(node)]
        if not level:
            return tree
    raise RewardError(
        f"the reward nests more than {limits.depth} levels; split it by local variables"
    )


def only_function(tree: ast.Module, name: str) -> ast.FunctionDef:
    """The one function of a module.

    Raises:
      RewardError: There is anything else, or its parameters are not plain ones.
    """
    for statement in tree.body:
        if not isinstance(statement, ast.FunctionDef):
            raise refused(statement)
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    if [f.name for f in functions] != [name]:
        found = ", ".join(f.name for f in functions) or "none"
        raise RewardError(f"expected exactly one function, {name}(...), found {found}")
    function = functions[0]
    arguments = function.args
    extra = (arguments.vararg, arguments.kwarg, *arguments.kwonlyargs, *arguments.posonlyargs)
    if any(extra) or arguments.defaults or function.decorator_list or function.returns:
        raise RewardError(
            f"line {function.lineno}: {name} takes plain parameters only; leave out defaults, "
            "decorators, annotations, * and /"
        )
    if any(a.annotation for a in arguments.args):
        raise RewardError(f"line {function.lineno}: leave out the annotations of parameters")
    return function


def refused(node: ast.AST, problem: str | None = None) -> RewardError:
    """The error for a part of the source; without a problem, for its kind of syntax."""
    line = getattr(node, "lineno", 1)
    if problem is None:
        kind = type(node).__name__
        problem = f"{kind} is refused; {ADVICE.get(type(node), SCOPE)}"
        if type(node) in ADVICE:
            problem += f" ({SCOPE})"
    return RewardError(f"line {line}: {problem}")
