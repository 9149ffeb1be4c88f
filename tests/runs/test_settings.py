import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest

from cvaml.runs.settings import from_json, to_json
from cvaml.types import UserError


@dataclass(frozen=True)
class Inner:
    horizon: int = 1
    scale: float = 0.5


@dataclass(frozen=True)
class Outer:
    name: str = "a"
    rate: float = 3e-4
    on: bool = True
    kind: Literal["x", "y"] = "x"
    sizes: tuple[int, ...] = (1, 2)
    limit: float | None = None
    where: Path = Path("p")
    planner: Inner = field(default_factory=Inner)
    critic: Inner = field(default_factory=Inner)


def test_round_trip_is_exact():
    config = Outer(rate=0.1 + 0.2, sizes=(), limit=1e-300, planner=Inner(3, 1 / 3))
    assert from_json(Outer, json.loads(json.dumps(to_json(config)))) == config


def test_unknown_key_names_the_nearest():
    data = to_json(Outer()) | {"rat": 1.0}
    with pytest.raises(UserError, match=r"unknown key 'rat' in configuration; did you mean 'rate'"):
        from_json(Outer, data)


def test_unknown_nested_key_says_where():
    data = to_json(Outer())
    data["planner"]["horzon"] = 2
    with pytest.raises(UserError, match=r"'horzon' in configuration, key 'planner'.*'horizon'"):
        from_json(Outer, data)


def test_missing_key_names_itself_and_the_nearest():
    data = to_json(Outer())
    data["ratio"] = data.pop("rate")
    with pytest.raises(UserError, match=r"'ratio'.*'rate'"):
        from_json(Outer, data)
    del data["ratio"]
    with pytest.raises(UserError, match="missing key 'rate'"):
        from_json(Outer, data)


@pytest.mark.parametrize(
    ("key", "value"),
    [("rate", "fast"), ("on", 1), ("kind", "z"), ("sizes", 3), ("planner", 1), ("name", None)],
)
def test_wrong_type_is_refused(key, value):
    with pytest.raises(UserError, match=key):
        from_json(Outer, to_json(Outer()) | {key: value})
