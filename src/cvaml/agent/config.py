"""What an agent is: frozen dataclasses and two presets."""

import dataclasses
import math
import typing
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args, get_origin, get_type_hints

from cvaml.losses import Variant, fit_variant, variant
from cvaml.types import UserError

ModelKind = Literal["stochastic", "deterministic"]
Preset = Literal["paper", "small"]


@dataclass(frozen=True)
class NetworkConfig:
    """Sizes and heads of the networks."""

    width: int = 512
    """Units of every hidden layer."""
    latent: int = 512
    """Size of the latent state."""
    latent_norm: Literal["simnorm", "layernorm", "identity"] = "layernorm"
    """Normalisation of encodings and predicted means; samples are not normalised again. With
    simnorm, whose numbers are small, actions drown the state where the two are joined."""
    simnorm_size: int = 8
    """Size of the softmax groups of simnorm; must divide the latent size."""
    observation_norm: bool = True
    """Whether observations are centred and scaled by running statistics of the replayed data."""
    critic_head: Literal["hl_gauss", "scalar"] = "hl_gauss"
    """Whether a critic is a histogram trained by cross-entropy or one number."""
    bins: int = 151
    """Bins of the histogram, evenly spaced in symlog(value), so fine around zero."""
    value_limit: float = 300.0
    """Largest absolute value the histogram can hold."""
    value_prior: float = 10.0
    """Nats by which every bin away from zero starts below the bin at zero."""
    log_std_min: float = -5.0
    """Lower bound of the Gaussian model's log standard deviation, approached smoothly."""
    log_std_max: float = 0.0
    """Upper bound of it."""
    log_std_init: float = -3.0
    """Its value at the start, strictly between the bounds."""

    @property
    def raw_log_std_init(self) -> float:
        """What the head returns at the start, before the sigmoid that keeps the bounds."""
        share = (self.log_std_init - self.log_std_min) / (self.log_std_max - self.log_std_min)
        return math.log(share / (1 - share))


@dataclass(frozen=True)
class PlannerConfig:
    """MPPI around the actor's action."""

    enabled: bool = True
    """Whether actions are planned; otherwise the actor acts alone."""
    horizon: int = 1
    """Model steps before the critic takes over."""
    iterations: int = 6
    """Refinements of the sampling distribution."""
    samples: int = 512
    """Candidates drawn per iteration, besides the actor's own action."""
    elites: int = 64
    """Best candidates the distribution is refitted to."""
    temperature: float = 0.5
    """Softmax temperature, in standard deviations of the elites' scores."""
    std_min: float = 0.05
    """Least standard deviation of the sampling distribution."""
    std_max: float = 0.3
    """Largest and initial standard deviation of it."""
    precision: Literal["float32", "tf32", "float16"] = "float16"
    """Arithmetic of its products, whose sums are float32 in any case; tf32 acts on GPUs only."""


@dataclass(frozen=True)
class OptimConfig:
    """Adam for each of encoder, model, critics and actor."""

    encoder_rate: float = 1e-4
    """Learning rate of the encoder."""
    model_rate: float = 3e-4
    """Learning rate of the latent model, reward included."""
    critic_rate: float = 3e-4
    """Learning rate of the critics."""
    actor_rate: float = 3e-4
    """Learning rate of the actor."""
    clip: float = 10.0
    """Largest global gradient norm of each of the four."""
    epsilon: float = 1e-8
    """Adam's epsilon."""
    actor_epsilon: float = 1e-5
    """Adam's epsilon for the actor, whose gradients are tiny while values are."""
    polyak: float = 0.01
    """Step of the target critics towards the critics."""
    precision: Literal["float32", "tf32"] = "tf32"
    """Arithmetic of the updates' matrix products; tf32 acts on GPUs only."""


