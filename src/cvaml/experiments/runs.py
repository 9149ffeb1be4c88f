"""`cvaml runs`: what run folders hold, as a table, JSON or CSV."""

import dataclasses
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from cvaml.runs.listing import RunSummary, find_runs
from cvaml.types import UserError

_COLUMNS = ("variant", "model", "task", "seed")


@dataclasses.dataclass(frozen=True)
class Config:
    """List, show or export runs. Nothing in a run folder is ever executed."""

    action: Annotated[Literal["list", "show", "export", "pack"], tyro.conf.Positional]
    """list: one line per run below the folder; show: one run's configuration and last numbers;
    export: all metrics of the runs below the folder; pack: curves and configuration of every run
    as two small files that `cvaml report` reads, to keep or to share."""
    folder: Annotated[Path, tyro.conf.Positional] = Path("runs")
    """A run folder, or a folder that holds some."""
    format: Literal["table", "json", "csv"] = "table"
    """How to write it."""
    out: Path | None = None
    """File to write to instead of standard output; for pack, the folder of the packed runs."""


def main(config: Config) -> int:
    """Runs the command."""
    if not config.folder.is_dir():
        raise UserError(f"{config.folder} is not a folder")
    if config.action == "pack":
        return _pack(config.folder, config.out)
    action = {"list": _list, "show": _show, "export": _export}[config.action]
    text = action(config.folder, config.format)
    if config.out is None:
        sys.stdout.write(text)
    else:
        try:
            config.out.parent.mkdir(parents=True, exist_ok=True)
            config.out.write_text(text)
        except OSError as error:
            raise UserError(f"cannot write {config.out}: {error.strerror}") from None
        print(f"wrote {config.out}")
    return 0


def _list(folder: Path, format: str) -> str:
    rows = [_row(run) for run in find_runs(folder)]
    if format == "json":
        return json.dumps(rows, indent=1) + "\n"
    header = list(rows[0]) if rows else ["run", "study", "state", "step"]
    cells = [["" if row[name] is None else str(row[name]) for name in header] for row in rows]
    return _csv(header, cells) if format == "csv" else _table(header, cells)


def _row(run: RunSummary) -> dict[str, Any]:
    known = {name: _brief(run.settings.get(name)) for name in _COLUMNS}
    return {"run": run.path, "study": run.study, "state": run.state, "step": run.step} | known


def _brief(value: object) -> object:
    return " ".join(map(str, value)) if isinstance(value, list) else value


def _show(folder: Path, format: str) -> str:
    run = _only(folder)
    last = _last_values(folder)
    if format == "json":
        return json.dumps(dataclasses.asdict(run) | {"metrics": last}, indent=1) + "\n"
    cells = [[*map(str, key), f"{value:.6g}"] for *key, value in (row.values() for row in last)]
    header = ["task", "seed", "agent_step", "metric", "value"]
    if format == "csv":
        return _csv(header, cells)
    lines = [f"{folder}: {run.study}, {run.state}, step {run.step}"]
    lines += [f"  {key} = {value}" for key, value in _flat(run.settings)]
    return "\n".join(lines) + "\n" + (_table(header, cells) if cells else "no metrics\n")


def _last_values(folder: Path) -> list[dict[str, Any]]:
    """The newest number of every metric of every member."""
    from cvaml.runs.metrics import read_metrics

    table = read_metrics(folder)
    if table.empty:
        return []
    last = table.groupby(["task", "seed", "metric"], sort=True, as_index=False).last()
    rows = last[["task", "seed", "agent_step", "metric", "value"]].to_dict("records")
    return [{str(key): value for key, value in row.items()} for row in rows]


def _export(folder: Path, format: str) -> str:
    import pandas as pd

    from cvaml.runs.metrics import COLUMNS, read_metrics

    tables = []
    for run in find_runs(folder):
        table = read_metrics(folder / run.path)
        table.insert(0, "run", run.path if run.path != "." else folder.name)
        tables.append(table)
    filled = [table for table in tables if len(table)]
    whole = pd.concat(filled) if filled else pd.DataFrame(columns=["run", *COLUMNS])
    if not tables:
        raise UserError(f"{folder} holds no run")
    if format == "json":
        return str(whole.to_json(orient="records", lines=True, double_precision=15))
    return str(
        whole.to_csv(index=False) if format == "csv" else whole.to_string(index=False) + "\n"
    )


def _pack(folder: Path, out: Path | None) -> int:
    """Writes NAME.parquet and NAME.json for every run that has metrics."""
    from cvaml.runs.folder import RunFolder
    from cvaml.runs.metrics import read_metrics

    if out is None:
        raise UserError("pack needs --out, the folder where the packed runs go")
    found = 0
    for run in find_runs(folder):
        table = read_metrics(folder / run.path)
        if table.empty:
            continue
        # Below the same folders as the run: two runs never share a file.
        name = folder.resolve().name if run.path == "." else run.path
        configuration = RunFolder(folder / run.path).read_json("config.json")
        try:
            RunFolder(out).write_table(f"{name}.parquet", table)
            RunFolder(out).write_json(f"{name}.json", configuration)
        except OSError as error:
            raise UserError(f"cannot write to {out}: {error.strerror}") from None
        size = (out / f"{name}.parquet").stat().st_size
        print(f"{out / name}.parquet, .json: {len(table)} rows, {size / 1e3:.0f} kB")
        found += 1
    if not found:
        raise UserError(f"{folder} holds no run with metrics")
    return 0


def _only(folder: Path) -> RunSummary:
    runs = [run for run in find_runs(folder) if run.path == "."]
    if not runs:
        raise UserError(f"{folder} is not a run folder: it has no config.json")
    if runs[0].state == "broken":
        raise UserError(f"cannot read {folder / 'config.json'}")
    return runs[0]


def _flat(settings: dict[str, Any], prefix: str = "") -> Sequence[tuple[str, Any]]:
    pairs: list[tuple[str, Any]] = []
    for key, value in settings.items():
        nested = isinstance(value, dict)
        pairs += _flat(value, f"{prefix}{key}.") if nested else [(prefix + key, value)]
    return pairs


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    lines = [
        "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip()
        for row in [header, *rows]
    ]
    return "\n".join(lines) + "\n"


def _csv(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    import csv
    import io

    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([header, *rows])
    return text.getvalue()
