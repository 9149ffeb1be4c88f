import dataclasses
import json

import pytest
from agent_cases import tiny

from cvaml.agent.config import AgentConfig, preset
from cvaml.agent.config_text import describe, from_description, override
from cvaml.types import UserError


def test_paper_preset_holds_the_table_of_the_paper():
    config = preset("paper")
    assert (config.batch_size, config.discount, config.real_fraction) == (128, 0.99, 0.9)
    assert (config.network.width, config.network.latent) == (512, 512)
    optim = config.optim
    assert (optim.actor_rate, optim.critic_rate, optim.model_rate) == (3e-4, 3e-4, 3e-4)
    assert (optim.encoder_rate, optim.clip, optim.polyak) == (1e-4, 10, 0.01)
    planner = config.planner
    assert (planner.iterations, planner.samples, planner.elites, planner.horizon) == (6, 512, 64, 1)
    assert (planner.temperature, planner.std_min, planner.std_max) == (0.5, 0.05, 0.3)
    assert (config.variant.name, config.variant.k, config.random_steps) == ("cvaml-1-0", 4, 5000)


def test_hashable_and_comparable():
    assert hash(preset("small")) == hash(preset("small"))
    assert preset("small") != preset("paper")


def test_override_parses_by_type():
    settings = {
        "planner.horizon": "2",
        "planner.enabled": "off",
        "loss.vaml": "0.1",
        "network.latent_norm": "simnorm",
        "variant": "vaml-3-1",
        "discount": "0.9",
    }
    config = override(preset("small"), settings)
    assert config.planner.horizon == 2
    assert config.planner.enabled is False
    assert config.loss.vaml == 0.1
    assert config.network.latent_norm == "simnorm"
    assert (config.variant.m, config.sequence_length, config.discount) == (3, 5, 0.9)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"planner.horizn": "2"}, "did you mean 'planner.horizon'"),
        ({"planner.horizon": "two"}, "planner.horizon must be an integer, got 'two'"),
        ({"planner.enabled": "perhaps"}, "true or false"),
        ({"network.latent_norm": "batch"}, "one of 'simnorm'"),
        ({"discount": "1.5"}, "discount must be in"),
        ({"network.bins": "10"}, "odd"),
        ({"network.latent_norm": "simnorm", "network.simnorm_size": "7"}, "divisor"),
        ({"planner.elites": "10000"}, "at most planner.samples"),
        ({"network.log_std_init": "1"}, "between its bounds"),
        ({"loss.aux": "-1"}, "at least 0"),
        ({"model": "deterministic"}, "deterministic"),
        ({"variant": "mle"}, "does not fit"),
    ],
)
def test_bad_settings_are_named(settings, message):
    with pytest.raises(UserError, match=message):
        override(preset("small"), settings)


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("horizon", "planner.horizon"),
        ("horizn", "planner.horizon"),
        ("batchsize", "batch_size"),
        ("network.horizon", "planner.horizon"),
        ("loss.value_scal", "loss.value_scale"),
        ("no_such_key", None),
        ("planner.no_such_key", None),
    ],
)
def test_unknown_settings_hint_at_what_is_near_and_only_then(key, meant):
    with pytest.raises(UserError) as found:
        override(preset("small"), {key: "1"})
    before, allowed, names = str(found.value).partition(" (allowed are ")
    hint = f"; did you mean {meant!r}?" if meant else ""
    assert before == f"unknown setting {key!r}{hint}"
    assert allowed
    assert "planner.horizon, " in names


def test_bad_presets_are_named():
    with pytest.raises(UserError, match="'paper'"):
        preset("large")
    with pytest.raises(UserError, match="no sampling variance"):
        preset("small", variant="cvaml-1-0", model="deterministic")


def test_description_is_json_and_comes_back():
    for config in (tiny("vaml-2-1", k=3), tiny("td3"), tiny("vaml-1-0", "deterministic")):
        assert from_description(json.loads(json.dumps(describe(config)))) == config


def test_every_field_has_a_sentence():
    import inspect

    source = inspect.getsource(inspect.getmodule(AgentConfig))
    fields = sum(
        len(dataclasses.fields(kind))
        for kind in [
            AgentConfig,
            *(type(getattr(preset("small"), n)) for n in ("network", "planner", "optim", "loss")),
        ]
    )
    assert source.count('."""\n') >= fields
