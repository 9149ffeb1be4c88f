"""The calibration study read back: its summary with intervals, its verdicts, its printed table."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from cvaml.reports.aggregate import bootstrap_mean_interval
from cvaml.runs.folder import RunFolder

CELL = ["environment", "model", "loss", "update", "target", "m", "b", "correction", "k"]
"""Columns that name a question; `model_class` and `kind` name the problems it is asked on."""

_RESAMPLES = 1000
_ROUNDING = 1e-12
_CLASSES = {"all": "over all distributions", "floor": "with a noise floor"}
_KINDS = {
    "full": "full rank, all states weighted",
    "deficient": "rank-deficient kernel",
    "subset": "weights on a subset",
    "equivalent": "y(f(x)) = (P y)(x)",
}
_COLUMNS = {
    ("itervaml", "model", "mean"): "IterVAML, model",
    ("muzero", "model", "mean"): "MuZero, model",
    ("muzero", "value", "mean"): "MuZero, value (mean)",
    ("muzero", "value", "state"): "MuZero, value (state)",
    ("td", "value", "state"): "TD, value (state)",
}


def summarise(
    results: pd.DataFrame, threshold: float, generator: np.random.Generator
) -> pd.DataFrame:
    """Mean, interval, largest value and verdict of every cell.

    Args:
        results: the long form, one row per problem and metric.
        threshold: a cell is calibrated if its largest excess is below this.
        generator: source of the bootstrap; the call advances it.

    Returns:
        One row per cell, class of models and metric over all kinds of problems (kind `any`), and in
        Table 1 one for each kind besides.
        `unbounded` counts problems of infinite value, which mean and interval leave out.
    """
    numbers = results[results["part"] != "compact"]
    floors = numbers[numbers["metric"] == "floor"]
    numbers = pd.concat([numbers[numbers["metric"] != "floor"], _changes(numbers)])
    keys = ["part", *CELL, "model_class", "paper", "metric"]
    rows = []
    for part, kinds in ((numbers["part"] == "table", ["kind"]), (numbers["part"] != "", [])):
        lowest = floors.groupby(["part", *CELL, "model_class", *kinds], dropna=False)[
            "value"
        ].mean()
        for key, group in numbers[part].groupby(keys + kinds, dropna=False, sort=False):
            row: dict[str, Any] = dict(zip(keys + kinds, key, strict=True))
            row.setdefault("kind", "any")
            row |= _statistics(group["value"].to_numpy(), generator)
            if row["metric"] == "excess":
                row["verdict"] = "calibrated" if row["max"] < threshold else "uncalibrated"
                place = tuple(row[column] for column in ["part", *CELL, "model_class", *kinds])
                row["floor"] = lowest.get(place, np.nan)
            rows.append(row)
    summary = pd.DataFrame(rows)
    for column in ("m", "b", "k"):
        summary[column] = summary[column].astype("Int64")
    summary["condition"] = _conditions(summary)
    return summary


def _changes(numbers: pd.DataFrame) -> pd.DataFrame:
    """Paired differences of a value's regret to the one at m = b = 1, as a metric of their own."""
    keys = ["correction", "k", "update", "target", "problem"]
    regrets = numbers[
        (numbers["part"] == "horizon")
        & (numbers["metric"] == "excess")
        & (numbers["update"] == "value")
        & (numbers["correction"] == "none")
    ]
    base = regrets[(regrets["m"] == 1) & (regrets["b"] == 1)].set_index(keys)["value"]
    place = pd.MultiIndex.from_frame(regrets[keys])
    change = regrets["value"].to_numpy() - base.loc[place].to_numpy()
    return regrets.assign(metric="change", value=change)


def _statistics(values: np.ndarray, generator: np.random.Generator) -> dict[str, float]:
    """Mean with its 95 % interval over finite values, and the largest of all."""
    finite = values[np.isfinite(values)]
    if not finite.size:
        low = high = np.nan
    elif np.abs(finite).max() < _ROUNDING:  # resampling rounding errors would say nothing
        low, high = float(finite.min()), float(finite.max())
    else:
        low, high = bootstrap_mean_interval(finite, generator, resamples=_RESAMPLES)
    return {
        "mean": float(finite.mean()) if finite.size else np.nan,
        "low": low,
        "high": high,
        "max": float(values.max()),
        "unbounded": len(values) - len(finite),
        "problems": len(values),
    }


def _conditions(summary: pd.DataFrame) -> pd.Series:
    """For each cell of Table 1, under which condition the paper's verdict is the computed one."""
    texts = pd.Series("", index=summary.index)
    table = summary[(summary["part"] == "table") & (summary["metric"] == "excess")]
    for _, cell in table.groupby(CELL):
        single = cell[cell["kind"] != "any"]
        agrees = single["verdict"] == single["paper"]
        places = list(zip(single["model_class"], single["kind"], strict=True))
        text = _condition(places, [place for place, yes in zip(places, agrees, strict=True) if yes])
        texts[cell.index] = text
    return texts


