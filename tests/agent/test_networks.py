import jax
import jax.numpy as jnp
import numpy as np
import pytest
from agent_cases import tiny

from cvaml.agent.config import NetworkConfig, preset
from cvaml.agent.networks import ValueHead, init_networks, latent_norm, mish, standardise
from cvaml.agent.view import q_values


def test_mish_and_standardise_with_their_gradients(x64):
    x = jnp.array([-3.0, -0.5, 0.0, 0.7, 2.0])
    exact = x * jnp.tanh(jnp.log1p(jnp.exp(x)))
    np.testing.assert_allclose(mish(x), exact, atol=1e-12)
    assert float(mish(jnp.array(100.0))) == 100

    def plain(x):
        centred = x - jnp.mean(x)
        return centred / jnp.sqrt(jnp.mean(centred**2) + 1e-5)

    np.testing.assert_allclose(standardise(x), plain(x), atol=1e-12)
    weights = jnp.array([1.0, -2.0, 0.5, 3.0, 1.0])
    gradients = [jax.grad(lambda x, f=f: jnp.sum(weights * f(x)))(x) for f in (standardise, plain)]
    np.testing.assert_allclose(*gradients, atol=1e-10)


def test_latent_norms():
    z = jnp.arange(8.0)
    groups = latent_norm(z, "simnorm", 4).reshape(2, 4)
    np.testing.assert_allclose(jnp.sum(groups, axis=1), [1, 1], rtol=1e-6)
    assert float(jnp.std(latent_norm(z, "layernorm", 4))) == pytest.approx(1, abs=1e-4)
    np.testing.assert_array_equal(latent_norm(z, "identity", 4), z)


@pytest.mark.parametrize("limit", [300.0, 2000.0])
def test_encoded_targets_decode_to_themselves(limit):
    head = ValueHead.of(NetworkConfig(value_limit=limit))
    values = jnp.array([-250.0, -40.0, -0.3, 0.0, 0.01, 0.1, 1.0, 7.0, 64.0, 199.0])
    decoded = head.decode(jnp.log(head.encode(values) + 1e-30))
    np.testing.assert_allclose(decoded, values, rtol=2e-4, atol=1e-4)


def test_bins_are_fine_where_values_are_small():
    head = ValueHead.of(preset("paper").network)
    widths = np.diff(np.asarray(head.edges))
    centre = len(widths) // 2
    assert widths[centre] < 0.1
    # Two values a hundredth apart get visibly different targets.
    targets = head.encode(jnp.array([0.10, 0.11]))
    assert float(jnp.sum(jnp.abs(targets[0] - targets[1]))) > 0.05


@pytest.mark.parametrize("critic_head", ["hl_gauss", "scalar"])
def test_values_start_at_zero(critic_head):
    config = tiny(network__critic_head=critic_head)
    networks = init_networks(jax.random.key(0), config, 3, 2)
    z = networks.encoder(jax.random.normal(jax.random.key(1), (5, 3)))
    q = q_values(networks.critics, z, jnp.zeros((5, 2)), ValueHead.of(config.network))
    np.testing.assert_allclose(q, np.zeros((2, 5)), atol=1e-4)
    assert float(jnp.max(jnp.abs(networks.actor(z)))) < 0.5
    first, second = jax.tree.map(lambda x: x[0], networks.critics), networks.critics
    assert not np.allclose(first.first.linear.weight, second.first.linear.weight[1])


def test_log_std_starts_where_it_should_and_stays_inside():
    config = tiny(network__log_std_init=-2)
    networks = init_networks(jax.random.key(0), config, 3, 2)
    z = networks.encoder(jax.random.normal(jax.random.key(1), (50, 3)))
    log_std = networks.dynamics(z, jnp.zeros((50, 2))).log_std
    assert float(jnp.mean(log_std)) == pytest.approx(-2, abs=0.2)
    steep = jax.tree.map(lambda x: 1e4 * x, networks.dynamics)
    extreme = steep(z, jnp.ones((50, 2))).log_std
    assert float(jnp.min(extreme)) >= -6
    assert float(jnp.max(extreme)) <= 0
