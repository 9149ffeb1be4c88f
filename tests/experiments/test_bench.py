import dataclasses
import json

import jax
import jax.numpy as jnp
import pytest

from cvaml import UserError
from cvaml.agent.config import preset
from cvaml.agent.config_text import override
from cvaml.agent.flops import count_flops
from cvaml.agent.train_config import train_preset
from cvaml.experiments import bench


def test_flops_of_products_loops_and_branches():
    a, b = jnp.zeros((3, 4)), jnp.zeros((4, 5))
    assert count_flops(lambda x, y: x @ y, a, b) == 2 * 3 * 4 * 5

    def looped(x):
        body = lambda carry, _: (jnp.tanh(carry @ x), None)  # noqa: E731
        return jax.lax.scan(body, jnp.zeros((2, 4)), None, length=7)[0]

    assert count_flops(looped, jnp.zeros((4, 4))) == 7 * 2 * 2 * 4 * 4
    nested = jax.vmap(jax.jit(lambda x: x @ b))
    assert count_flops(nested, jnp.zeros((6, 3, 4))) == 6 * 2 * 3 * 4 * 5
    branches = lambda x: jax.lax.cond(True, lambda x: x @ x @ x, lambda x: x @ x, x)  # noqa: E731
    assert count_flops(branches, jnp.zeros((2, 2))) == 2 * 2 * 8


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    small = {
        "network.width": "16",
        "network.latent": "16",
        "network.bins": "11",
        "planner.samples": "8",
        "planner.elites": "4",
        "planner.iterations": "2",
        "batch_size": "8",
        "random_steps": "10",
    }
    config = train_preset(
        "small", tmp_path_factory.mktemp("bench"), override(preset("small"), small)
    )
    config = dataclasses.replace(
        config, task=("humanoid-stand",), members=2, agent_steps=2000, eval_episodes=1, threads=1
    )
    return bench.measure(config, seconds=1.0)


@pytest.mark.slow
def test_the_benchmark_measures_every_part(found):
    assert found["members"] == 2
    assert found["ratio"] == pytest.approx(found["training"] / found["bare_physics"])
    assert all(found[name] > 0 for name in bench.RATES)
    assert found["training"] < found["update"], "the loop contains the update"
    assert found["timed_s"] >= 1.0
    text = bench.table(found, [{**found, "commit": "0123456789"}])
    assert "0123456" in text
    assert "% of bfloat16" in text


def test_results_can_be_compared_only_with_results(tmp_path):
    path = tmp_path / "earlier.json"
    earlier = dict.fromkeys((*bench.RATES, "ratio"), 1.0)
    path.write_text(json.dumps(earlier))
    assert bench._read(path) == earlier
    path.write_text("{}")
    with pytest.raises(UserError, match="lacks bare_physics"):
        bench._read(path)
    with pytest.raises(UserError, match="cannot read"):
        bench._read(tmp_path / "none.json")