def _condition(places: list[tuple[str, str]], agree: list[tuple[str, str]]) -> str:
    """Words for where a verdict agrees, out of (class, kind) places: the shorter of two ways."""
    if len(agree) == len(places):
        return "agrees"
    if not agree:
        return "differs"
    differ = [place for place in places if place not in agree]
    if len(agree) <= len(differ):
        return f"only {_words(places, agree)}"
    return f"except {_words(places, differ)}"


def _words(places: list[tuple[str, str]], chosen: list[tuple[str, str]]) -> str:
    """The chosen (class, kind) places, a class or a kind left out where it makes no difference."""
    classes = list(dict.fromkeys(c for c, _ in places))
    every = {c: [k for c_, k in places if c_ == c] for c in classes}
    found = {c: [k for c_, k in chosen if c_ == c] for c in classes}
    if all(found[c] == found[classes[0]] for c in classes):
        return f"if {' or '.join(_KINDS[k] for k in found[classes[0]])}"
    parts = []
    for c in classes:
        if found[c]:
            kinds = " or ".join(_KINDS[k] for k in found[c])
            parts.append(_CLASSES[c] + ("" if found[c] == every[c] else f" if {kinds}"))
    return " and ".join(parts)


def draw(folder: RunFolder) -> None:
    """Writes `figure.png` and `figure.pdf` from the folder's tables, where they are missing."""
    missing = [name for name in ("figure.png", "figure.pdf") if not folder.file(name).exists()]
    if not missing:
        return
    import matplotlib.pyplot as plt

    from cvaml.reports.calibration_figure import calibration_figure

    results = pd.read_parquet(folder.file("results.parquet"))
    figure = calibration_figure(results, read_summary(folder))
    for name in missing:
        ending = name.rsplit(".", 1)[1]
        folder.write(name, partial(figure.savefig, format=ending, dpi=150))
        figure.set_layout_engine("none")  # laid out once, saved twice
    plt.close(figure)


def read_summary(folder: RunFolder) -> pd.DataFrame:
    """The folder's summary; an empty word (no correction is called "none") is not a gap."""
    return pd.read_csv(folder.file("summary.csv"), keep_default_na=False, na_values=[""])


def text(folder: RunFolder) -> str:
    """The printed report: Table 1, what can be updated, regret against k, m and b, the checks."""
    summary = read_summary(folder)
    checks = pd.read_csv(folder.file("checks.csv"))
    any_kind = summary[summary["kind"] == "any"]
    parts = dict(iter(any_kind.groupby("part")))
    sections = [
        _table_lines(parts["table"]),
        _gradient_lines(parts["gradients"]),
        _sample_lines(parts["samples"]),
        _model_lines(parts["horizon"]),
        _horizon_lines(parts["horizon"], "state"),
        _horizon_lines(parts["horizon"], "mean"),
        _fixed_point_lines(parts["fixed_point"]),
        _check_lines(checks),
    ]
    files = ", ".join(["results.parquet", "summary.csv", "checks.csv", "figure.png", "figure.pdf"])
    body = "\n\n".join("\n".join(lines) for lines in sections)
    return f"{body}\n\n{folder.path}: {files}"


def _table_lines(table: pd.DataFrame) -> Iterator[str]:
    yield (
        "Table 1: excess regret, mean [95 % interval] over problems; C calibrated (largest excess "
        "below 1e-10), U not;\nfloor: smallest target loss of the class; ∞ n: unbounded for n "
        "problems; paper: where its verdict is the computed one"
    )
    yield (
        f"{'model':8}{'env.':8}{'class':8}{'loss':23}{'no correction, k = 1':32}"
        f"{'corrected (s²/k), k = 4':38}{'floor':9}paper (without | with)"
    )
    order = {name: index for index, name in enumerate(_COLUMNS.values())}
    excess = table[table["metric"] == "excess"].copy()
    excess["column"] = [
        _COLUMNS[key]
        for key in zip(excess["loss"], excess["update"], excess["target"], strict=True)
    ]
    excess["order"] = excess["column"].map(order)
    rows = ["model", "environment", "model_class", "order"]
    for _, group in excess.sort_values(rows).groupby(rows):
        plain = group[(group["correction"] == "none") & (group["k"] == 1)].iloc[0]
        fixed = group[group["correction"] == "unbiased"].iloc[0]
        name = "-" if plain["model_class"] == "deterministic" else plain["model_class"]
        floor = plain["floor"] if plain["floor"] > _ROUNDING else 0.0
        conditions = dict.fromkeys([plain["condition"], fixed["condition"]])
        yield (
            f"{_short(plain['model']):8}{_short(plain['environment']):8}{name:8}"
            f"{plain['column']:23}{_regret(plain):32}{_regret(fixed):38}{floor:<9.2g}"
            f"{' | '.join(conditions)}"
        )


def _gradient_lines(gradients: pd.DataFrame) -> Iterator[str]:
    yield "Gradient norms, mean [95 % interval]: what a loss can update"
    for loss, group in gradients.groupby("loss", sort=False):
        cells = []
        for metric, name in (("model_gradient", "model"), ("value_gradient", "value")):
            row = group[group["metric"] == metric].iloc[0]
            cells.append(f"{name}: {'yes' if row['max'] > 0 else 'no '} {_interval(row)}")
        yield f"{loss:10}{cells[0]:40}{cells[1]}"


