"""Counts the kernels that XLA makes of planning and of an update for an H200, with no GPU present.

Launching a kernel costs a few microseconds, so where kernels are small their number is the time.
XLA compiles for a described device as for a real one, less what is tuned by measuring.

    pip install "jax[cuda12]"    # in an environment of its own: 3 GB, the driver is not needed
    python benchmarks/kernels.py --members 8
"""

import argparse
import importlib.util
import os
import time
from functools import partial
from pathlib import Path
from typing import Any

os.environ["JAX_PLATFORMS"] = "cpu"  # nothing runs on the described device

import jax
import jax.numpy as jnp
from jax.experimental import topologies
from jaxlib import xla_client

from cvaml.agent import population
from cvaml.agent.config import preset
from cvaml.agent.config_text import override
from cvaml.agent.state import Flat, Spec, flat_policy
from cvaml.agent.sums import Sums

H200 = """
gpu_device_info {
  threads_per_block_limit: 1024
  threads_per_warp: 32
  shared_memory_per_block: 49152
  shared_memory_per_core: 233472
  shared_memory_per_block_optin: 232448
  threads_per_core_limit: 2048
  core_count: 132
  fpus_per_core: 128
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
  memory_bandwidth: 4800000000000
  l2_cache_size: 52428800
  clock_rate_ghz: 1.98
  device_memory_size: 150000000000
  cuda_compute_capability { major: 9 minor: 0 }
  registers_per_core_limit: 65536
  registers_per_block_limit: 65536
}
platform_name: "CUDA"
dnn_version_info { major: 9 minor: 10 }
device_description_str: "NVIDIA H200"
"""
DOG = Spec(observation_size=223, action_size=38)


def main() -> None:
    """Prints one line for each program."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--members", type=int, default=8)
    parser.add_argument("--variant", default="cvaml-1-0")
    parser.add_argument("--set", nargs="*", default=[], help="key=value for the agent")
    parser.add_argument("--plugin", type=Path, help="xla_cuda_plugin.so, if not the installed one")
    parser.add_argument("--hlo", type=Path, help="folder for the compiled programs as text")
    args = parser.parse_args()
    device = described_device(args.plugin or installed_plugin())
    config = override(
        preset("paper", variant=args.variant), dict(item.split("=") for item in args.set)
    )
    for name, lowered in programs(config, args.members, device).items():
        start = time.perf_counter()
        compiled = lowered().compile()
        seconds = time.perf_counter() - start
        text = compiled.as_text()
        if args.hlo:
            args.hlo.mkdir(parents=True, exist_ok=True)
            (args.hlo / f"{name}-{args.members}.txt").write_text(text)
        memory = compiled.memory_analysis().temp_size_in_bytes / 2**20
        print(f"{name:10}{kernels(text)}, {memory:.0f} MiB of scratch, compiled in {seconds:.0f} s")


def programs(config: Any, members: int, device: jax.Device) -> dict[str, Any]:
    """Functions that lower planning and the update for the device, from shapes alone."""
    keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), members))
    state = jax.eval_shape(lambda k: Flat.of(population.init_population(k, config, DOG)), keys)
    replay = jax.eval_shape(lambda: population.init_replay(DOG, members, 100_000))
    sums = jax.eval_shape(lambda: Sums.start(members))
    step = jax.ShapeDtypeStruct((members, 2 * DOG.observation_size + DOG.action_size + 3), "f4")
    observation = jax.ShapeDtypeStruct((members, DOG.observation_size), jnp.float32)
    count = jax.ShapeDtypeStruct((), jnp.int32)
    _, planned = jax.eval_shape(
        lambda *inputs: population._act(*inputs, config, True, None),
        *(flat_policy(state), observation, keys, count),
    )
    there = jax.sharding.SingleDeviceSharding(device)

    def place(tree: Any) -> Any:
        return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=there), tree)

    acting = place((flat_policy(state), observation, keys, count))
    learning = place((state, replay, sums, step, planned, keys))
    return {
        "planning": partial(population._act.lower, *acting, config, True, None),
        "update": partial(population._add_and_update.lower, *learning, config, 1, None),
    }


def kernels(text: str) -> str:
    """What the entry computation launches, and each loop's body."""
    counts: dict[str, int] = {}
    name = ""
    for line in text.splitlines():
        if line.endswith("{") and not line.startswith(" "):
            name = "entry" if line.startswith("ENTRY") else line.split()[0]
        elif any(f" {op}(" in line for op in ("fusion", "custom-call", "copy", "sort")):
            counts[name] = counts.get(name, 0) + 1
    loops = [n for n in counts if f"body={n}," in text]
    each = "".join(f", and {counts[n]} in every round of a loop" for n in loops)
    return f"{counts['entry']} kernels{each}"


def described_device(plugin: Path) -> jax.Device:
    """A device that can be compiled for."""
    api = xla_client.load_pjrt_plugin_dynamically("cuda", str(plugin))
    xla_client.initialize_pjrt_plugin("cuda")
    topology = xla_client.make_c_api_device_topology(
        api, "h200", topology="1 x 1 x 1", target_config=H200
    )
    device: jax.Device = topologies.TopologyDescription(
        topology._make_compile_only_devices()
    ).devices[0]
    return device


def installed_plugin() -> Path:
    """The library of JAX's CUDA plugin."""
    package = importlib.util.find_spec("jax_plugins")
    for folder in package.submodule_search_locations or () if package else ():
        for found in sorted(Path(folder).glob("xla_cuda*/xla_cuda_plugin.so")):
            return found
    raise SystemExit('no CUDA plugin is installed; pip install "jax[cuda12]", or give --plugin')


if __name__ == "__main__":
    main()
