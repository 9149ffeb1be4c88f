"""Charts and tables of agent runs against numbers worked by hand."""

import numpy as np
import pytest
from fake_runs import SEVEN, agent_run

from cvaml.reports import comparison, control
from cvaml.reports.charts import Chart, Table
from cvaml.reports.curves import Curve, read_curves
from cvaml.reports.published import ALL_TASKS, published_at, published_returns
from cvaml.reports.reading import read_runs


def flat(label, task, value, run="r", last=200_000):
    steps = np.array([0.0, last])
    return Curve(label, task, run, steps, np.array([0.0, value]))


def test_published_means_are_the_known_ones():
    at_million = dict(published_at(1_000_000)[["method", "mean"]].itertuples(index=False))
    assert at_million["TD-MPC2"] == pytest.approx(491, abs=0.6)
    assert at_million["TD-MPC"] == pytest.approx(593, abs=0.6)
    assert at_million["TD-MPC2+SimBa"] == pytest.approx(658, abs=0.6)
    assert at_million["BRO"] == pytest.approx(693, abs=0.6)
    assert at_million["SimBa-SAC"] == pytest.approx(706, abs=0.6)
    assert at_million["MR.Q"] == pytest.approx(723, abs=0.6)
    half = dict(published_at(500_000)[["method", "mean"]].itertuples(index=False))
    assert half["TD-MPC2"] == pytest.approx(322, abs=0.6)
    assert half["SimBa-SAC"] == pytest.approx(547, abs=0.6)


def test_published_intervals_hold_their_means():
    table = published_returns()
    assert (table["low"] <= table["mean"] + 0.1).all()
    assert (table["mean"] <= table["high"] + 0.1).all()
    assert set(table["task"]) == {*SEVEN, ALL_TASKS}
    assert table["method"].notna().all()


def test_bars_are_scores_of_complete_labels(generator):
    curves = [flat("a", task, 500.0, run) for task in ("dog-run", "dog-walk") for run in "rs"]
    curves.append(flat("b", "dog-run", 900.0))
    chart = comparison.aggregate_bars(curves, generator)
    assert chart is not None
    first = chart.views[0]
    assert first.label == "dog (2 tasks) at 200,000 environment steps"
    values = {panel.title.split(" (")[0]: panel.series[0].y[0] for panel in first.panels}
    assert values == {"IQM": 0.5, "Mean": 0.5, "Median": 0.5, "Optimality gap": 0.5}
    assert [series.name for series in first.panels[0].series] == ["a"]


def test_a_label_with_an_unfinished_run_is_not_compared_at_that_step(generator):
    curves = [flat("a", task, 500.0) for task in ("dog-run", "dog-walk")]
    curves += [flat("b", "dog-run", 500.0), flat("b", "dog-walk", 500.0, last=150_000)]
    chart = comparison.aggregate_bars(curves, generator)
    shown = {view.label: [s.name for s in view.panels[0].series] for view in chart.views}
    assert shown["dog (2 tasks) at 200,000 environment steps"] == ["a"]
    assert shown["dog (2 tasks) at 150,000 environment steps"] == ["a", "b"]


def test_returns_stand_beside_published_ones_best_first(generator):
    curves = [flat("a", task, 700.0) for task in SEVEN]
    table = comparison.returns_table(curves, published_returns(), generator)
    rows = [row for row in table.rows if row[2] == 200_000]
    means = [row[4][0] for row in rows if row[4] is not None]
    assert means == sorted(means, reverse=True)
    assert rows[0][:5] == ["a", "here", 200_000, 1, (700.0, 700.0, 700.0)]
    assert any(row[:2] == ["TD-MPC2", "published"] for row in rows)


def test_published_means_of_some_tasks_have_no_interval(generator):
    tasks = ["dog-run", "dog-walk"]
    curves = [flat("a", task, 50.0) for task in tasks]
    table = comparison.returns_table(curves, published_returns(), generator)
    rows = {row[0]: row for row in table.rows if row[2] == 200_000}
    each = [cell[0] for cell in rows["TD-MPC2"][5:]]
    assert rows["TD-MPC2"][4] == pytest.approx(sum(each) / 2)
    above = [name for name, row in rows.items() if row[1] == "published" and row[4] > 50]
    assert list(rows).index("a") == len(above), "sorted by it"


def test_every_label_has_a_row_at_its_own_end(generator):
    curves = [flat("a", "dog-run", 5.0, last=300), flat("b", "cup-catch", 7.0, last=700)]
    curves.append(flat("b", "cup-catch", 9.0, "s", last=800))
    rows = comparison.returns_table(curves, published_returns().head(0), generator).rows
    assert [(row[0], row[2]) for row in rows] == [("b", 700), ("b", 300), ("a", 300)]
    assert rows[0][5][0] == pytest.approx((7.0 + 9.0 * 7 / 8) / 2)


