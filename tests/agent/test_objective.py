"""The full loss: who learns from what, and the stochastic chain with its known slopes."""

import functools
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from agent_cases import filled, keys, tiny
from test_rollout import Chain

from cvaml.agent import population
from cvaml.agent.networks import Actor, Critic, Encoder
from cvaml.agent.objective import Networks, bootstrap, objective, spread_penalty
from cvaml.agent.replay import Rows, sample_member
from cvaml.agent.state import MemberSettings, Moments, Spec, init_member, member_settings
from cvaml.losses import gaussian_nll

SPEC = Spec(3, 2)
MUZERO = tiny("vaml-1-1", real_fraction=1.0)


@pytest.fixture(scope="module")
def rows() -> Rows:
    replay = filled(SPEC, 1, 60)
    return sample_member(jax.tree.map(lambda x: x[0], replay), jax.random.key(3), 32, 3)


ALONE = dict.fromkeys(("aux", "spread", "sigma_pull", "reward", "critic", "pre_tanh"), 0.0)
CASES = {
    "full": {},
    "alone": ALONE,
    "nothing": ALONE | {"vaml": 0.0},
    "spread": ALONE | {"vaml": 0.0, "spread": 1.0},
    "pulled": ALONE | {"vaml": 0.0, "sigma_pull": 1.0},
    "uncorrected": ALONE | {"correction": 0.0},
    "held": {"pre_tanh": 10.0},
    "mean of critics": {"pessimism": 0.0},
}


def settings(config, **values) -> MemberSettings:
    given = {name: [value] for name, value in values.items()}
    return jax.tree.map(lambda x: x[0], member_settings(config, 1, given))


@functools.cache
def compiled(config):
    """Gradients and metrics by settings and rows, with values that are no longer flat."""

    def run(each, rows):
        state = _lively(init_member(jax.random.key(0), config, SPEC, each))
        found = jax.grad(objective, has_aux=True)(
            state.networks, state, rows, jax.random.key(1), config
        )
        return found[0], found[1][0]

    mapped = jax.vmap(run, in_axes=(0, None))
    return jax.jit(mapped, compiler_options={"xla_backend_optimization_level": 0})


def gradients(config, rows):
    """Gradients and metrics of every case."""
    rows = jax.tree.map(lambda x: x[:, : config.sequence_length], rows)
    cases = [settings(config, **case) for case in CASES.values()]
    grads, metrics = compiled(config)(jax.tree.map(lambda *x: jnp.stack(x), *cases), rows)
    return {
        name: (
            jax.tree.map(lambda x, i=i: x[i], grads),
            {n: float(v[i]) for n, v in metrics.items()},
        )
        for i, name in enumerate(CASES)
    }


def loss_names(config, rows):
    """The losses a configuration has, without compiling anything."""
    rows = jax.tree.map(lambda x: x[:, : config.sequence_length], rows)

    def run():
        state = init_member(jax.random.key(0), config, SPEC, settings(config))
        return objective(state.networks, state, rows, jax.random.key(1), config)[1][0]

    return {name for name in jax.eval_shape(run) if name.startswith("loss/")}


def _lively(state):
    """Heads start at 0; random ones give every path a gradient."""
    leaves, tree = jax.tree.flatten(state)
    count = len(jax.tree.leaves((state.networks, state.target_critics)))
    noise = [
        0.3 * jax.random.normal(jax.random.key(i), x.shape) for i, x in enumerate(leaves[:count])
    ]
    return jax.tree.unflatten(
        tree, [x + n for x, n in zip(leaves, noise, strict=False)] + leaves[count:]
    )


def size(tree) -> float:
    return float(sum(jnp.sum(jnp.abs(x)) for x in jax.tree.leaves(tree)))


@pytest.fixture(scope="module")
def calibrated(rows):
    return gradients(tiny("cvaml-1-0", loss__spread_floor=10), rows)


