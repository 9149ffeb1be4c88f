"""From run folders to a report folder: the page, its figures, the tables as CSV."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cvaml.reports.charts import Chart, Section, Settings, Table
from cvaml.reports.claims import claims_section
from cvaml.reports.control import control_section
from cvaml.reports.page import render_page
from cvaml.reports.paper import save_paper_figure
from cvaml.reports.printed import looks_of, save_chart
from cvaml.reports.reading import Run
from cvaml.reports.sketch import loss_sketch
from cvaml.reports.summaries import study_section
from cvaml.reports.theory import is_theory, theory_section
from cvaml.runs.folder import RunFolder
from cvaml.runs.progress import Progress
from cvaml.types import UserError


@dataclass(frozen=True)
class Report:
    """What was built."""

    page: Path
    """The HTML file."""
    figures: Sequence[Path]
    """The printed figures."""
    sections: Sequence[Section]
    """What the page shows."""


def build_report(
    runs: Sequence[Run],
    out: Path,
    generator: np.random.Generator,
    claims: str = "",
    title: str = "Calibrated value-aware model learning",
) -> Report:
    """Writes `index.html` and `figures/` into a folder; files of an earlier report are replaced.

    Args:
        runs: what to show.
        out: the folder; created if it is not there.
        generator: source of the bootstrap; the call advances it.
        claims: Markdown text with the claims' tables, or nothing.
        title: the page's heading.

    Raises:
        UserError: there is nothing to show, or the folder cannot be written.
    """
    sections = report_sections(runs, generator, claims)
    charts = [item for section in sections for item in section.items if isinstance(item, Chart)]
    looks = looks_of(charts)
    figures = out / "figures"
    try:
        figures.mkdir(parents=True, exist_ok=True)
        saved, drawn = _save_figures(charts, _studies(runs), looks, figures)
        sketch = figures / "loss-sketch.svg"
        sketch.write_text(loss_sketch())
        page = render_page(
            title,
            "Results of value-aware model losses, calibrated and not, with 95 % intervals. Hover "
            "or use the arrow keys to read a chart, click a name to hide it, a heading to sort.",
            _facts(runs, charts),
            sections,
            looks,
            _links(saved),
            _links(drawn),
            "Built by cvaml report. This file needs no network.",
        )
        RunFolder(out).write("index.html", lambda path: path.write_text(page, encoding="utf-8"))
    except OSError as error:
        raise UserError(f"cannot write the report into {out}: {error.strerror}") from None
    paths = [sketch, *(path for both in (*drawn.values(), *saved.values()) for path in both)]
    return Report(out / "index.html", paths, sections)


def _save_figures(
    charts: Sequence[Chart],
    studies: Mapping[str, Run],
    looks: Mapping[str, tuple[int, int]],
    folder: Path,
) -> tuple[dict[str, list[Path]], dict[str, list[Path]]]:
    """Prints every chart, and every study in the paper's layout; the paths by their keys."""
    saved, drawn = {}, {}
    with Progress(len(charts) + len(studies), "report", "figures") as progress:
        for chart in charts:
            saved[chart.key] = save_chart(chart, looks, folder)
            progress.advance(1, chart.key)
        for key, run in studies.items():
            drawn[key] = save_paper_figure(run, key, folder)
            progress.advance(1, key)
    return saved, drawn


def report_sections(
    runs: Sequence[Run], generator: np.random.Generator, claims: str = ""
) -> list[Section]:
    """The sections of a report: agents, tabular studies, claims, configurations."""
    sections = [control_section(runs, generator)]
    studies = _studies(runs)
    for key, run in studies.items():
        assert run.summary is not None
        same = sum(other.study == run.study for other in studies.values()) > 1
        if is_theory(run.summary):
            section = theory_section(run.summary, run.checks, key)
        else:
            section = study_section(run, key)
        title = f"{section.title}: {run.path.name}" if same else section.title
        sections.append(Section(section.key, title, section.lead, section.items))
    found = [section for section in sections if section is not None]
    if not found:
        named = ", ".join(str(run.path) for run in runs) or "no folder was given"
        raise UserError(f"there is nothing to show yet: {named}")
    claimed = claims_section(claims)
    return [*found, *([claimed] if claimed is not None else []), _configurations(runs)]


def _studies(runs: Sequence[Run]) -> dict[str, Run]:
    """The runs with a summary by the key of their section, Garnet before cliffwalk and others."""
    found = [run for run in runs if run.summary is not None]
    order = {"garnet": 0, "cliffwalk": 1, "calibration": 2}
    found.sort(key=lambda run: order.get(run.study, 3))
    return {f"{slug(run.study)}-{i + 1}": run for i, run in enumerate(found)}


def _links(files: Mapping[str, Sequence[Path]]) -> dict[str, list[str]]:
    """The files of every key as addresses relative to the page."""
    return {key: [f"figures/{path.name}" for path in paths] for key, paths in files.items()}


def slug(text: str) -> str:
    """Text as a file name and an anchor: letters, digits and hyphens only."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:40] or "study"


def _configurations(runs: Sequence[Run]) -> Section:
    items = [
        Settings(f"config-{i + 1}", str(run.path), run.study, run.config)
        for i, run in enumerate(runs)
    ]
    lead = "The stored configuration of every run: settings, package versions and commit."
    return Section("configurations", "Configurations", lead, items)


def _facts(runs: Sequence[Run], charts: Sequence[Chart]) -> dict[str, str | int]:
    facts: dict[str, str | int] = {"run folders": len(runs)}
    tables = [run.metrics for run in runs if run.metrics is not None]
    if tables:
        facts["agent runs"] = sum(
            len(table[["variant", "model", "task", "seed"]].drop_duplicates()) for table in tables
        )
        facts["tasks"] = len({task for table in tables for task in table["task"].unique()})
    problems = [
        int(run.summary["problems"].max())
        for run in runs
        if run.summary is not None and "problems" in run.summary and len(run.summary)
    ]
    if problems:
        facts["problems a cell"] = max(problems)
    return facts | {"charts": len(charts)}


def brief_table(section: Section, most: int = 12) -> str:
    """The first table of a section as text for a terminal, without columns that never vary."""
    table = next((item for item in section.items if isinstance(item, Table)), None)
    if table is None or len(table.rows) < 2:
        return ""
    varying = [i for i in range(len(table.columns)) if len({row[i] for row in table.rows}) > 1]
    telling = [i for i in varying if table.columns[i] in ("mean", "verdict")]
    names = [i for i in varying if i not in telling]
    keep = sorted([*telling, *names[: 6 - len(telling)]])
    shown = [[_text(row[i]) for i in keep] for row in table.rows[:most]]
    grid = [[str(table.columns[i]) for i in keep], *shown]
    widths = [max(len(row[i]) for row in grid) for i in range(len(grid[0]))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        for row in grid
    ]
    if len(table.rows) > most:
        lines.append(f"... and {len(table.rows) - most} more rows")
    return "\n".join(line.rstrip() for line in lines)


def _text(cell: object) -> str:
    if isinstance(cell, tuple):
        return f"{cell[0]:.3g} [{cell[1]:.3g}, {cell[2]:.3g}]"
    if isinstance(cell, float):
        return f"{cell:.4g}"
    text = "-" if cell is None else str(cell)
    # Names come from run folders: a control character must not reach the terminal.
    return "".join(c if c.isprintable() else "?" for c in text)[:40]
