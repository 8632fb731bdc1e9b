"""Random reward functions for property tests."""

from hypothesis import strategies as st

from jaxlab.shaping.feature_catalogue import FeatureCatalogue

CATALOGUE = FeatureCatalogue(
    names=("queue", "speed", "pressure", "age"),
    descriptions=("how many wait", "how fast they go", "in less out", "how long it is green"),
    ranges=((0.0, 1.0), (0.0, 1.0), (-1.0, 1.0), (0.0, 1.0)),
    signs=(-1, 1, 0, 0),
)
NUMBERS = st.sampled_from(["0.0", "1.0", "0.5", "2", "0.25", "10.0", "3", "1000", "0.001"])


def expressions(names):
    """Sources of numbers over some names."""
    leaves = st.sampled_from(list(names)) | NUMBERS

    def extend(inner):
        pair, three = st.tuples(inner, inner), st.tuples(inner, inner, inner)
        sign = st.sampled_from(["<", "<=", ">", ">=", "==", "!="])
        test = st.tuples(inner, sign, inner).map(" ".join)
        longer = st.tuples(test, st.sampled_from(["and", "or"]), test).map(" ".join)
        condition = test | longer | longer.map(lambda t: f"not ({t})")
        return (
            st.tuples(inner, st.sampled_from("+-*/"), inner).map(lambda t: f"({' '.join(t)})")
            | pair.map(lambda p: f"min({p[0]}, {p[1]})")
            | three.map(lambda p: f"max({', '.join(p)})")
            | three.map(lambda p: f"mean({', '.join(p)})")
            | pair.map(lambda p: f"sum({', '.join(p)})")
            | three.map(lambda p: f"clip({', '.join(p)})")
            | st.tuples(condition, inner, inner).map(lambda t: f"where({', '.join(t)})")
            | st.tuples(inner, condition, inner).map(lambda t: f"({t[0]} if {t[1]} else {t[2]})")
            | st.tuples(condition, inner).map(lambda t: f"(({t[0]}) * {t[1]})")
            | inner.map(lambda x: f"(-{x})")
            | inner.map(lambda x: f"({x}) ** 2")
            | inner.map(lambda x: f"({x}) ** 0.5")
            | st.tuples(st.sampled_from(["tanh", "exp", "log", "log1p", "sqrt", "abs"]), inner).map(
                lambda t: f"{t[0]}({t[1]})"
            )
        )

    return st.recursive(leaves, extend, max_leaves=6)


@st.composite
def functions(draw):
    """Sources of reward functions, most of them with a local variable."""
    names = draw(st.lists(st.sampled_from(CATALOGUE.names), min_size=1, unique=True))
    lines = []
    if draw(st.booleans()):
        lines.append(f"    part = {draw(expressions(names))}")
    scope = [*names, "part"] if lines else names
    lines.append(f"    return {draw(expressions(scope))}")
    return f"def reward({', '.join(names)}):\n" + "\n".join(lines) + "\n"