def test_iterated_loss_reaches_the_model_but_not_the_critics(calibrated):
    grads, _ = calibrated["alone"]
    assert size(grads.critics) == 0
    assert size(grads.dynamics.mean) > 0
    assert size(grads.encoder) > 0
    grads, _ = calibrated["nothing"]
    assert size(grads.dynamics) == size(grads.encoder) == 0
    assert size(grads.actor) > 0


def test_muzero_loss_reaches_the_critics_too(rows):
    grads, metrics = gradients(MUZERO, rows)["alone"]
    assert size(grads.critics) > 0
    assert size(grads.dynamics.mean) > 0
    assert metrics["correction"] == 0


def test_the_correction_reaches_sigma_through_the_whole_loss(calibrated):
    corrected, metrics = calibrated["alone"]
    plain, plain_metrics = calibrated["uncorrected"]
    difference = jax.tree.map(
        lambda x, y: x - y, corrected.dynamics.log_std, plain.dynamics.log_std
    )
    assert size(difference) > 0.01 * size(plain.dynamics.log_std) > 0
    assert metrics["correction"] > 0
    assert metrics["value_variance"] == pytest.approx(4 * metrics["correction"], rel=0.01)
    scale = (plain_metrics["loss/vaml"] - metrics["loss/vaml"]) / metrics["correction"]
    assert scale == pytest.approx(1, rel=1e-3)


def test_ablations_leave_out_what_they_name(rows):
    value_free = {"loss/critic", "loss/actor"}
    model = {"loss/reward", "loss/continuation", "loss/sigma_pull"}
    auxiliary = {"loss/aux", "loss/spread"}
    everything = {"loss/vaml"} | auxiliary | model | value_free
    assert loss_names(tiny("cvaml-1-0"), rows) == everything
    assert loss_names(tiny("cvaml-1-0+noaux"), rows) == everything - auxiliary
    assert loss_names(tiny("aux-only"), rows) == everything - {"loss/vaml"}
    assert loss_names(tiny("td3"), rows) == value_free
    deterministic = tiny("vaml-1-0", "deterministic")
    assert loss_names(deterministic, rows) == everything - {"loss/sigma_pull"}
    grads, _ = gradients(tiny("td3"), rows)["full"]
    assert size(grads.dynamics) == 0
    assert size(grads.encoder) > 0


def test_deterministic_models_have_no_spread(rows):
    grads, metrics = gradients(tiny("vaml-1-0", "deterministic"), rows)["full"]
    assert size(grads.dynamics.log_std) == 0
    assert size(grads.dynamics.mean) > 0
    assert metrics["value_variance"] == 0


def test_the_pre_tanh_penalty_pulls_the_actor_back(calibrated):
    free, held = calibrated["full"][0].actor.out.bias, calibrated["held"][0].actor.out.bias
    assert not np.allclose(free, held)


def test_the_spread_penalty_is_the_encoders_alone(calibrated):
    grads, metrics = calibrated["spread"]
    nothing, _ = calibrated["nothing"]
    assert metrics["loss/spread"] > 0
    assert size(grads.encoder) > 0 == size(grads.dynamics) == size(grads.critics)
    assert size(grads.actor) == size(nothing.actor)


def test_the_pull_of_sigma_is_the_models_and_not_the_means(calibrated):
    grads, metrics = calibrated["pulled"]
    nothing, _ = calibrated["nothing"]
    assert metrics["loss/sigma_pull"] > 0
    assert size(grads.dynamics.log_std) > 0 < size(grads.encoder)
    assert size(grads.dynamics.mean) == size(grads.dynamics.outcome) == size(grads.critics) == 0
    assert size(grads.actor) == size(nothing.actor)


def test_sigma_is_pulled_to_its_start_however_far_it_is(rows):
    config = tiny("cvaml-1-0", network__log_std_init=-2.0)
    rows = jax.tree.map(lambda x: x[:, : config.sequence_length], rows)
    each = settings(config, **(ALONE | {"vaml": 0.0, "sigma_pull": 1.0}))
    state = init_member(jax.random.key(0), config, SPEC, each)
    head = state.networks.dynamics.log_std

    @functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})
    def pulled(distance):
        moved = type(head)(0 * head.weight, head.bias + distance)
        networks = eqx.tree_at(lambda n: n.dynamics.log_std, state.networks, moved)
        args = state, rows, jax.random.key(1), config
        grads, (metrics, _) = jax.grad(objective, has_aux=True)(networks, *args)
        return metrics["loss/sigma_pull"], jnp.sum(grads.dynamics.log_std.bias)

    assert pulled(0.0) == (0.0, 0.0)
    # 30 beyond the start the sigmoid's slope is 0 in float32.
    for distance in (-30.0, 1.0, 30.0):
        assert pulled(distance) == pytest.approx((distance**2, 2 * distance), rel=1e-4)


