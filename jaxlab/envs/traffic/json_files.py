"""Reading CityFlow's JSON files with errors that name the file and the place.

CityFlow's parser does not round decimal numbers correctly: it collects digits in an
integer up to 2^53 - 1, goes on in a double up to 17 significant digits, and applies
one multiplication or division by a power of ten. In dense grids the last bit decides
trajectories, so numbers are read here by the same rule.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jaxlab.core.errors import DataError

_LARGEST_EXACT = 2**53 - 1
#: The largest power of ten that is a double.
_LARGEST_POWER = 308


def parse_decimal(text: str) -> float:
    """Read a JSON number as CityFlow's parser does (nearest double within one ulp or so)."""
    mantissa, _, exponent = text.lower().partition("e")
    sign = -1.0 if mantissa.startswith("-") else 1.0
    whole, _, fraction = mantissa.lstrip("-").partition(".")
    if len(whole) > 15:
        return float(text)  # beyond the exact integers both parsers agree to rounding
    integer, power, digits = int(whole), 0, len(whole.lstrip("0"))
    digits = max(digits - 1, 0)  # the first digit is not counted as significant
    position = 0
    while position < len(fraction) and integer <= _LARGEST_EXACT:
        integer = integer * 10 + int(fraction[position])
        power -= 1
        digits += integer != 0
        position += 1
    value = float(integer)
    while position < len(fraction) and digits < 17:
        value = value * 10.0 + int(fraction[position])
        power -= 1
        digits += value > 0.0
        position += 1
    power += int(exponent) if exponent else 0
    if power > _LARGEST_POWER:
        return float(text)
    if power < -_LARGEST_POWER:
        rest = -power - _LARGEST_POWER
        return sign * value / 10.0**_LARGEST_POWER / 10.0**rest if rest < _LARGEST_POWER else 0.0
    return sign * (value * 10.0**power if power >= 0 else value / 10.0**-power)


def read_json(path: str | Path) -> Any:
    """Read a JSON file. Raises DataError when it is missing, unreadable or malformed."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise DataError(f"{path}: no such file; check the path") from None
    except (OSError, ValueError) as error:  # not UTF-8, or no possible name
        raise DataError(f"{path}: cannot be read ({error})") from None
    try:
        return json.loads(text, parse_float=parse_decimal)
    except json.JSONDecodeError as error:
        raise DataError(
            f"{path}: not valid JSON at line {error.lineno}, column {error.colno}: {error.msg}"
        ) from None
    except ValueError as error:  # digits without end
        raise DataError(f"{path}: holds a number that cannot be read ({error})") from None
    except RecursionError:
        raise DataError(f"{path}: JSON nested too deeply to be a road network or flow") from None


def member(record: Any, name: str, kind: type | tuple[type, ...], where: str) -> Any:
    """Field `name` of a JSON object, checked for its type; DataError names `where`."""
    if not isinstance(record, Mapping):
        raise DataError(f"{where}: expected an object, found {type(record).__name__}")
    if name not in record:
        raise DataError(f"{where}: field '{name}' is missing")
    value = record[name]
    if (isinstance(value, bool) and kind is not bool) or not isinstance(value, kind):
        expected = " or ".join(k.__name__ for k in (kind if isinstance(kind, tuple) else (kind,)))
        raise DataError(
            f"{where}: field '{name}' should be {expected}, found {type(value).__name__}"
        )
    return value


def number(record: Any, name: str, where: str, *, at_least: float | None = None) -> float:
    """A finite numeric field, optionally bounded below."""
    # Flows hold ten numbers per vehicle: most need no second look.
    value = record.get(name) if type(record) is dict else None
    if type(value) is not float and type(value) is not int:
        value = member(record, name, (int, float), where)
    value = float(value) if abs(value) < sys.float_info.max else math.inf
    if not math.isfinite(value):
        raise DataError(f"{where}: field '{name}' is not finite")
    if at_least is not None and value < at_least:
        raise DataError(f"{where}: field '{name}' is {value:g}; it must be at least {at_least:g}")
    return value
