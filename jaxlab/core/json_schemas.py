"""Holding JSON values against schemas, with messages that name the place."""

from __future__ import annotations

import math
from typing import Any

import jsonschema

Json = dict[str, Any]


def json_problems(schema: Json, document: Any) -> list[str]:
    """What is wrong with a JSON value, the most telling problem first; empty if nothing.

    Args:
      schema: JSON schema, draft 2020-12.

    Returns:
      Lines `place: what was expected`.
    """
    errors = jsonschema.Draft202012Validator(schema).iter_errors(document)
    found = sorted(errors, key=jsonschema.exceptions.relevance, reverse=True)
    problems = [_described(error) for error in found]
    # NaN and infinities pass comparisons of the schema or are not JSON at all.
    if not problems and (place := _not_finite(document, "")):
        problems.append(f"{place.removeprefix('.')}: expected a finite number")
    return problems


def _described(error: Any) -> str:
    error = _within_chosen_option(jsonschema.exceptions.best_match(iter([error])))
    place = error.json_path.removeprefix("$").removeprefix(".") or "at the top"
    return f"{place}: {error.message[:300]}"


def _within_chosen_option(error: Any) -> Any:
    """What is wrong inside the option that the value's constants choose, where they do."""
    if error.validator != "oneOf":
        return error
    options: dict[int, list[Any]] = {}
    for inner in error.context:
        options.setdefault(inner.schema_path[0], []).append(inner)
    chosen = [errors for errors in options.values() if all(e.validator != "const" for e in errors)]
    return min(chosen[0], key=lambda e: len(e.path)) if len(chosen) == 1 else error


def _not_finite(value: Any, place: str) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return place or "at the top"
    if isinstance(value, dict):
        items = [(f"{place}.{key}", item) for key, item in value.items()]
    elif isinstance(value, list):
        items = [(f"{place}[{n}]", item) for n, item in enumerate(value)]
    else:
        return ""
    return next((found for name, item in items if (found := _not_finite(item, name))), "")
