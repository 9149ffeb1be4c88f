"""Charts of the tabular studies from their summaries, and the claims from Markdown."""

import pandas as pd
import pytest
from fake_runs import tabular_run

from cvaml.reports.claims import claims_section, read_claims
from cvaml.reports.reading import read_runs
from cvaml.reports.summaries import study_section, summary_charts, summary_table
from cvaml.types import UserError


def section(tmp_path, **options):
    (run,) = read_runs([tabular_run(tmp_path / "run", **options)])
    found = study_section(run, "s")
    return {item.key: item for item in found.items}


def test_garnet_is_shown_over_rank_and_over_temperature(tmp_path):
    items = section(tmp_path)
    assert set(items) == {"s-rank", "s-temperature", "s-table"}
    view = items["s-rank"].views[0]
    assert [panel.title for panel in view.panels] == ["temperature 0.1", "temperature 1"]
    series = view.panels[0].series[0]
    assert (series.name, series.x) == ("cvaml-1-0", [2.0, 5.0, 20.0])
    # mean = 1e-4 / rank * (1 + temperature) / 100
    assert series.y == pytest.approx([5.5e-7, 2.2e-7, 5.5e-8])
    assert series.low == pytest.approx([0.8 * y for y in series.y])
    assert view.x_log
    assert view.y_log


def test_the_median_is_a_view_without_interval(tmp_path):
    views = section(tmp_path)["s-rank"].views
    assert [view.label for view in views] == ["value_error, mean", "value_error, median"]
    assert views[1].panels[0].series[0].low is None


def test_learning_curves_where_iterations_vary(tmp_path):
    items = section(tmp_path, study="cliffwalk", iterations=(1, 2, 3), ranks=(1,))
    assert items["s-learning"].views[0].panels[0].series[0].x == [1.0, 2.0, 3.0]
    # the table and the other charts show the last iteration only
    assert all(
        row[items["s-table"].columns.index("iteration")] == 3 for row in items["s-table"].rows
    )


def test_bars_where_nothing_varies(tmp_path):
    chart = section(tmp_path, ranks=(2,), temperatures=(1.0,))["s-bars"]
    assert chart.kind == "bars"
    assert [s.name for s in chart.views[0].panels[0].series] == ["cvaml-1-0", "vaml-1-0", "mle"]


def test_k_enters_the_name_where_a_variant_has_several():
    rows = [("vaml-1-0", k, 2, "e", 1.0, 0.9, 1.1) for k in (1, 4)]
    rows.append(("mle", 1, 2, "e", 1.0, 0.9, 1.1))
    table = pd.DataFrame(rows, columns=["variant", "k", "rank", "metric", "mean", "low", "high"])
    (chart,) = summary_charts(table, "s")
    names = [s.name for s in chart.views[0].panels[0].series]
    assert names == ["vaml-1-0 k=1", "vaml-1-0 k=4", "mle"]


def test_a_summary_of_another_shape_is_a_table():
    table = pd.DataFrame({"loss": ["a"], "calibrated": [True], "regret": [0.5], "note": [None]})
    assert summary_charts(table, "s") == []
    shown = summary_table(table, "s")
    assert list(shown.columns) == ["loss", "calibrated", "regret"]
    assert shown.rows == [["a", "yes", 0.5]]


CLAIMS = """
Some text | with a bar.

| # | claim | verdict |
|---|---|:--|
| C1 | VAML is [uncalibrated](tabular.md) | **holds** |
| C10 | a \\| b, f\\* | does not hold |
| total | not a claim | |

| # | verdict | command |
|---|---|---|
| C7 | not enough runs | `cvaml garnet` |
"""


def test_claims_of_several_tables_are_one_table():
    (table,) = claims_section(CLAIMS).items
    assert list(table.columns) == ["#", "claim", "verdict", "command"]
    assert table.rows == [
        ["C1", "VAML is uncalibrated", "**holds**", None],
        ["C10", "a | b, f*", "does not hold", None],
        ["C7", None, "not enough runs", "`cvaml garnet`"],
    ]


def test_no_claims_no_section():
    assert claims_section("# Nothing here") is None


def test_the_package_carries_the_projects_claims():
    shipped = claims_section(read_claims())
    assert shipped is not None
    first = [str(row[0]).partition(":")[0].partition(",")[0] for row in shipped.items[0].rows]
    assert set(first) == {f"C{number}" for number in range(1, 22)}


def test_claims_file_is_read_or_named(tmp_path):
    path = tmp_path / "claims.md"
    path.write_text(CLAIMS)
    assert read_claims(path) == CLAIMS
    with pytest.raises(UserError, match="cannot read the claims"):
        read_claims(tmp_path / "missing.md")