def test_the_spread_penalty_counts_halvings_below_the_floor():
    z = 0.05 * jnp.array([[1.0, -1.0], [-1.0, 1.0]])
    slope = jax.grad(lambda c: spread_penalty(c * z, 0.1))
    assert spread_penalty(z, 0.1) == pytest.approx(np.log(2), rel=1e-5)
    assert slope(1.0) == pytest.approx(-1, rel=1e-5)
    assert spread_penalty(2.1 * z, 0.1) == slope(2.1) == 0
    assert not jnp.any(jax.grad(spread_penalty)(jnp.ones((2, 2)), 0.1))  # no NaN at one point


def test_shrinking_the_latent_space_gains_nothing_below_the_floor():
    z, mean, log_std = jax.random.normal(jax.random.key(0), (3, 16, 4))

    def total(c):
        likelihood = jax.vmap(gaussian_nll)(c * mean, log_std + jnp.log(c), c * z)
        return jnp.mean(likelihood) / 4 + spread_penalty(c * z, 5.0)

    assert total(0.01) == pytest.approx(float(total(1.0)), rel=1e-3)


@pytest.mark.parametrize(
    ("pessimism", "wanted"), [(1.0, [1, -3]), (0.0, [2, -1]), (0.5, [1.5, -2])]
)
def test_bootstrap_lies_between_the_smaller_critic_and_the_mean(pessimism, wanted):
    values = jnp.array([[1.0, 1.0], [3.0, -3.0]])
    np.testing.assert_allclose(bootstrap(values, jnp.asarray(pessimism)), wanted)


def test_pessimism_lowers_the_targets_of_both_losses(rows):
    """Those of TD, and of the value-aware loss if it bootstraps."""
    found = gradients(MUZERO, rows)
    lower, mean = found["full"][1], found["mean of critics"][1]
    assert lower["target_mean"] < mean["target_mean"] - 1e-3
    assert lower["loss/vaml"] != pytest.approx(mean["loss/vaml"], rel=1e-3)


def test_termination_stops_the_bootstrap_truncation_does_not():
    def targets(terminates):
        replay = filled(SPEC, 1, 60, episode=1, terminates=terminates)
        one = sample_member(jax.tree.map(lambda x: x[0], replay), jax.random.key(3), 32, 3)
        return gradients(MUZERO, one)["full"][1]

    ended, cut = targets(True), targets(False)
    # Every episode has one step: terminated ones have the mean reward as their target.
    assert abs(ended["target_mean"]) < 0.3
    assert ended["target_mean"] != pytest.approx(cut["target_mean"], abs=1e-4)
    # A cut-off successor has no reward after it, so the (1, 1) loss has nothing to compare with.
    assert cut["loss/vaml"] == 0
    assert ended["loss/vaml"] > 0


@pytest.mark.slow  # one compilation each
@pytest.mark.parametrize(
    "changed",
    [
        {"loss__target_noise": 0.3},
        {"real_fraction": 0.5},
        {"network__observation_norm": "off"},
        {"loss__value_scale": "raw"},
        {"network__latent_norm": "simnorm"},
        {"loss__aux_reduction": "sum"},
        {"loss__spread_floor": 10},
    ],
)
def test_options_have_an_effect(rows, changed):
    rows = jax.tree.map(lambda x: x[:, :2], rows._replace(reward=20 * rows.reward))
    plain, other = (forward(config)(rows) for config in (tiny(), tiny(**changed)))
    moved = [abs(float(other[n] - plain[n])) / (abs(float(plain[n])) + 1e-6) for n in plain]
    assert max(moved) > 1e-4  # what an option does not touch stays equal to the last bits


