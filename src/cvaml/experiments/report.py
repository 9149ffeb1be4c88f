"""`cvaml report`: one page, figures and tables from any number of run folders."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from cvaml.types import UserError


@dataclass(frozen=True)
class Config:
    """Build a self-contained HTML page and printed figures from run folders."""

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional] = ()
    """Run folders, folders of run folders, or Parquet files of metrics."""
    out: Path = Path("report")
    """Folder for index.html and figures/."""
    demo: bool = False
    """Show the results that come with the package; other runs may be added."""
    claims: Path | None = None
    """Markdown file with the claims' tables; by default the one that comes with the package."""
    seed: int = 0
    """Seed of the bootstrap intervals."""


def main(config: Config) -> int:
    """Builds the report and prints a short table and where the page is."""
    import numpy as np

    from cvaml.reports.build import brief_table, build_report
    from cvaml.reports.claims import read_claims
    from cvaml.reports.demo import demo_folder
    from cvaml.reports.reading import read_runs

    if not config.runs and not config.demo:
        raise UserError("give at least one run folder, or --demo for the results shipped with it")
    if config.seed < 0:
        raise UserError(f"--seed must be at least 0, got {config.seed}")
    _check_out(config)
    paths = [*config.runs, *([demo_folder()] if config.demo else [])]
    report = build_report(
        read_runs(paths), config.out, np.random.default_rng(config.seed), read_claims(config.claims)
    )
    for section in report.sections:
        table = brief_table(section)
        if table and section.key != "claims":
            print(f"{section.title}\n{table}\n")
    print(f"{report.page}: {len(report.figures)} figures in {report.page.parent / 'figures'}")
    return 0


def _check_out(config: Config) -> None:
    """The report never lands in a run folder or over a file."""
    if config.out.exists() and not config.out.is_dir():
        raise UserError(f"--out {config.out} is a file; choose a folder")
    if (config.out / "config.json").exists():
        raise UserError(f"--out {config.out} is a run folder; choose another folder")