@dataclass(frozen=True)
class LossConfig:
    """Coefficients and forms of the losses."""

    vaml: float = 1.0
    """Coefficient of the value-aware loss."""
    aux: float = 1.0
    """Coefficient of the auxiliary latent loss."""
    reward: float = 1.0
    """Coefficient of the reward loss."""
    critic: float = 1.0
    """Coefficient of the critics' TD loss."""
    correction: float = 1.0
    """Factor of the variant's variance correction: 1 as defined, 0 switches it off."""
    pre_tanh: float = 0.001
    """Weight of the mean squared pre-tanh output in the actor's loss, against saturation."""
    spread: float = 2.0
    """Weight of the penalty on encodings less spread out than `spread_floor`; above `aux`, the
    likelihood gains nothing more from encodings that shrink."""
    spread_floor: float = 0.1
    """Least spread of the encodings: mean over dimensions of the standard deviation in a batch."""
    sigma_pull: float = 0.001
    """Weight of the mean squared distance of the log-std head from its start, before the sigmoid;
    without a likelihood nothing else holds σ."""
    aux_reduction: Literal["mean", "sum"] = "mean"
    """Over the latent dimensions; `preset` takes the mean for Gaussian, the sum otherwise."""
    multistep_aux: Literal["bound", "mixture"] = "bound"
    """For m > 1: mean of the k single-sample bounds, or the log-mean-exp over the k samples."""
    step_weights: Literal["last", "uniform"] = "last"
    """For m > 1: compare step m only, as the paper, or average over steps 1 to m."""
    pessimism: float = 1.0
    """Half differences of the two target critics that a bootstrap lies below their mean: 1 takes
    the smaller one (TD3), 0 the mean."""
    td_steps: int = 3
    """Rewards of real steps in a TD target before it bootstraps; fewer where the episode ends."""
    value_scale: Literal["running", "raw"] = "running"
    """Divide values by max(1, their running standard deviation), or leave them in raw units."""
    target_noise: float = 0.0
    """Standard deviation of the noise on target actions (TD3's smoothing)."""
    target_noise_clip: float = 0.5
    """Largest absolute target noise."""
    actor_delay: int = 1
    """Updates per actor update."""


@dataclass(frozen=True)
class AgentConfig:
    """Everything that shapes an agent; hashable, so it is a static argument of jitted functions."""

    variant: Variant = field(default_factory=lambda: variant("cvaml-1-0"))
    """How model and value are trained."""
    model: ModelKind = "stochastic"
    """A diagonal Gaussian latent model, or a deterministic one."""
    network: NetworkConfig = NetworkConfig()
    """Networks."""
    planner: PlannerConfig = PlannerConfig()
    """Planning."""
    optim: OptimConfig = OptimConfig()
    """Optimisers."""
    loss: LossConfig = LossConfig()
    """Losses."""
    discount: float = 0.99
    """Discount per agent step."""
    batch_size: int = 128
    """Sequences per update."""
    real_fraction: float = 0.9
    """Share of real transitions in the critics' batch; the rest are on-policy model steps."""
    exploration_noise: float = 0.2
    """Least standard deviation of the noise on actions while exploring; all of it if planning is
    off."""
    exploration_period: float = 1.0
    """Agent steps over which noise and random actions turn into others; 1 is new ones each step."""
    random_steps: int = 5000
    """Agent steps with uniformly random actions before learning starts."""
    updates_per_step: int = 1
    """Updates per agent step."""

    def __post_init__(self) -> None:
        validate(self)

    @property
    def stochastic(self) -> bool:
        """Whether the model is a Gaussian."""
        return self.model == "stochastic"

    @property
    def plans(self) -> bool:
        """Whether acting plans: never without a trained model."""
        return self.planner.enabled and self.variant.has_model

    @property
    def samples(self) -> int:
        """Model trajectories per start state; those of a deterministic model are all equal."""
        return self.variant.k if self.stochastic else 1

    @property
    def sequence_length(self) -> int:
        """Rows of a replayed sequence: m + b + 1 states, or more if a TD target needs them."""
        return max(self.variant.m + self.variant.b, self.loss.td_steps) + 1


def preset(
    name: str, *, variant: str = "cvaml-1-0", model: str = "stochastic", k: int | None = None
) -> AgentConfig:
    """A complete configuration.

    Args:
        name: `"paper"` (512 wide, latent 512) or `"small"` (for laptops).
        variant: a name of the variants' grammar that fits an agent.
        model: `"stochastic"` or `"deterministic"`.
        k: model samples, if not the variant's default.

    Returns:
        The configuration.

    Raises:
        UserError: an unknown name, or a variant that does not fit.
    """
    check_choice("preset", name, get_args(Preset))
    check_choice("model", model, get_args(ModelKind))
    deterministic = model == "deterministic"
    base = AgentConfig(
        variant=fit_variant(variant, "agent", k, deterministic),
        model=typing.cast(ModelKind, model),
        loss=LossConfig(aux_reduction="sum" if deterministic else "mean"),
    )
    if name == "paper":
        return base
    return replace(
        base,
        # With 64 latent dimensions most of a humanoid's sigma ends at its lower bound.
        network=NetworkConfig(width=128, latent=128, bins=101, value_limit=2000.0),
        planner=PlannerConfig(iterations=3, samples=64, elites=16, precision="tf32"),
        # A target that follows faster: in the few updates of a laptop's run, values rise by what
        # the target critics let through.
        optim=OptimConfig(
            encoder_rate=3e-4, model_rate=1e-3, critic_rate=1e-3, actor_rate=1e-3, polyak=0.03
        ),
        batch_size=64,
        random_steps=500,
    )


