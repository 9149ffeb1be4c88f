"""The calibration study on the page, and which runs have a figure in the paper's layout."""

import numpy as np
import pandas as pd
from fake_runs import agent_run, tabular_run

from cvaml.reports.charts import Chart, Table
from cvaml.reports.paper import paper_figure
from cvaml.reports.reading import read_runs
from cvaml.reports.theory import is_theory, theory_section


def theory_summary() -> pd.DataFrame:
    rows = []
    for correction, k, mean in (("none", 1, 0.1), ("none", 4, 0.01), ("unbiased", 4, 0.0)):
        rows.append(("samples", correction, k, 1, 0, "model", "mean", "any", mean))
    for m, mean in ((1, 0.5), (3, 0.7)):
        rows.append(("horizon", "none", 1, m, 1, "value", "state", "any", mean))
    for kind in ("any", "full"):
        rows.append(("table", "none", 1, 1, 0, "model", "mean", kind, 0.2))
    columns = ["part", "correction", "k", "m", "b", "update", "target", "kind", "mean"]
    table = pd.DataFrame(rows, columns=columns)
    verdict = np.where(table["mean"] > 0, "uncalibrated", "calibrated")
    return table.assign(low=table["mean"], high=table["mean"], metric="excess", verdict=verdict)


CHECKS = pd.DataFrame(
    {"statement": ["Lemma 3", "Lemma 4"], "value": [0.5, 2.0], "holds": [True, False]}
)


def test_regret_is_shown_over_samples_and_horizon():
    items = theory_section(theory_summary(), CHECKS, "t").items
    samples, horizon = (item for item in items if isinstance(item, Chart))
    assert [(s.name, s.x, s.y) for s in samples.views[0].panels[0].series] == [
        ("vaml-1-0", [1.0, 4.0], [0.1, 0.01]),
        ("cvaml-1-0", [4.0], [1e-14]),  # a log axis has no zero
    ]
    assert [(s.name, s.x, s.y) for s in horizon.views[0].panels[0].series] == [
        ("b = 1", [1.0, 3.0], [0.5, 0.7])
    ]


def test_every_part_and_the_checks_are_tables():
    tables = [
        item for item in theory_section(theory_summary(), CHECKS, "t").items
        if isinstance(item, Table)
    ]  # fmt: skip
    assert [len(table.rows) for table in tables] == [3, 2, 1, 2]  # Table 1 over all kinds only
    assert list(tables[0].columns) == ["correction", "k", "mean", "verdict"]
    assert tables[-1].rows == [["Lemma 3", 0.5, "holds"], ["Lemma 4", 2, "does not hold"]]


def test_a_study_without_checks_or_parts_has_fewer_items():
    summary = theory_summary()
    only = summary[summary["part"] == "table"]
    assert [item.key for item in theory_section(only, None, "t").items] == ["t-table-table"]
    assert is_theory(summary)
    assert not is_theory(summary.drop(columns="part"))


def test_the_papers_layout_needs_its_metrics(tmp_path):
    (garnet,) = read_runs([tabular_run(tmp_path / "g")])
    (agent,) = read_runs([agent_run(tmp_path / "a", seeds=1)])
    assert paper_figure(garnet) is None  # no nmse in it
    assert paper_figure(agent) is None
    garnet.summary["metric"] = "nmse"
    figure = paper_figure(garnet)
    assert figure is not None
    assert figure.axes
