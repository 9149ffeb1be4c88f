"""Configurations as text: `--set key=value`, and what a run folder keeps."""

import dataclasses
import difflib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal, get_args, get_origin

from cvaml.agent.config import (
    AgentConfig,
    LossConfig,
    NetworkConfig,
    OptimConfig,
    PlannerConfig,
    check,
    check_choice,
    setting_types,
)
from cvaml.losses import fit_variant, variant
from cvaml.types import UserError


def override(config: AgentConfig, settings: Mapping[str, str]) -> AgentConfig:
    """Applies `key=value` settings given as text.

    Args:
        config: where to start.
        settings: dotted field names to texts, for instance `{"planner.horizon": "2"}`.

    Returns:
        The changed configuration, validated.

    Raises:
        UserError: an unknown key, with the nearest known one, or a value that does not fit.
    """
    known = dict(setting_types(config))
    changes: dict[str, Any] = {}
    for key, text in settings.items():
        if key not in known:
            near = _nearest(key, list(known))
            hint = f"; did you mean {near!r}?" if near else ""
            raise UserError(f"unknown setting {key!r}{hint} (allowed are {', '.join(known)})")
        if key == "variant":
            model = settings.get("model", config.model)
            changes[key] = fit_variant(text, "agent", deterministic=model == "deterministic")
        else:
            changes[key] = _parse(key, text, known[key])
    return _replaced(config, changes)


def describe(config: AgentConfig) -> dict[str, Any]:
    """The configuration as JSON values; the variant as its name, with k."""
    found = {name: getattr(config, name) for name in (f.name for f in dataclasses.fields(config))}
    described = {
        name: dataclasses.asdict(value)
        if dataclasses.is_dataclass(value) and not isinstance(value, type)
        else value
        for name, value in found.items()
        if name != "variant"
    }
    return {"variant": config.variant.name, "k": config.variant.k, **described}


def from_description(described: Mapping[str, Any]) -> AgentConfig:
    """The configuration `describe` wrote down; a custom variant must be put back by hand."""
    parts: dict[str, type] = {
        "network": NetworkConfig,
        "planner": PlannerConfig,
        "optim": OptimConfig,
        "loss": LossConfig,
    }
    values = {
        name: parts[name](**value) if name in parts else value
        for name, value in described.items()
        if name not in ("variant", "k")
    }
    baseline = described["variant"] in ("aux-only", "td3")
    found = variant(described["variant"], None if baseline else described["k"])
    return AgentConfig(variant=found, **values)


def _nearest(key: str, known: list[str]) -> str | None:
    """The known name whose whole, or whose part after the dot, is most like the key."""

    def likeness(name: str) -> float:
        pairs = ((key, name), (key.rpartition(".")[2], name.rpartition(".")[2]))
        return max(difflib.SequenceMatcher(None, *pair).ratio() for pair in pairs)

    best = max(known, key=likeness)
    return best if likeness(best) >= 0.75 else None


def _parse(key: str, text: str, kind: Any) -> object:
    """The text as a value of the field's type."""
    if get_origin(kind) is Literal:
        check_choice(key, text, get_args(kind))
        return text
    words = {"true": True, "1": True, "on": True, "false": False, "0": False, "off": False}
    if kind is bool:
        check(key, text, text.lower() in words, "true or false")
        return words[text.lower()]
    try:
        return kind(text)
    except ValueError:
        wanted = {int: "an integer", float: "a number"}.get(kind, str(kind))
        raise UserError(f"{key} must be {wanted}, got {text!r}") from None


def _replaced(config: AgentConfig, changes: Mapping[str, Any]) -> AgentConfig:
    """All changes at once, so that no intermediate configuration is validated."""
    top: dict[str, Any] = {key: value for key, value in changes.items() if "." not in key}
    parts: dict[str, dict[str, Any]] = {}
    for key, value in changes.items():
        if "." in key:
            part, name = key.split(".")
            parts.setdefault(part, {})[name] = value
    top |= {part: replace(getattr(config, part), **values) for part, values in parts.items()}
    return replace(config, **top)
