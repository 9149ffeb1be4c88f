"""The studies' figures in the paper's layout, drawn by the modules of the studies."""

from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from cvaml.reports.reading import Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def paper_figure(run: Run) -> "Figure | None":
    """The figure of a Garnet, cliffwalk or calibration run, where its files suffice.

    Args:
        run: a run folder of any study.

    Returns:
        The figure, or None for other studies and for summaries without the metrics it shows.
    """
    if run.summary is None:
        return None
    metrics = set(run.summary["metric"]) if "metric" in run.summary else set()
    if run.study == "garnet" and "nmse" in metrics:
        from cvaml.reports.garnet_figure import draw_figure

        return draw_figure(run.summary)
    if run.study == "cliffwalk" and {"return", "optimal_return"} <= metrics:
        from cvaml.reports.cliffwalk import draw_grid

        return draw_grid(run.summary)
    results = run.path / "results.parquet"
    if run.study == "calibration" and "excess" in metrics and results.is_file():
        from cvaml.reports.calibration_figure import calibration_figure

        return calibration_figure(pd.read_parquet(results), run.summary)
    return None


def save_paper_figure(run: Run, key: str, folder: Path) -> list[Path]:
    """Saves it as `<key>.png` and `<key>.pdf`; no paths if there is none."""
    figure = paper_figure(run)
    if figure is None:
        return []
    paths = [folder / f"{key}.{ending}" for ending in ("png", "pdf")]
    figure.savefig(paths[0], dpi=160)
    figure.savefig(paths[1], metadata={"CreationDate": None})
    return paths
