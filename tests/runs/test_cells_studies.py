"""Whole studies on a Ray cluster of two nodes, one of which dies."""

import dataclasses

import pytest
from ray_nodes import killing, two_nodes

from cvaml.cli import main
from cvaml.experiments import garnet
from cvaml.experiments.dmc import Config
from cvaml.experiments.dmc_plan import dmc_plan
from cvaml.runs.cells import run_cells
from cvaml.runs.inline import Inline
from cvaml.runs.metrics import read_metrics
from cvaml.runs.ray_executor import RayExecutor

pytestmark = pytest.mark.slow
SIZE = "garnet --problems 40 --ranks 1 2 3 --temperatures 0.1 1 --steps 3000 --tolerance 0"
GARNET = [*SIZE.split(), "--variants", "mle", "cvaml-1-0"]
SAME = [name for name in garnet.OUTPUTS if name != "figure.pdf"]  # it holds the time
TINY = "batch_size=4 network.width=8 network.latent=8"
DMC = Config(
    tasks=("dog-stand",),
    arms=("stochastic-td3",),
    members=2,
    block=1,
    env_steps=600,
    preset="small",
    set=(tuple(TINY.split()),),
    checkpoint_every=20,
    cpus=1.0,
    gpus=0.0,
)


@pytest.fixture
def cluster():
    with two_nodes(connect=False) as found:
        yield found


def test_garnet_equals_inline_bit_for_bit(cluster, tmp_path, capsys):
    outs = [tmp_path / name for name in ("plain", "inline", "ray", "killed")]
    assert main([*GARNET, "--out", str(outs[0])]) == 0
    assert main(["sweep", *GARNET, "--out", str(outs[1])]) == 0
    ray = ["--executor", "ray", "--address", cluster.address]
    assert main(["sweep", *GARNET, *ray, "--out", str(outs[2])]) == 0
    capsys.readouterr()
    # Two cells done: by now each node has one, and another one begun.
    with killing(cluster, lambda: len(list((outs[3] / "cells").glob("*.parquet"))) >= 2):
        assert main(["sweep", *GARNET, *ray, "--out", str(outs[3])]) == 0
    err = capsys.readouterr().err
    assert "runs again" in err
    assert "sweep garnet: 9/9 cells done, 0 running, 0 failed, " in err
    for out in outs[1:]:
        for name in SAME:
            assert (out / name).read_bytes() == (outs[0] / name).read_bytes(), f"{out} {name}"


@pytest.mark.parametrize("files", ["shared", "pull"])
def test_training_goes_on_from_its_checkpoint(tmp_path, capsys, files):
    out, plan = tmp_path / "ray", dmc_plan(dataclasses.replace(DMC, out=tmp_path / "inline"))
    plan.open()
    assert run_cells(plan.cells, plan.root, Inline(), "inline") == {}
    rows = {}

    def both_have_checkpoints() -> bool:
        rows.update({p: p.stat().st_mtime_ns for p in out.glob("*/checkpoints/rows/0000000000-*")})
        return len({path.parent for path in out.glob("*/checkpoints/[0-9]*")}) == 2

    out.mkdir()
    with two_nodes() as cluster, killing(cluster, both_have_checkpoints):
        executor = RayExecutor(files=files, pull_every_s=0.5)
        assert run_cells(plan.cells, out, executor, "ray") == {}
    assert "runs again" in capsys.readouterr().err
    # Replayed steps of before the loss were not made again.
    assert len({path.parent for path in rows}) == 2
    assert {path: path.stat().st_mtime_ns for path in rows} == rows
    for folder in sorted(path.parent for path in (tmp_path / "inline").glob("*/done.json")):
        curves = [read_metrics(path) for path in (folder, out / folder.name)]
        learned = [c[~c["metric"].str.startswith("time/")].drop(columns="wall_s") for c in curves]
        assert len(learned[0]) > 10
        assert learned[0].reset_index(drop=True).equals(learned[1].reset_index(drop=True))