def test_improvement_needs_five_runs_for_a_verdict(generator):
    def pair(runs):
        better = [flat("a", "dog-run", 100.0 + i, str(i)) for i in range(runs)]
        return better + [flat("b", "dog-run", 10.0 + i, str(i)) for i in range(runs)]

    (row,) = comparison.improvement_table(pair(5), generator).rows
    assert row[:2] == ["a", "b"]
    assert row[2] == (1.0, 1.0, 1.0)
    assert row[-1] == "a"
    (row,) = comparison.improvement_table(pair(4), generator).rows
    assert row[2] == (1.0, 1.0, 1.0)
    assert row[-1] == "not enough runs"


def test_profiles_fall_from_one_to_zero(generator):
    curves = [flat("a", task, 500.0, run) for task in ("dog-run", "dog-walk") for run in "rs"]
    chart = comparison.profile_chart(curves, generator)
    (series,) = chart.views[0].panels[0].series
    assert series.y[0] == 1.0
    assert series.y[-1] == 0.0
    assert series.y[series.x.index(pytest.approx(0.48))] == 1.0
    assert series.y[series.x.index(pytest.approx(0.5))] == 0.0


@pytest.fixture(scope="module")
def section(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    for variant, model in (
        ("cvaml-1-0", "stochastic"),
        ("vaml-1-0", "deterministic"),
        ("cvaml-1-0+noaux", "stochastic"),
        ("aux-only", "stochastic"),
    ):
        agent_run(root / f"{variant}-{model}", variant, model, SEVEN, seeds=2)
    found = control.control_section(read_runs([root]), np.random.default_rng(0))
    assert found is not None
    return found


def test_a_study_gets_every_figure(section):
    charts = {item.key: item for item in section.items if isinstance(item, Chart)}
    assert set(charts) == {
        "aggregates",
        "sample-efficiency",
        "tasks",
        "ablations",
        "profiles",
        "model-entropy",
        "vaml-error",
    }
    assert {item.key for item in section.items if isinstance(item, Table)} == {
        "returns",
        "improvement",
    }


def test_main_curves_leave_ablations_to_their_own_figure(section):
    charts = {item.key: item for item in section.items if isinstance(item, Chart)}
    main = {
        s.name for s in charts["sample-efficiency"].views[0].panels[0].series if s.role == "main"
    }
    assert main == {"cvaml-1-0", "vaml-1-0 deterministic"}
    taken = {s.name for panel in charts["ablations"].views[0].panels for s in panel.series}
    assert taken == {"cvaml-1-0", "cvaml-1-0+noaux", "aux-only"}


def test_published_methods_stand_behind_tasks_and_the_mean_of_seven(section):
    charts = {item.key: item for item in section.items if isinstance(item, Chart)}
    for panel in charts["tasks"].views[0].panels:
        assert "TD-MPC2" in {s.name for s in panel.series if s.role == "published"}
        assert max(max(s.x) for s in panel.series) <= 200_000
    views = {view.label: view.panels[0].series for view in charts["sample-efficiency"].views}
    assert any(s.role == "published" for s in views["all 7 tasks: mean"])
    assert not any(s.role == "published" for s in views["dog (4 tasks): mean"])
    assert not any(s.role == "published" for s in views["all 7 tasks: IQM"])


def test_single_runs_are_behind_their_mean(section):
    charts = {item.key: item for item in section.items if isinstance(item, Chart)}
    panel = charts["tasks"].views[0].panels[0]
    runs = [s for s in panel.series if s.role == "run" and s.name == "cvaml-1-0"]
    (mean,) = [s for s in panel.series if s.role == "main" and s.name == "cvaml-1-0"]
    assert len(runs) == 2
    np.testing.assert_allclose(mean.y, np.mean([s.y for s in runs], axis=0))


def test_returns_outside_zero_to_thousand_get_no_score(tmp_path, generator):
    agent_run(tmp_path / "a", tasks=("Pendulum-v1", "Pendulum-v2"), level=300.0)
    (run,) = read_runs([tmp_path / "a"])
    run.metrics.loc[run.metrics["metric"] == "eval_return", "value"] -= 1000.0
    found = control.control_section([run], generator)
    items = {item.key: item for item in found.items}
    assert "aggregates" not in items
    assert {"returns", "tasks"} <= set(items)
    assert not items["tasks"].views[0].shared_y
    assert "published" not in found.lead


def test_everything_else_that_was_logged_is_one_view_each(tmp_path):
    (run,) = read_runs([agent_run(tmp_path / "a", seeds=2, tasks=("dog-run",))])
    run.metrics.loc[run.metrics["metric"] == "vaml_error", "metric"] = "loss/aux"
    chart = control.metrics_chart([run])
    assert [view.label for view in chart.views] == ["loss/aux"]
    (series,) = chart.views[0].panels[0].series
    own = run.metrics[run.metrics["metric"] == "loss/aux"]
    np.testing.assert_allclose(series.y, own.groupby("env_step")["value"].mean())


def test_other_metrics_only_make_no_section(tmp_path, generator):
    (run,) = read_runs([agent_run(tmp_path / "a")])
    run.metrics["metric"] = "loss"
    assert control.control_section([run], generator) is None
    assert read_curves([run], "eval_return") == []
