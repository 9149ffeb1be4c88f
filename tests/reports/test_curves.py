"""Curves of runs on common steps, and the labels that keep configurations apart."""

import numpy as np
import pytest
from fake_runs import SEVEN, agent_run

from cvaml.reports import curves
from cvaml.reports.curves import Curve
from cvaml.reports.reading import read_runs


def curve(steps, values, task="dog-run", label="a", run="r"):
    return Curve(label, task, run, np.array(steps, float), np.array(values, float))


def test_common_steps_interpolate_and_end_with_the_shortest_run():
    found = curves.on_common_steps(
        [curve([0, 10, 20], [0, 1, 2]), curve([0, 20, 40], [0, 4, 8], run="s")]
    )
    assert found is not None
    steps, scores = found
    np.testing.assert_array_equal(steps, [0, 10, 20])
    np.testing.assert_allclose(scores["dog-run"], [[0, 0], [1, 2], [2, 4]])


def test_common_steps_are_thinned_but_keep_both_ends():
    steps, _ = curves.on_common_steps([curve(np.arange(1000), np.zeros(1000))], most=7)
    assert len(steps) == 7
    assert steps[0] == 0
    assert steps[-1] == 999


def test_curves_without_a_common_step_have_no_mean():
    assert curves.on_common_steps([curve([0, 1], [0, 0]), curve([5, 6], [0, 0])]) is None
    assert curves.on_common_steps([]) is None


def test_scores_between_two_evaluations_are_interpolated():
    scores = curves.scores_at([curve([0, 10], [0, 5]), curve([0, 10], [1, 1], "dog-walk")], 4)
    assert scores["dog-run"] == pytest.approx([2.0])
    assert scores["dog-walk"] == pytest.approx([1.0])


def test_task_sets_are_all_tasks_and_the_domains():
    sets = curves.task_sets([curve([0], [0], task) for task in [*SEVEN, "pendulum-swingup"]])
    assert {title: len(tasks) for title, tasks in sets.items()} == {
        "all 8 tasks": 8,
        "dog (4 tasks)": 4,
        "humanoid (3 tasks)": 3,
    }


def test_only_labels_with_every_task_are_complete():
    some = [curve([0], [0], "dog-run", "a"), curve([0], [0], "dog-walk", "a")]
    some.append(curve([0], [0], "dog-run", "b"))
    assert list(curves.complete(some, ["dog-run", "dog-walk"])) == ["a"]


def test_labels_name_the_model_and_differing_settings(tmp_path):
    agent_run(tmp_path / "a", "vaml-1-0", settings={"k": 1, "seed": 0, "agent": {"lr": 0.1}})
    agent_run(tmp_path / "b", "vaml-1-0", settings={"k": 4, "seed": 1, "agent": {"lr": 0.1}})
    agent_run(tmp_path / "c", "vaml-1-0", "deterministic", settings={"k": 1})
    found = curves.by_label(curves.read_curves(read_runs([tmp_path]), "eval_return"))
    assert set(found) == {"vaml-1-0 k=1", "vaml-1-0 k=4", "vaml-1-0 deterministic"}


def test_members_with_settings_of_their_own_are_kept_apart(tmp_path):
    own = {"seed": 0, "member_settings": {"aux": [1.0, 0.1, 1.0], "reward": [2.0, 2.0, 2.0]}}
    agent_run(tmp_path / "a", seeds=3, tasks=("dog-run",), settings=own)
    found = curves.by_label(curves.read_curves(read_runs([tmp_path]), "eval_return"))
    assert {label: len(each) for label, each in found.items()} == {
        "cvaml-1-0 aux=1.0": 2,
        "cvaml-1-0 aux=0.1": 1,
    }


def test_many_differing_settings_are_numbered_and_explained(tmp_path):
    for name, value in (("a", 1), ("b", 2), ("c", 2)):
        agent_run(tmp_path / name, settings=dict.fromkeys("wxyz", value))
    runs = read_runs([tmp_path])
    found = curves.by_label(curves.read_curves(runs, "eval_return"))
    assert set(found) == {"cvaml-1-0 settings 1", "cvaml-1-0 settings 2"}
    assert curves.numbered_labels(runs) == {
        "cvaml-1-0 settings 1": "w=1 x=1 y=1 z=1",
        "cvaml-1-0 settings 2": "w=2 x=2 y=2 z=2",
    }


def test_a_setting_that_only_some_runs_have_is_named(tmp_path):
    agent_run(tmp_path / "a", settings={"k": 4})
    agent_run(tmp_path / "b", settings={"k": 4, "noise": 0.1})
    agent_run(tmp_path / "c", settings={"k": 4, "noise": 0.2})
    found = curves.by_label(curves.read_curves(read_runs([tmp_path]), "eval_return"))
    assert set(found) == {"cvaml-1-0 noise=unset", "cvaml-1-0 noise=0.1", "cvaml-1-0 noise=0.2"}


def test_runs_of_one_configuration_share_a_label(tmp_path):
    agent_run(tmp_path / "a", settings={"k": 4, "seed": 0, "out": "x"}, tasks=("dog-run",))
    agent_run(tmp_path / "b", settings={"k": 4, "seed": 9, "out": "y"}, tasks=("dog-run",))
    found = curves.by_label(curves.read_curves(read_runs([tmp_path]), "eval_return"))
    assert list(found) == ["cvaml-1-0"]
    assert len({one.run for one in found["cvaml-1-0"]}) == 6


def test_labels_come_in_the_order_of_the_study():
    names = ["td3", "vaml-1-1", "other", "cvaml-1-0+noaux", "cvaml-1-0", "vaml-1-0 deterministic"]
    found = curves.by_label(curve([0], [0], label=name) for name in names)
    assert list(found) == [
        "cvaml-1-0",
        "vaml-1-0 deterministic",
        "vaml-1-1",
        "other",
        "cvaml-1-0+noaux",
        "td3",
    ]
