"""The definition of the deep study and the plan that fits a budget."""

import dataclasses
import json
from pathlib import Path

import pytest

from cvaml.agent.config import preset
from cvaml.cli import main
from cvaml.experiments.dmc import ARMS, GROUPS, STAGES, Config, as_cell, pieces
from cvaml.experiments.dmc_plan import choose, dmc_plan, hours, rates
from cvaml.types import UserError

RATE = 1000.0


def test_the_study_in_full():
    whole = pieces(Config())
    assert len(ARMS) == 17  # 6 of the paper, 5 ablations, 2 with equal k, 4 with action noise
    assert len(whole) == 17 * 2 * 3
    assert len({piece.name for piece in whole}) == len(whole)
    assert whole[0].name == "dog-stochastic-cvaml-1-0-seeds0000-0039-1000000"
    assert sum(piece.steps for piece in whole) == 17 * 7 * 30 * 500_000
    curves = {(p.arm, p.group): 0 for p in whole}
    assert len(curves) == 17 * 2
    for piece in whole:
        curves[piece.arm, piece.group] += piece.members * len(piece.tasks)
    assert {group: {n for (_, g), n in curves.items() if g == group} for group in GROUPS} == {
        "dog": {4 * 30},
        "humanoid": {3 * 30},
    }


def test_every_arm_is_an_agent():
    for stage in STAGES.values():
        for arm, _ in stage:
            agent = preset("paper", variant=arm.variant, model=arm.model, k=arm.k)
            assert agent.model == arm.model
            if arm.k:
                assert agent.variant.k == arm.k


def test_seeds_are_disjoint_within_an_arm_and_equal_between_arms():
    whole = pieces(Config(members=5, block=2, seed=100))
    seeds: dict = {}
    for piece in whole:
        own = range(piece.seed, piece.seed + piece.members * len(piece.tasks))
        seeds.setdefault((piece.arm, piece.group), []).extend(own)
    for (_, group), used in seeds.items():
        assert used == list(range(100, 100 + 5 * len(GROUPS[group])))


def test_a_cell_says_everything():
    config = Config(set=(("planner.horizon=2",),), action_noise=0.2)
    noisy = next(piece for piece in pieces(config) if piece.arm.noisy)
    cell = as_cell(config, noisy)
    assert cell.done == f"{noisy.name}/done.json"
    assert (cell.cpus, cell.gpus, cell.work) == (16.0, 1.0, float(noisy.steps))
    assert json.loads(json.dumps(cell.arguments)) == {
        "name": noisy.name,
        "tasks": list(GROUPS["dog"]),
        "members": 10,
        "seed": 0,
        "agent_steps": 500_000,
        "variant": "cvaml-1-0",
        "model": "stochastic",
        "k": 4,
        "action_noise": 0.2,
        "preset": "paper",
        "settings": {"planner.horizon": "2"},
        "checkpoint_every": None,
    }
    assert as_cell(config, pieces(config)[0]).arguments["action_noise"] == 0.0


def test_parts_of_the_study():
    some = pieces(Config(tasks=("dog-run", "humanoid-run"), arms=("stochastic-td3",), members=1))
    assert [piece.name for piece in some] == [
        "dog+run-stochastic-td3-seeds0000-0000-1000000",
        "humanoid+run-stochastic-td3-seeds0000-0000-1000000",
    ]
    with pytest.raises(UserError, match="no cell of the study"):
        pieces(Config(arms=()))


def test_a_budget_takes_the_questions_in_order():
    config = Config(budget=6.0, steps_per_s=RATE)
    chosen, left_out = choose(config)
    rate = rates(config)
    assert sum(hours(piece, rate) for piece in chosen) <= 6.0
    assert chosen + left_out  # nothing is both taken and left
    assert {p.name for p in chosen}.isdisjoint(p.name for p in left_out)
    assert len(chosen) + len(left_out) == len(pieces(config))
    # 2 members: 14 curves of half a million steps at 1000/s are 1.94 h, then 12 on humanoid
    stages = list(dict.fromkeys(piece.stage for piece in chosen))
    assert stages == list(STAGES)[: len(stages)]
    assert {piece.members for piece in chosen} == {2}
    assert {p.group for p in chosen if p.stage == stages[0]} == {"dog", "humanoid"}
    everything, none = choose(dataclasses.replace(config, budget=1e6))
    assert (len(everything), none) == (len(pieces(config)), [])


