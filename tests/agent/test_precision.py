"""Reduced arithmetic moves losses, gradients and actions a little, never much.

No CPU has TF32 products, so a program is evaluated with the inputs of every product rounded as
the tensor cores round them: to ten bits behind the leading one.
"""

import re

import equinox as eqx
import jax
import jax.extend
import jax.numpy as jnp
import numpy as np
import pytest
from agent_cases import filled, keys, tiny

from cvaml.agent import population
from cvaml.agent.objective import objective
from cvaml.agent.policy import act_member
from cvaml.agent.replay import sample_member
from cvaml.agent.state import Spec
from cvaml.agent.update import learn

SPEC = Spec(3, 2)
EXACT = {"planner__precision": "float32", "optim__precision": "float32"}


def as_tf32(x):
    """Rounded to the nearest TF32 number."""
    bits = jax.lax.bitcast_convert_type(x, jnp.uint32)
    return jax.lax.bitcast_convert_type((bits + 0x1000) & jnp.uint32(0xFFFFE000), jnp.float32)


def compiled(function):
    """Quickly compiled: every program here runs once."""
    return jax.jit(function, compiler_options={"xla_backend_optimization_level": 0})


def with_tf32_products(function):
    """The function with TF32 products; jitted, without loops."""

    def evaluate(jaxpr, constants, *arguments):
        values = dict(zip(jaxpr.constvars, constants, strict=True))
        values |= dict(zip(jaxpr.invars, arguments, strict=True))

        def read(atom):
            return atom.val if isinstance(atom, jax.extend.core.Literal) else values[atom]

        for equation in jaxpr.eqns:
            inputs = [read(atom) for atom in equation.invars]
            inner = equation.params.get("jaxpr", equation.params.get("call_jaxpr"))
            if equation.primitive.name == "dot_general":
                inputs = [as_tf32(x) for x in inputs]
            if isinstance(inner, jax.extend.core.ClosedJaxpr) and "length" not in equation.params:
                found = evaluate(inner.jaxpr, inner.consts, *inputs)
            else:
                found = equation.primitive.bind(*inputs, **equation.params)
                found = found if equation.primitive.multiple_results else [found]
            values |= dict(zip(equation.outvars, found, strict=True))
        return [read(atom) for atom in jaxpr.outvars]

    def rounded(*arguments):
        closed, shape = jax.make_jaxpr(function, return_shape=True)(*arguments)
        found = evaluate(closed.jaxpr, closed.consts, *jax.tree.leaves(arguments))
        return jax.tree.unflatten(jax.tree.structure(shape), found)

    return compiled(rounded)


def test_rounding_is_that_of_tf32():
    found = as_tf32(jnp.array([1.0, -3.0, 1 + 2**-10, 1 + 2**-11 + 2**-20, 1 + 2**-12, 1e-30]))
    wanted = [1.0, -3.0, 1 + 2**-10, 1 + 2**-10, 1.0, 1e-30]
    np.testing.assert_allclose(found, wanted, rtol=2**-11)
    np.testing.assert_array_equal(found[:5], np.float32(wanted[:5]))
    x = jax.random.normal(jax.random.key(0), (64, 64))
    product = with_tf32_products(jnp.matmul)(x, x)
    error = np.linalg.norm(product - x @ x) / np.linalg.norm(x @ x)
    assert 1e-4 < error < 1e-3


def lively(config, members=1):
    """Fresh critics are flat: give them something to plan for and to learn from."""
    state = population.init_population(keys(members), config, SPEC)
    critics = jax.tree.map(
        lambda x: x + 0.3 * jax.random.normal(jax.random.key(1), x.shape), state.networks.critics
    )
    return eqx.tree_at(lambda s: (s.networks.critics, s.target_critics), state, (critics, critics))


def test_tf32_moves_the_losses_and_gradients_little():
    config = tiny("cvaml-1-1", **EXACT)
    state = jax.tree.map(lambda x: x[0], lively(config))
    replay = jax.tree.map(lambda x: x[0], filled(SPEC, 1, 60))
    rows = sample_member(replay, jax.random.key(3), 32, config.sequence_length)

    def gradient(networks):
        found, (metrics, _) = jax.grad(objective, has_aux=True)(
            networks, state, rows, jax.random.key(1), config
        )
        return found, metrics

    exact, metrics = compiled(gradient)(state.networks)
    moved, rounded = with_tf32_products(gradient)(state.networks)
    for name in (n for n in metrics if n.startswith("loss/")):
        unit = max(abs(float(metrics[name])), 0.1)
        assert abs(float(rounded[name] - metrics[name])) < 0.01 * unit, name
    for part in ("encoder", "dynamics", "critics", "actor"):
        a, b = (
            np.concatenate([np.ravel(x) for x in jax.tree.leaves(getattr(found, part))])
            for found in (exact, moved)
        )
        assert np.linalg.norm(a - b) < 0.02 * np.linalg.norm(a), part
        assert np.linalg.norm(a - b) > 0, part


def actions(config, run):
    state = lively(tiny(**EXACT), 8)
    observation = np.random.default_rng(0).normal(size=(8, 3)).astype(np.float32)

    def all_of_them(state, observation):
        def one(state, observation, key):
            return act_member(state.policy, observation, key, None, config)[0]

        return jax.vmap(one)(state, observation, keys(8))

    return np.asarray(run(all_of_them)(state, observation))


@pytest.mark.parametrize("precision", ["float16", "tf32"])
def test_reduced_precision_moves_the_action_little(precision):
    sizes = {"planner__samples": 64, "planner__elites": 16}
    exact = actions(tiny(**sizes, **EXACT), compiled)
    if precision == "tf32":
        reduced = actions(tiny(**sizes, **EXACT), with_tf32_products)
    else:
        reduced = actions(tiny(**sizes, **EXACT | {"planner__precision": precision}), compiled)
    assert 0 < np.sqrt(np.mean(np.square(exact - reduced))) < 0.05


def test_half_precision_rounds_products_and_nothing_else():
    config = tiny(planner__precision="float16")
    state = jax.tree.map(lambda x: x[0], lively(config))
    act = jax.jit(lambda p: act_member(p, jnp.zeros(3), jax.random.key(0), jnp.ones(2), config))
    program = act.lower(state.policy).as_text()
    products = [x.partition("->") for x in program.splitlines() if "dot_general" in x]
    products = [x for x in products if "[0] x [0]" not in x[0]]  # the planner's mean of scores
    assert len(products) > 10
    for operands, _, result in products:
        assert operands.count("f16>") == 2
        assert "f32>" in result
    arithmetic = [x for x in program.splitlines() if re.search(r"\.(add|multiply|exp|tanh)", x)]
    assert arithmetic
    assert not any("f16>" in x for x in arithmetic)


@pytest.mark.parametrize(("precision", "allows"), [("float32", False), ("tf32", True)])
def test_the_settings_reach_the_products(precision, allows):
    config = tiny(planner__precision=precision, optim__precision=precision)
    state = jax.tree.map(lambda x: x[0], lively(config))
    rows = sample_member(jax.tree.map(lambda x: x[0], filled(SPEC, 1, 20)), jax.random.key(0), 8, 2)
    key = jax.random.key(0)
    update = jax.jit(lambda s: learn(s, rows, key, config)).lower(state).as_text()
    act = jax.jit(lambda p: act_member(p, jnp.zeros(3), key, jnp.ones(2), config))
    act = act.lower(state.policy).as_text()
    for program in (update, act):
        assert ("precision = [HIGHEST, HIGHEST]" in program) is not allows
        assert ("precision = [HIGH, HIGH]" in program) is allows
