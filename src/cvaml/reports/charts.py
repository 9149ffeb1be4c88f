"""What a report shows, described once: the page and the printed figures both draw from it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Cell = str | float | int | None | tuple[float, float, float]
"""A table's cell: text, a number, nothing, or a number with the ends of its interval."""


Numbers = Sequence[float | int]


@dataclass(frozen=True)
class Series:
    """One curve, or one bar where x has a single entry."""

    name: str
    """What the legend calls it; the same name has the same colour everywhere."""
    x: Numbers
    """Positions, [n]."""
    y: Numbers
    """Heights, [n]; NaN leaves a gap."""
    low: Numbers | None = None
    """Lower ends of the interval, [n]."""
    high: Numbers | None = None
    """Upper ends of the interval, [n]."""
    note: str = ""
    """A word beside the name in the readout, such as the number of runs."""
    role: Literal["main", "run", "published"] = "main"
    """`run` is one run behind its mean, `published` a curve from elsewhere behind ours."""


@dataclass(frozen=True)
class Panel:
    """One pair of axes."""

    title: str
    series: Sequence[Series]


@dataclass(frozen=True)
class View:
    """Panels with the same axes; a chart with several views lets the reader choose."""

    label: str
    panels: Sequence[Panel]
    x_label: str = ""
    y_label: str = ""
    x_log: bool = False
    y_log: bool = False
    shared_y: bool = True
    """Whether the panels have one scale of y."""


@dataclass(frozen=True)
class Chart:
    """A figure: its views, what it shows, and how to read it."""

    key: str
    """The file name of the printed figure and the anchor on the page."""
    title: str
    caption: str
    views: Sequence[View]
    kind: Literal["lines", "bars"] = "lines"

    def to_json(self) -> dict[str, Any]:
        """The chart as JSON values, numbers at plotting precision."""
        return {
            "item": "chart",
            "key": self.key,
            "title": self.title,
            "caption": self.caption,
            "kind": self.kind,
            "views": [_view_json(view) for view in self.views],
        }


@dataclass(frozen=True)
class Table:
    """A table whose columns the reader can sort."""

    key: str
    title: str
    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]

    def to_json(self) -> dict[str, Any]:
        """The table as JSON values."""
        return {
            "item": "table",
            "key": self.key,
            "title": self.title,
            "caption": self.caption,
            "columns": list(self.columns),
            "rows": [[_cell_json(cell) for cell in row] for row in self.rows],
        }


@dataclass(frozen=True)
class Settings:
    """A configuration, shown as it was stored."""

    key: str
    title: str
    caption: str
    values: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        """The configuration as JSON values."""
        return {
            "item": "settings",
            "key": self.key,
            "title": self.title,
            "caption": self.caption,
            "values": plain_json(self.values),
        }


Item = Chart | Table | Settings


@dataclass(frozen=True)
class Section:
    """A heading with what belongs under it."""

    key: str
    title: str
    lead: str = ""
    items: Sequence[Item] = field(default_factory=tuple)

    def to_json(self) -> dict[str, Any]:
        """The section as JSON values."""
        return {
            "key": self.key,
            "title": self.title,
            "lead": self.lead,
            "items": [item.to_json() for item in self.items],
        }


def plain_json(value: Any) -> Any:
    """JSON values without NaN and infinities, which strict JSON does not have."""
    if isinstance(value, Mapping):
        return {str(key): plain_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain_json(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def _view_json(view: View) -> dict[str, Any]:
    return {
        "label": view.label,
        "xLabel": view.x_label,
        "yLabel": view.y_label,
        "xLog": view.x_log,
        "yLog": view.y_log,
        "sharedY": view.shared_y,
        "panels": [
            {"title": panel.title, "series": [_series_json(series) for series in panel.series]}
            for panel in view.panels
        ],
    }


def _series_json(series: Series) -> dict[str, Any]:
    found: dict[str, Any] = {
        "name": series.name,
        "x": _numbers(series.x, 8),
        "y": _numbers(series.y),
    }
    if series.low is not None and series.high is not None:
        found |= {"low": _numbers(series.low), "high": _numbers(series.high)}
    if series.note:
        found["note"] = series.note
    if series.role != "main":
        found["role"] = series.role
    return found


def _numbers(values: Numbers, digits: int = 5) -> list[float | int | None]:
    """Five digits are more than a screen shows; gaps are null."""
    return [_number(value, digits) for value in values]


def _number(value: float | int, digits: int = 5) -> float | int | None:
    if not math.isfinite(value):
        return None
    rounded = float(f"{value:.{digits}g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 1e15 else rounded


def _cell_json(cell: Cell) -> Any:
    if isinstance(cell, tuple):
        return _numbers(cell)
    return _number(cell) if isinstance(cell, float) else cell
