"""Configurations as JSON and back; every wrong key is named."""

import dataclasses
import difflib
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

from cvaml.types import UserError

Config = TypeVar("Config")


def to_json(value: Any) -> Any:
    """A configuration as JSON values: dataclasses become objects, tuples lists, paths text."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_json(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_json(item) for item in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return str(value)


def from_json(kind: type[Config], data: Mapping[str, Any], where: str = "configuration") -> Config:
    """The configuration that `to_json` wrote.

    Args:
        kind: a dataclass whose fields are plain values, tuples of them, or such dataclasses.
        data: the stored JSON object.
        where: what the errors call it.

    Raises:
        UserError: a key is unknown or missing, or a value has another type than its field.
    """
    hints = typing.get_type_hints(kind)
    names = [f.name for f in dataclasses.fields(kind)]  # type: ignore[arg-type]
    check_keys(data, names, where)
    return kind(**{n: _decode(hints[n], data[n], f"{where}, key {n!r}") for n in names})


def check_keys(data: Mapping[str, Any], names: Sequence[str], where: str) -> None:
    """Raises UserError unless the stored object has exactly these keys, naming the nearest."""
    for key in data:
        if key not in names:
            raise UserError(f"unknown key {key!r} in {where}; {_allowed(key, names)}")
    for name in names:
        if name not in data:
            near = difflib.get_close_matches(name, data, n=1)
            hint = f"; the nearest there is {near[0]!r}" if near else ""
            raise UserError(f"missing key {name!r} in {where}{hint}")


def _decode(hint: Any, value: Any, where: str) -> Any:
    """A JSON value as the type of its field."""
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        if not isinstance(value, Mapping):
            raise UserError(f"{where}: expected an object, got {value!r}")
        return from_json(hint, value, where)
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return _first_that_fits(arguments, value, where)
    if origin is Literal:
        if value not in arguments:
            raise UserError(f"{where}: {value!r} is not one of {', '.join(map(repr, arguments))}")
        return value
    if origin is tuple and isinstance(value, (list, tuple)):
        kinds = arguments[:1] * len(value) if arguments[-1] is Ellipsis else arguments
        if len(kinds) != len(value):
            raise UserError(f"{where}: expected {len(kinds)} values, got {len(value)}")
        return tuple(_decode(kind, item, where) for kind, item in zip(kinds, value, strict=True))
    if hint in (None, type(None)) and value is None:
        return None
    if hint is float and isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    if hint is int and isinstance(value, int) and not isinstance(value, bool):
        return value
    if hint in (bool, str) and isinstance(value, hint):
        return value
    if hint is Path and isinstance(value, str):
        return Path(value)
    raise UserError(f"{where}: {value!r} is not of type {getattr(hint, '__name__', hint)}")


def _first_that_fits(kinds: Sequence[Any], value: Any, where: str) -> Any:
    for kind in kinds:
        try:
            return _decode(kind, value, where)
        except UserError:
            continue
    names = " or ".join(getattr(kind, "__name__", str(kind)) for kind in kinds)
    raise UserError(f"{where}: {value!r} is not {names}")


def _allowed(key: str, names: Sequence[str]) -> str:
    near = difflib.get_close_matches(key, names, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return f"{hint}allowed are {', '.join(names)}"
