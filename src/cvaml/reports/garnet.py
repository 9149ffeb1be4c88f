"""The Garnet study read back from its run folder: intervals, paired differences, findings."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cvaml.reports.aggregate import bootstrap_means
from cvaml.runs.folder import RunFolder

METRICS = (
    "mse",
    "nmse",
    "onestep_mse",
    "onestep_nmse",
    "model_bias",
    "bellman_gap",
    "model_variance",
    "entropy",
    "steps",
    "unconverged",
)
PAIRED = (
    "rank",
    "temperature",
    "variant",
    "k",
    "against",
    "against_k",
    "log10_difference",
    "low",
    "high",
    "win_rate",
    "problems",
)
FLOOR = 1e-10
"""Normalised errors below this are rounding of float32 and count as equal."""


def summarise(rows: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Means, medians, intervals and paired comparisons of one rank and temperature.

    Args:
        rows: rows of `results.parquet` of one rank and temperature.

    Returns:
        Rows of `summary.csv`, and rows of `paired.csv`: the mean difference of log10 of the
        normalised error between two arms on the same problems, and how often the first wins
        (a tie counts half).
    """
    rank, temperature = int(rows["rank"].iloc[0]), float(rows["temperature"].iloc[0])
    rows = rows.assign(unconverged=1.0 - rows["converged"])
    arms = list(dict.fromkeys(zip(rows["variant"], rows["k"], strict=True)))
    wide = {
        metric: rows.pivot_table(index="problem", columns=["variant", "k"], values=metric)[arms]
        for metric in METRICS
    }
    problems = len(wide["nmse"])
    generator = np.random.default_rng([rank, round(1e6 * temperature)])
    samples = np.concatenate([wide[m].to_numpy(np.float64) for m in METRICS], axis=1)
    logs = np.log10(np.maximum(wide["nmse"].to_numpy(np.float64), FLOOR))
    means = bootstrap_means(np.concatenate([samples, logs], axis=1), generator)
    low, high = np.quantile(means[:, : samples.shape[1]], [0.025, 0.975], axis=0)
    common = {"rank": rank, "temperature": temperature}
    summary = [
        {
            "study": "garnet",
            "variant": variant,
            "k": k,
            **common,
            "iteration": np.nan,
            "metric": metric,
            "mean": samples[:, column].mean(),
            "median": np.median(samples[:, column]),
            "low": low[column],
            "high": high[column],
            "problems": problems,
        }
        for column, (metric, (variant, k)) in enumerate((m, a) for m in METRICS for a in arms)
    ]
    log_means = means[:, samples.shape[1] :]
    paired = []
    for i, (variant, k) in enumerate(arms):
        for j, (against, against_k) in enumerate(arms):
            if i == j:
                continue
            below, above = np.quantile(log_means[:, i] - log_means[:, j], [0.025, 0.975])
            wins = np.mean(logs[:, i] < logs[:, j]) + 0.5 * np.mean(logs[:, i] == logs[:, j])
            paired.append(
                {
                    **common,
                    "variant": variant,
                    "k": k,
                    "against": against,
                    "against_k": against_k,
                    "log10_difference": np.mean(logs[:, i] - logs[:, j]),
                    "low": below,
                    "high": above,
                    "win_rate": wins,
                    "problems": problems,
                }
            )
    return pd.DataFrame(summary), pd.DataFrame(paired, columns=list(PAIRED))


def read_cells(path: Path) -> Any:
    """The rows of `results.parquet`, one rank and temperature at a time, to bound the memory."""
    import pyarrow.parquet as parquet

    keys = parquet.read_table(path, columns=["rank", "temperature"]).to_pandas().drop_duplicates()
    for rank in sorted(keys["rank"].unique()):
        table = parquet.read_table(path, filters=[("rank", "==", int(rank))]).to_pandas()
        for _, rows in table.groupby("temperature", sort=True):
            yield rows


