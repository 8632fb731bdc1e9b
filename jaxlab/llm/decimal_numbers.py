"""Decimal numbers between two bounds as regular expressions.

A range is split where the leading digits of its bounds part, so the expression grows with
the number of digits, not with the number of values.
"""

from __future__ import annotations

from jaxlab.llm.finite_automaton import Bytes, Choice, Node, Repeat, Sequence, literal


def decimals_between(first: int, last: int, decimals: int) -> Node:
    """Texts of the numbers `first` to `last` in units of 10^-decimals, `first <= last`.

    At most `decimals` digits follow the point and at least one; there are no leading zeros
    and no minus before a zero.
    """
    options = []
    if last >= 0:
        options.append(_magnitudes(max(first, 0), last, decimals))
    if first < 0:
        negative = _magnitudes(max(-last, 1), -first, decimals)
        options.append(Sequence((literal("-"), negative)))
    return Choice(tuple(options))


def _magnitudes(low: int, high: int, decimals: int) -> Node:
    """Numbers that are not negative, in units of 10^-decimals."""
    unit = 10**decimals
    (whole_low, part_low), (whole_high, part_high) = divmod(low, unit), divmod(high, unit)
    if whole_low == whole_high:
        return Sequence((literal(str(whole_low)), _fraction(part_low, part_high, decimals)))
    options = [Sequence((literal(str(whole_high)), _fraction(0, part_high, decimals)))]
    if part_low:
        options.append(Sequence((literal(str(whole_low)), _fraction(part_low, unit - 1, decimals))))
        whole_low += 1
    if whole_low < whole_high:
        free = _fraction(0, unit - 1, decimals)
        options.append(Sequence((_integers(whole_low, whole_high - 1), free)))
    return Choice(tuple(options))


def _fraction(low: int, high: int, decimals: int) -> Node:
    """A point and digits, or nothing where that is zero: `low` to `high` of 10^decimals."""
    if decimals == 0:
        return Sequence(())
    digits = Sequence((literal("."), _digits(_padded(low, decimals), _padded(high, decimals))))
    return digits if low else Repeat(digits, 0, 1)


def _padded(value: int, width: int) -> str:
    return str(value).zfill(width)


def _digit(low: int, high: int) -> Node:
    """One digit of a range, which may be empty."""
    return Bytes(sum(1 << (48 + digit) for digit in range(low, high + 1)))


def _digits(low: str, high: str) -> Node:
    """One to len(low) digits that, filled up with zeros, lie between two of equal length."""
    if not low:
        return Sequence(())
    a, b, rest = int(low[0]), int(high[0]), len(low) - 1
    nines, zeros = "9" * rest, "0" * rest
    if a == b:
        return Sequence((_digit(a, a), _rest(low[1:], high[1:])))
    return Choice(
        (
            Sequence((_digit(a, a), _rest(low[1:], nines))),
            Sequence((_digit(a + 1, b - 1), _rest(zeros, nines))),
            Sequence((_digit(b, b), _rest(zeros, high[1:]))),
        )
    )


def _rest(low: str, high: str) -> Node:
    """Further digits, or none where zeros in their place are within the range."""
    if set(low) <= {"0"}:
        if set(high) <= {"9"}:
            return Repeat(_digit(0, 9), 0, len(low))
        return Repeat(_digits(low, high), 0, 1)
    return _digits(low, high)


def _integers(low: int, high: int) -> Node:
    """Integers `0 <= low <= high` without leading zeros."""
    options = []
    for width in range(len(str(low)), len(str(high)) + 1):
        first = max(low, 10 ** (width - 1) if width > 1 else 0)
        last = min(high, 10**width - 1)
        options.append(_same_width(str(first), str(last)))
    return Choice(tuple(options))


def _same_width(low: str, high: str) -> Node:
    if not low:
        return Sequence(())
    if set(low) == {"0"} and set(high) == {"9"}:
        return Repeat(_digit(0, 9), len(low), len(low))
    a, b, rest = int(low[0]), int(high[0]), len(low) - 1
    if a == b:
        return Sequence((_digit(a, a), _same_width(low[1:], high[1:])))
    nines, zeros = "9" * rest, "0" * rest
    options = [Sequence((_digit(a, a), _same_width(low[1:], nines)))]
    if b - a > 1:
        options.append(Sequence((_digit(a + 1, b - 1), _same_width(zeros, nines))))
    options.append(Sequence((_digit(b, b), _same_width(zeros, high[1:]))))
    return Choice(tuple(options))