def _sample_lines(samples: pd.DataFrame) -> Iterator[str]:
    yield "IterVAML regret against k (exact), mean [95 % interval], all distributions"
    yield f"{'k':5}{'none':30}{'unbiased':30}{'printed':30}"
    excess = samples[samples["metric"] == "excess"]
    for k, group in excess.groupby("k"):
        cells = {row["correction"]: _interval(row) for _, row in group.iterrows()}
        texts = (cells.get(name, "-") for name in ("none", "unbiased", "printed"))
        yield f"{k:<5.0f}" + "".join(f"{text:30}" for text in texts)


def _model_lines(horizon: pd.DataFrame) -> Iterator[str]:
    yield "Model at m and b, all distributions, no correction, k = 1: regret, mean [95 % interval]"
    rows = horizon[(horizon["update"] == "model") & (horizon["metric"] == "excess")]
    plain = rows[(rows["correction"] == "none") & (rows["k"] == 1)]
    texts = plain.assign(text=[_interval(row) for _, row in plain.iterrows()])
    regret = texts.pivot(index="m", columns="b", values="text")
    yield "m \\ b  " + "".join(f"{b:<26.0f}" for b in regret.columns)
    for m in regret.index:
        yield f"{m:<7.0f}" + "".join(f"{cell:26}" for cell in regret.loc[m])
    for correction, name in (("unbiased", "s²/k"), ("printed", "as printed")):
        fixed = rows[rows["correction"] == correction]
        low, high = max(fixed["mean"].min(), 0), max(fixed["mean"].max(), 0)
        yield f"corrected ({name}), k = 4: mean regret from {low:.2g} to {high:.2g}"


def _horizon_lines(horizon: pd.DataFrame, target: str) -> Iterator[str]:
    yield (
        f"MuZero value ({target}), true kernel as model, no correction, k = 1: regret, "
        "mean [95 % interval], and its paired change from m = b = 1"
    )
    chosen = horizon[
        (horizon["target"] == target)
        & (horizon["update"] == "value")
        & (horizon["correction"] == "none")
        & (horizon["k"] == 1)
    ]
    texts = chosen.assign(text=[_interval(row) for _, row in chosen.iterrows()])
    regret = texts[texts["metric"] == "excess"].pivot(index="m", columns="b", values="text")
    change = texts[texts["metric"] == "change"].pivot(index="m", columns="b", values="text")
    yield "m \\ b  " + "".join(f"{b:<32.0f}" for b in regret.columns)
    for m in regret.index:
        yield f"{m:<7.0f}" + "".join(f"{cell:32}" for cell in regret.loc[m])
        yield f"{'':7}" + "".join(f"{cell:32}" for cell in change.loc[m])


def _fixed_point_lines(fixed_points: pd.DataFrame) -> Iterator[str]:
    yield "MuZero value with V_tar = V, true kernel as model: (V - V^π)² / Var(V^π)"
    for _, row in fixed_points.iterrows():
        yield f"{row['correction']:10}k = {row['k']:<4.0f}{_interval(row)}"


def _check_lines(checks: pd.DataFrame) -> Iterator[str]:
    yield "Propositions and lemmas"
    minimisers = checks[checks["statement"] == "Minimisers"]
    for what, group in minimisers.groupby(minimisers["quantity"].str.split(",").str[0], sort=False):
        worst = group.sort_values("value").iloc[-1]
        yield _check_line(bool(group["holds"].all()), "Minimisers", str(what), worst)
    for _, check in checks[checks["statement"] != "Minimisers"].iterrows():
        yield _check_line(bool(check["holds"]), check["statement"], check["quantity"], check)


def _check_line(holds: bool, statement: str, quantity: str, row: pd.Series) -> str:
    verdict = "holds" if holds else "FAILS"
    number = f"{row['value']:.3g} {row['relation']} {row['bound']:g}"
    return f"{verdict:7}{statement:24}{quantity:62}{number}"


def _short(name: str) -> str:
    return {"deterministic": "det.", "stochastic": "stoch."}[name]


def _regret(row: pd.Series) -> str:
    """Verdict, mean and interval of one cell."""
    if row["verdict"] == "calibrated":
        return f"C max {max(row['max'], 0):.0e}"
    infinite = f" ∞ {int(row['unbounded'])}" if row["unbounded"] else ""
    finite = "" if row["unbounded"] == row["problems"] else f" {_interval(row)}"
    return f"U{finite}{infinite}"


def _interval(row: pd.Series) -> str:
    """Mean and 95 % interval; the interval of rounding errors says nothing."""
    if max(abs(row["low"]), abs(row["high"])) < _ROUNDING:
        return f"{row['mean']:.0e}" if row["mean"] else "0"
    return f"{row['mean']:.3g} [{row['low']:.3g}, {row['high']:.3g}]"