def write_report(folder: RunFolder) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Writes `summary.csv`, `paired.csv` and the figure from `results.parquet`.

    Returns:
        The summary and the paired comparisons.
    """
    from cvaml.reports.garnet_figure import draw_figure

    parts = [summarise(rows) for rows in read_cells(folder.file("results.parquet"))]
    summary = pd.concat([part[0] for part in parts], ignore_index=True)
    paired = pd.concat([part[1] for part in parts], ignore_index=True)
    folder.write_table("summary.csv", summary)
    folder.write_table("paired.csv", paired)
    figure = draw_figure(summary)
    folder.write("figure.png", lambda path: figure.savefig(path, dpi=150, format="png"))
    folder.write("figure.pdf", lambda path: figure.savefig(path, format="pdf"))
    return summary, paired


def label(variant: str, k: int, summary: pd.DataFrame | None = None) -> str:
    """How an arm is called: the variant, and k where the study has several of it."""
    if variant == "mle":
        return variant
    if summary is not None and summary[summary["variant"] == variant]["k"].nunique() == 1:
        return variant if variant.startswith("cvaml") else f"{variant} (k={k})"
    return f"{variant} (k={k})"


def short_table(summary: pd.DataFrame) -> str:
    """Mean normalised error with its interval, for three ranks at the panels' temperatures."""
    nmse = summary[summary["metric"] == "nmse"]
    temperatures = panels(nmse["temperature"])
    lines = []
    for rank in panels(nmse["rank"]):
        lines.append(f"rank {rank:g}: mean normalised error [95 % interval] (median)")
        for variant, k in dict.fromkeys(zip(nmse["variant"], nmse["k"], strict=True)):
            texts = []
            for temperature in temperatures:
                row = cell(nmse, variant, k, rank, temperature)
                texts.append(
                    f"τ={temperature:g}: {row['mean']:.2g} [{row['low']:.2g}, {row['high']:.2g}] "
                    f"({row['median']:.2g})"
                )
            cells = " ".join(f"{text:42}" for text in texts)
            lines.append(f"  {label(variant, k, summary):22} {cells}")
    return "\n".join(line.rstrip() for line in lines)


def panels(values: pd.Series) -> list[float]:
    """Up to three of the values, spread evenly over those present."""
    distinct = sorted(values.unique())
    index = np.unique(np.round(np.linspace(0, len(distinct) - 1, 3)).astype(int))
    return [float(distinct[i]) for i in index]


def cell(
    nmse: pd.DataFrame, variant: str, k: int, rank: float, temperature: float
) -> dict[str, Any]:
    """The summary row of one arm in one cell."""
    found = nmse[
        (nmse["variant"] == variant)
        & (nmse["k"] == k)
        & (nmse["rank"] == rank)
        & (nmse["temperature"] == temperature)
    ]
    return {str(name): value for name, value in found.iloc[0].items()}


def findings(summary: pd.DataFrame, paired: pd.DataFrame) -> list[str]:
    """What the run found, in at most three sentences with numbers; says only what was run."""
    nmse = summary[summary["metric"] == "nmse"]
    temperatures = sorted(nmse["temperature"].unique())
    warm = min(temperatures, key=lambda t: abs(np.log(t)))
    cold = temperatures[0]
    rank = panels(nmse["rank"])[len(panels(nmse["rank"])) // 2]
    arms = list(dict.fromkeys(zip(nmse["variant"], nmse["k"], strict=True)))

    def says(variant: str, k: int, temperature: float) -> str:
        row = cell(nmse, variant, k, rank, temperature)
        name = label(variant, k, summary)
        return f"{name} {row['mean']:.2g} [{row['low']:.2g}, {row['high']:.2g}]"

    def named(*wanted: str) -> list[tuple[str, int]]:
        return [arm for arm in arms if arm[0] in wanted]

    found = [
        _best(nmse, paired, arms, rank, warm, summary)
        + "; ".join(says(*arm, warm) for arm in named("mle", "vaml-1-0", "cvaml-1-0"))
        + "."
    ]
    near = named("mle", "vaml-1-0", "cvaml-1-0", "vaml-1-0+kl", "cvaml-1-0+kl")
    if near and cold != warm:
        found.append(
            f"In the most deterministic problems (τ = {cold:g}, rank {rank:g}): "
            + "; ".join(says(*arm, cold) for arm in near)
            + "."
        )
    poor = [*named("vaml-1-1", "cvaml-1-1", "cvaml-1-1+td"), *named("printed-1-0")]
    if poor:
        found.append(
            f"MuZero-style value updates and the printed estimator (τ = {warm:g}, rank {rank:g}; "
            "1 is as bad as predicting the mean): "
            + "; ".join(says(*arm, warm) for arm in poor)
            + "."
        )
    return found


def _best(
    nmse: pd.DataFrame,
    paired: pd.DataFrame,
    arms: list[tuple[str, int]],
    rank: float,
    temperature: float,
    summary: pd.DataFrame,
) -> str:
    """Which of the paper's losses has the lowest mean error, and how clearly."""
    plain = [arm for arm in arms if "+" not in arm[0]] or arms
    means = {arm: cell(nmse, *arm, rank, temperature)["mean"] for arm in plain}
    best = min(means, key=lambda arm: means[arm])
    text = (
        f"With stochastic transitions (τ = {temperature:g}, rank {rank:g}) "
        f"{label(*best, summary)} has the lowest mean error"
    )
    rival = ("mle", 1) if best != ("mle", 1) and ("mle", 1) in arms else None
    if rival:
        row = paired[
            (paired["rank"] == rank)
            & (paired["temperature"] == temperature)
            & (paired["variant"] == best[0])
            & (paired["k"] == best[1])
            & (paired["against"] == rival[0])
        ].iloc[0]
        text += f", below mle on {100 * row['win_rate']:.0f} % of {row['problems']} problems"
    return text + ": "