def validate(config: AgentConfig) -> None:
    """Raises UserError naming the first value that makes no sense."""
    network, planner, loss = config.network, config.planner, config.loss
    for key, kind in setting_types(config):
        value = _get(config, key)
        if get_origin(kind) is Literal:
            check_choice(key, value, get_args(kind))
    positive = (
        *("network.width", "network.latent", "network.simnorm_size", "network.value_limit"),
        *("planner.horizon", "planner.iterations", "planner.temperature", "planner.std_min"),
        *("planner.elites", "optim.clip", "optim.epsilon", "optim.actor_epsilon"),
        *("loss.spread_floor", "loss.actor_delay", "loss.td_steps"),
        *("batch_size", "updates_per_step"),
    )
    for key in positive:
        check(key, _get(config, key), _get(config, key) > 0, "above 0")
    not_negative = (
        *(f"optim.{name}_rate" for name in ("encoder", "model", "critic", "actor")),
        *(f"loss.{name}" for name in ("vaml", "aux", "reward", "critic", "correction", "spread")),
        *("loss.pre_tanh", "loss.sigma_pull", "loss.target_noise", "loss.target_noise_clip"),
        *("loss.pessimism", "exploration_noise", "random_steps", "network.value_prior"),
    )
    for key in not_negative:
        check(key, _get(config, key), _get(config, key) >= 0, "at least 0")
    check("discount", config.discount, 0 <= config.discount < 1, "in [0, 1)")
    check("real_fraction", config.real_fraction, 0 < config.real_fraction <= 1, "in (0, 1]")
    check("exploration_period", config.exploration_period, config.exploration_period >= 1, ">= 1")
    check("optim.polyak", config.optim.polyak, 0 < config.optim.polyak <= 1, "in (0, 1]")
    check("network.bins", network.bins, network.bins >= 3 and network.bins % 2 == 1, "odd, >= 3")
    if network.latent_norm == "simnorm":
        divides = network.latent % network.simnorm_size == 0
        check("network.simnorm_size", network.simnorm_size, divides, "a divisor of network.latent")
    inside = network.log_std_min < network.log_std_init < network.log_std_max
    check("network.log_std_init", network.log_std_init, inside, "between its bounds")
    enough = planner.elites <= planner.samples
    check("planner.elites", planner.elites, enough, "at most planner.samples")
    ordered = planner.std_min <= planner.std_max
    check("planner.std_max", planner.std_max, ordered, "at least planner.std_min")
    if config.variant.correction != "none" and not config.stochastic:
        raise UserError(
            f"variant {config.variant.name!r} corrects a sampling variance that a deterministic "
            "model does not have; use a vaml variant"
        )
    if "agent" not in config.variant.applies_to:
        raise UserError(f"variant {config.variant.name!r} is not for agents")
    if loss.multistep_aux == "mixture" and not config.stochastic:
        raise UserError("loss.multistep_aux = 'mixture' needs a stochastic model")


def check(key: str, value: object, holds: bool, allowed: str) -> None:
    """Raises UserError naming the setting, its value and what is allowed, unless it holds."""
    if not holds:
        raise UserError(f"{key} must be {allowed}, got {value!r}")


def check_choice(key: str, value: str, allowed: tuple[str, ...]) -> None:
    """The same for one of several words."""
    check(key, value, value in allowed, f"one of {', '.join(map(repr, allowed))}")


def setting_types(config: object, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted names and types of every setting."""
    hints = get_type_hints(type(config))
    for item in dataclasses.fields(config):  # type: ignore[arg-type]
        value = getattr(config, item.name)
        nested = dataclasses.is_dataclass(value) and not isinstance(value, Variant)
        if nested:
            yield from setting_types(value, f"{prefix}{item.name}.")
        else:
            yield prefix + item.name, hints[item.name]


def _get(config: object, key: str) -> Any:
    for name in key.split("."):
        config = getattr(config, name)
    return config