@functools.cache
def forward(config):
    """The metrics by rows, with running scales that matter."""

    def run(rows):
        state = _lively(init_member(jax.random.key(0), config, SPEC, settings(config)))
        spread = Moments(jnp.zeros(()), jnp.full((), 9.0), jnp.ones(()))
        observations = Moments(jnp.ones(3), jnp.full(3, 4.0), jnp.ones(()))
        state = eqx.tree_at(
            lambda s: (s.scales.value, s.scales.observation), state, (spread, observations)
        )
        return objective(state.networks, state, rows, jax.random.key(1), config)[1][0]

    return jax.jit(run, compiler_options={"xla_backend_optimization_level": 0})


class Identity(Encoder):
    def __init__(self):
        self.hidden, self.out, self.norm, self.group = None, None, "identity", 1

    def __call__(self, observation):
        return observation


class Line(Critic):
    """Q(z, a) = slope · z."""

    slope: jax.Array

    def __init__(self, slope):
        self.slope = slope
        self.first, self.second, self.out = None, None, None

    def __call__(self, z, action):
        return self.slope * z


class Idle(Actor):
    def __init__(self):
        self.first, self.second, self.out = None, None, None

    def __call__(self, z):
        return jnp.zeros_like(z)


def chain_slope(name, k, td):
    """The slope of a linear V after training on x' = 0.8 x + 0.6 ε, where V(x) = x is right."""
    config = tiny(
        name,
        k=k,
        network__critic_head="scalar",
        network__observation_norm="off",
        discount=0.0,
        batch_size=4096,
        real_fraction=1.0,
        loss__value_scale="raw",
    )
    # One critic's target is the reward x itself; the model is the true kernel.
    config = replace(config, variant=replace(config.variant, aux=False))
    base = init_member(jax.random.key(0), config, Spec(1, 1), settings(config, critic=td))
    networks = Networks(Identity(), Chain(), Line(jnp.zeros(2)), Idle())
    length = config.sequence_length

    def batch(key):
        x = [jax.random.normal(key, (4096,))]
        for t in range(length - 1):
            step = 0.6 * jax.random.normal(jax.random.fold_in(key, t), (4096,))
            x.append(0.8 * x[-1] + step)
        x = jnp.stack(x, axis=1)
        off = jnp.zeros(x.shape, bool)
        return Rows(x[..., None], jnp.zeros((*x.shape, 1)), x, off, off)

    def step(slopes, key):
        found = replace_networks(networks, slopes)
        state = base_with(base, found)
        grads, _ = jax.grad(objective, has_aux=True)(found, state, batch(key), key, config)
        return slopes - 0.1 * grads.critics.slope * 2, slopes

    _, path = jax.jit(lambda ks: jax.lax.scan(step, jnp.zeros(2), ks))(keys(200))
    return float(jnp.mean(path[100:]))


def replace_networks(networks, slopes):
    return Networks(networks.encoder, networks.dynamics, Line(slopes), networks.actor)


def base_with(state, networks):
    return type(state)(
        networks, networks.critics, state.optimisers, state.scales, state.settings, state.step
    )


@pytest.mark.parametrize(
    ("name", "k", "td", "slope"),
    [("vaml-1-1", 1, 0.0, 0.64), ("vaml-1-1", 1, 1.0, 0.82), ("cvaml-1-0", 4, 1.0, 1.0)],
)
def test_slope_on_the_linear_gaussian_chain(name, k, td, slope):
    assert chain_slope(name, k, td) == pytest.approx(slope, abs=0.05)


def test_population_settings_are_refused_by_name():
    from cvaml.types import UserError

    with pytest.raises(UserError, match="unknown member setting 'vamll'"):
        population.init_population(keys(2), tiny(), SPEC, {"vamll": [1.0, 2.0]})
    with pytest.raises(UserError, match="needs 2 values"):
        population.init_population(keys(2), tiny(), SPEC, {"vaml": [1.0]})