def test_too_small_a_budget_halves_the_steps():
    chosen, _ = choose(Config(budget=1.5, steps_per_s=RATE))
    assert {piece.agent_steps for piece in chosen} == {250_000}
    assert {piece.group for piece in chosen} == {"dog", "humanoid"}
    with pytest.raises(UserError, match=r"--budget 0\.1 holds no cell: the smallest takes 0\.417"):
        choose(Config(budget=0.1, steps_per_s=RATE))


def test_rates_come_from_benchmarks(tmp_path):
    paths = []
    for task, rate in (("dog-run", 900.0), ("humanoid-walk", 1800.0)):
        paths.append(tmp_path / f"{task}.json")
        paths[-1].write_text(json.dumps({"task": [task], "training": rate}))
    assert rates(Config(bench=tuple(paths))) == {"dog": 900.0, "humanoid": 1800.0}
    assert rates(Config(bench=(paths[0],))) == {"dog": 900.0, "humanoid": 900.0}
    assert rates(Config(bench=(paths[0],), steps_per_s=5.0)) == {"dog": 5.0, "humanoid": 5.0}
    assert rates(Config()) == {}
    with pytest.raises(UserError, match="no measurement of a humanoid task"):
        rates(Config(bench=(paths[0], paths[0])))
    (tmp_path / "bad.json").write_text("{}")
    with pytest.raises(UserError, match=r"bad\.json is no result of cvaml bench train"):
        rates(Config(bench=(tmp_path / "bad.json",)))


def test_dry_run(tmp_path, capsys):
    arguments = ["sweep", "dmc", "--dry-run", "--out", str(tmp_path / "d")]
    assert main(arguments) == 0
    out = capsys.readouterr().out
    assert "dog-deterministic-vaml-1-1-seeds0000-0039-1000000" in out
    assert f"dmc: 102 cells, 0 done, in {tmp_path / 'd'}" in out
    all_of_it = next(line for line in out.splitlines() if line.startswith("all "))
    assert all_of_it.split() == ["all", "3570", "1785.0", "M"]
    assert main([*arguments, "--budget", "6", "--steps-per-s", "1000"]) == 0
    out = capsys.readouterr().out
    assert "left out by a budget of 6 hours:" in out
    left = out.split("left out by")[1]
    assert "cvaml against vaml at equal k with action noise" in left
    assert not (tmp_path / "d").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tasks": ("dog-fly",)}, "--tasks: no 'dog-fly'; allowed are dog-stand"),
        ({"arms": ("vaml",)}, "--arms: no 'vaml'; allowed are stochastic-cvaml-1-0"),
        ({"members": 0}, "--members must be at least 1, got 0"),
        ({"block": 0}, "--block must be at least 1, got 0"),
        ({"env_steps": 1}, "--env-steps must be at least 4, got 1"),
        ({"budget": 0.0}, "--budget must be positive and finite"),
        ({"budget": 1.0}, "--budget needs a rate"),
        ({"action_noise": 0.0}, "--action-noise must be positive"),
        ({"cpus": 0.0}, "leave no place to run"),
    ],
)
def test_what_makes_no_sense_is_refused(change, message):
    with pytest.raises(UserError, match=message):
        dmc_plan(dataclasses.replace(Config(out=Path("unused")), **change))


@pytest.mark.slow
def test_a_tiny_study_is_run_and_summarised(tmp_path, capsys):
    pd = pytest.importorskip("pandas")
    command = "sweep dmc --tasks dog-stand --arms stochastic-td3 stochastic-vaml-1-0-k4 "
    command += "--preset small --env-steps 40 --members 2 --block 1 --set batch_size=4 "
    command += (
        f"network.width=8 network.latent=8 planner.samples=8 planner.elites=2 --out {tmp_path}"
    )
    assert main(command.split()) == 0
    names = sorted(path.name for path in tmp_path.iterdir() if path.is_dir())
    assert names[0] == "dog+stand-stochastic-td3-seeds0000-0000-40"
    assert len(names) == 4
    config = json.loads((tmp_path / names[2] / "config.json").read_text())["settings"]
    assert (config["agent"]["variant"], config["agent"]["k"]) == ("vaml-1-0", 4)
    summary = pd.read_csv(tmp_path / "summary.csv")
    assert list(summary["members"]) == [2, 2]
    assert list(summary["k"]) == [1, 4]
    assert set(summary["env_step"]) == {40}
    assert (summary["low"] <= summary["mean"]).all()
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*/done.json")}
    assert main(command.split()) == 0  # nothing is run again
    assert before == {path: path.stat().st_mtime_ns for path in tmp_path.glob("*/done.json")}
    assert "4/4 cells done" in capsys.readouterr().err
