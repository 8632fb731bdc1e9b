"""The diffusion learner: what a step does, what it learns, and going on from a model."""

import dataclasses
import functools
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxlab.agents import diffusion
from jaxlab.agents.diffusion import DiffusionConfig, Hyper
from jaxlab.agents.diffusion import learner as learner_
from jaxlab.core import checkpointing
from jaxlab.core.assertions import Traced
from jaxlab.core.errors import ConfigError, PrecisionError
from jaxlab.core.stages import Stage, run_stages
from jaxlab.core.testing import check_learner
from jaxlab.core.training import run

SMALL = DiffusionConfig(
    shape=(2,), conditions=1, width=16, depth=1, embedding=8, timesteps=50, batch_size=32
)
#: Two modes at -0.8 and 0.8 are learned in seconds.
TOY = DiffusionConfig(shape=(1,), width=48, depth=2, embedding=16, timesteps=100, batch_size=128)
MODES, SPREAD = 0.8, 0.1


@functools.cache
def small_data(**changes):
    rng = np.random.default_rng(0)
    arrays = {"x": 3 + 2 * rng.normal(size=(40, 2)), "cond": rng.normal(size=(40, 1))}
    return diffusion.dataset(**(arrays | changes))


@functools.cache
def small(**changes):
    """Learner of a small network, init, and several steps."""
    learner = diffusion.make(dataclasses.replace(SMALL, **changes))
    step = Traced(learner.step)

    def steps(state, start, count):
        metrics = []
        for t in range(start, start + count):
            state, measured = step(state, jnp.int32(t))
            metrics.append(measured)
        assert step.traces == 1
        return state, jax.tree.map(lambda *x: jnp.stack(x), *metrics)

    return learner, jax.jit(learner.init), steps


@functools.cache
def begun():
    """A state a few steps on, where no layer is zero any more."""
    _, init, steps = small()
    return steps(init(jax.random.key(0), Hyper(data=small_data())), 0, 5)[0]


@functools.cache
def gradient_of():
    agent = small()[0].step.__self__

    def loss(params, state):
        return agent._loss(params, state, jax.random.key(7))

    return jax.jit(jax.value_and_grad(loss))


def assert_same_bits(one, other):
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        if jnp.issubdtype(a.dtype, jax.dtypes.prng_key):
            a, b = jax.random.key_data(a), jax.random.key_data(b)
        np.testing.assert_array_equal(a, b)


def largest(tree):
    return max(float(jnp.max(jnp.abs(leaf))) for leaf in jax.tree.leaves(tree))


def trained(config, hyper, steps, seed=0):
    """Final state of a run without a folder."""
    result = run(
        diffusion.make(config), steps=steps, hyper=hyper, seed=seed, chunk=steps, progress=False
    )
    return result.seed_state()


def two_modes(rows=2000):
    """Rows around the two modes, half of each, and the sign of their mode."""
    rng = np.random.default_rng(3)
    sign = np.repeat([[-1.0], [1.0]], rows // 2, axis=0)
    return MODES * sign + SPREAD * rng.normal(size=(rows, 1)), sign


def test_contract():
    check_learner(small()[0], Hyper(data=small_data()), steps=3)


# What one step does


def test_average_of_parameters_by_hand():
    _, init, steps = small()
    state = init(jax.random.key(0), Hyper(data=small_data(), ema_decay=0.7))
    expected = [np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(state.params)]
    assert_same_bits(state.ema, state.params)
    for t in range(4):
        state, _ = steps(state, t, 1)
        new = jax.tree.leaves(state.params)
        expected = [0.7 * a + 0.3 * np.asarray(p) for a, p in zip(expected, new, strict=True)]
    for found, wanted in zip(jax.tree.leaves(state.ema), expected, strict=True):
        np.testing.assert_allclose(found, wanted, atol=1e-6)
    assert_same_bits(diffusion.model(state).params, state.ema)
    assert_same_bits(diffusion.model(state, averaged=False).params, state.params)


def test_warm_up_and_first_step_of_adam():
    _, init, steps = small()
    state = init(jax.random.key(0), Hyper(data=small_data(), learning_rate=0.1, warmup_steps=4.0))
    after, metrics = steps(state, 0, 6)
    np.testing.assert_allclose(
        metrics["learning_rate"].value, [0.025, 0.05, 0.075, 0.1, 0.1, 0.1], rtol=1e-6
    )
    first, _ = steps(state, 0, 1)
    # Adam's first change is the sign of the gradient, whatever its size.
    change = first.params["last"]["bias"] - state.params["last"]["bias"]
    np.testing.assert_allclose(jnp.abs(change), 0.025, rtol=1e-3)
    assert largest(after.params) > 0


def test_gradient_is_clipped():
    _, init, steps = small()
    for bound in (1e-3, 1e6):
        state = init(jax.random.key(0), Hyper(data=small_data(), max_gradient_norm=bound))
        state, metrics = steps(state, 0, 1)
        norm = float(metrics["gradient_norm"].value[0])
        assert 1e-3 < norm < 1e6
        moment = np.sqrt(sum(np.sum(np.square(m)) for m in jax.tree.leaves(state.optimiser.mu)))
        # The first moment is a tenth of the clipped gradient.
        np.testing.assert_allclose(moment, 0.1 * min(norm, bound), rtol=1e-4)


def test_loss_of_a_network_that_says_zero():
    """The first prediction is zero; a velocity has variance one, as have noise and data."""
    learner, init, _ = small()
    state = init(jax.random.key(0), Hyper(data=small_data()))
    loss = jax.jit(jax.vmap(learner.step.__self__._loss, (None, None, 0)))
    keys = jax.random.split(jax.random.key(1), 128)
    mean = np.mean(loss(state.params, state, keys))
    # The mean of 8192 squares of a Gaussian has deviation sqrt(2 / 8192).
    assert abs(mean - 1) < 5 * np.sqrt(2 / 8192)
    doubled = state.replace(data=state.data.replace(weights=2 * state.data.weights))
    np.testing.assert_allclose(np.mean(loss(state.params, doubled, keys)), 2 * mean, rtol=1e-5)


def test_what_the_network_is_shown(monkeypatch):
    """Every time from 1 to T, noisy rows in use with their own conditions, some dropped."""
    shown = {}

    def record(config, params, x, t, cond, keep):
        shown.update(x=x, t=np.asarray(t), cond=np.asarray(cond), keep=np.asarray(keep))
        return jnp.zeros_like(x)

    monkeypatch.setattr(learner_, "predict", record)
    agent = diffusion.make(dataclasses.replace(SMALL, batch_size=2000)).step.__self__
    # Conditions count the rows; the data are far from zero and from each other.
    index = np.arange(1.0, 11.0)
    data = diffusion.dataset(np.stack([index, -index], -1), index[:, None], capacity=16)
    config = dataclasses.replace(agent.config, scaling="none")
    agent = dataclasses.replace(agent, config=config)
    state = agent.init(jax.random.key(0), Hyper(data=data, drop_probability=0.2))
    agent._loss(state.params, state, jax.random.key(1))
    assert set(shown["t"]) == set(range(1, 51))
    assert set(shown["cond"][:, 0]) == set(index)
    # 2000 draws at 0.8 have a deviation of 0.009.
    assert abs(shown["keep"].mean() - 0.8) < 5 * 0.009
    signal = np.sqrt(agent.schedule.alpha_bar[shown["t"]])[:, None]
    noise = np.sqrt(1 - signal**2)
    drawn = (shown["x"] - signal * shown["cond"] * [1, -1]) / noise
    assert abs(drawn.mean()) < 5 / np.sqrt(4000)
    assert abs(drawn.var() - 1) < 5 * np.sqrt(2 / 4000)


def test_scaling():
    x = np.array([[1.0, 5.0, 2.0], [3.0, 5.0, 4.0], [8.0, 5.0, 0.0], [1e6, 1e6, 1e6]])
    data = diffusion.dataset(x, weights=[1.0, 1.0, 2.0, 0.0], capacity=6)
    config = dataclasses.replace(SMALL, shape=(3,), conditions=0)
    for kind in ("standardise", "range", "none"):
        learner = diffusion.make(dataclasses.replace(config, scaling=kind))
        state = jax.jit(learner.init)(jax.random.key(0), Hyper(data=data))
        scaled = np.asarray(state.data.x[:3])
        back = state.scaling.from_network(state.data.x[:3])
        np.testing.assert_allclose(back, x[:3], rtol=1e-5, atol=1e-5)
        if kind == "standardise":
            np.testing.assert_allclose(scaled.mean(0), 0, atol=1e-6)
            # A constant coordinate is only moved.
            np.testing.assert_allclose(scaled.std(0), [1, 0, 1], rtol=1e-5, atol=1e-6)
        elif kind == "range":
            np.testing.assert_allclose(scaled.min(0), [-1, 0, -1], atol=1e-6)
            np.testing.assert_allclose(scaled.max(0), [1, 0, 1], atol=1e-6)
        else:
            np.testing.assert_array_equal(scaled, x[:3].astype(np.float32))


def test_rows_without_weight_and_padding_do_not_matter():
    """Neither the loss nor its gradient knows what such rows hold."""
    rng = np.random.default_rng(1)
    x, cond = rng.normal(size=(40, 2)), rng.normal(size=(40, 1))
    weights = np.where(np.arange(40) % 4 == 0, 0.0, 1.0)
    spoiled = np.where(weights[:, None] > 0, x, np.nan)
    data = diffusion.dataset(x, cond, weights, capacity=48)
    unknown = np.where(weights[:, None] > 0, cond, np.inf)
    same = diffusion.dataset(spoiled, unknown, weights, capacity=48)
    assert data.x.shape == (48, 2)
    np.testing.assert_allclose(np.mean(same.weights[:40]), 1, rtol=1e-6)
    np.testing.assert_allclose(data.effective_sample_size, 30)
    _, init, _ = small()
    states = [init(jax.random.key(0), Hyper(data=d)) for d in (data, same)]
    assert_same_bits(states[0].scaling, states[1].scaling)
    filled = states[0].data
    filled = filled.replace(x=filled.x.at[40:].set(jnp.nan), weights=filled.weights.at[40:].set(9))
    states.append(states[0].replace(data=filled))
    # Trained parameters, since at first the network says zero whatever the gradient's path.
    results = [gradient_of()(begun().params, state) for state in states]
    assert largest(results[0][1]) > 0
    assert_same_bits(results[0], results[1])
    assert_same_bits(results[0], results[2])


@pytest.mark.parametrize("drop", [0.0, 1.0])
def test_gradient_reaches_the_condition_or_the_null_embedding(drop):
    state = begun()
    hyper = dataclasses.replace(state.hyper, drop_probability=jnp.float32(drop))
    _, gradient = gradient_of()(state.params, state.replace(hyper=hyper))
    embedding = gradient["embedding"]
    size = {name: largest(embedding[name]) for name in ("cond_in", "cond_out", "null")}
    if drop:
        assert size["cond_in"] == size["cond_out"] == 0 < size["null"]
    else:
        assert size["null"] == 0 < min(size["cond_in"], size["cond_out"])


def test_rows_are_drawn_anew_each_step():
    state = begun()
    _, _, steps = small()
    losses = {float(steps(state, t, 1)[1]["loss"].value[0]) for t in range(5, 8)}
    assert len(losses) == 3


def test_same_key_same_bits_and_another_key_others():
    _, init, steps = small()
    hyper = Hyper(data=small_data())
    first, second, other = (steps(init(jax.random.key(s), hyper), 0, 3)[0] for s in (0, 0, 1))
    assert_same_bits(first, second)
    assert np.any(first.params["first"]["kernel"] != other.params["first"]["kernel"])


def test_precision():
    """Under x64 everything has the configured precision, whatever the data's."""
    with jax.enable_x64(True):
        for dtype in ("float32", "float64"):
            learner = diffusion.make(dataclasses.replace(SMALL, dtype=dtype))
            key, hyper = jax.random.key(0), Hyper(data=small_data())
            state = jax.eval_shape(learner.init, key, hyper)
            state, metrics = jax.eval_shape(learner.step, state, jnp.int32(0))
            tree = (state.params, state.ema, state.optimiser, state.data, state.scaling)
            assert {leaf.dtype.name for leaf in jax.tree.leaves(tree)} == {dtype, "int32"}
            assert metrics["loss"].value.dtype == dtype
            assert jax.eval_shape(learner.act, state, jnp.zeros(1), key).dtype == dtype
    with pytest.raises(PrecisionError, match="x64 is off"):
        diffusion.make(dataclasses.replace(SMALL, dtype="float64"))


# What is learned


@functools.cache
def conditional_toy():
    """Config and state of a model that was told which mode each row is of."""
    config = dataclasses.replace(TOY, conditions=1)
    x, sign = two_modes()
    hyper = Hyper(data=diffusion.dataset(x, sign), learning_rate=2e-3, ema_decay=0.98)
    return config, trained(config, hyper, 500)


@pytest.mark.parametrize("sign", [-1.0, 1.0])
@pytest.mark.parametrize("method", ["ddim", "ddpm"])
def test_modes_by_condition(sign, method):
    config, state = conditional_toy()
    samples = np.asarray(
        diffusion.sample(
            config, diffusion.model(state), jax.random.key(1), 500, jnp.full(1, sign), method=method
        )
    )
    assert abs(samples.mean() - sign * MODES) < 0.05
    assert 0.06 < samples.std() < 0.15
    assert np.mean(np.sign(samples) == sign) > 0.98


def test_without_the_condition_both_modes_come():
    config, state = conditional_toy()
    samples = diffusion.sample(
        config, diffusion.model(state), jax.random.key(1), 500, jnp.ones(1), guidance=0.0
    )
    assert 0.35 < np.mean(np.asarray(samples) > 0) < 0.65
    assert np.mean(np.abs(np.abs(np.asarray(samples)) - MODES) < 4 * SPREAD) > 0.9


def test_act_draws_a_sample():
    config, state = conditional_toy()
    act = jax.jit(diffusion.make(config).act)
    one = act(state, jnp.ones(1), jax.random.key(5))
    assert one.shape == (1,)
    assert abs(float(one[0]) - MODES) < 5 * SPREAD
    model = diffusion.model(state)
    same = diffusion.sample(config, model, jax.random.key(5), 1, jnp.ones(1), steps=50)[0]
    np.testing.assert_allclose(one, same, atol=1e-5)


def share_of_right_mode(state, config=TOY):
    samples = diffusion.sample(
        config, diffusion.model(state), jax.random.key(2), 2000, method="ddpm", steps=50
    )
    return float(np.mean(np.asarray(samples) > 0))


@functools.cache
def base():
    """A model of both modes in equal shares."""
    x, _ = two_modes()
    hyper = Hyper(data=diffusion.dataset(x, capacity=2048), learning_rate=2e-3, ema_decay=0.98)
    return trained(TOY, hyper, 500)


def weighted_data():
    """The same rows, the right mode weighing four times the left one."""
    x, sign = two_modes()
    return diffusion.dataset(x, weights=np.where(sign[:, 0] > 0, 4.0, 1.0), capacity=2048)


def test_weights_move_the_share_of_modes():
    """From equal shares to those of the weights, 0.8; a share of 2000 has deviation 0.011."""
    assert abs(share_of_right_mode(base()) - 0.5) < 0.07
    tuned = diffusion.with_data(base(), weighted_data())
    hyper = Hyper(
        data=weighted_data(), start=diffusion.model(base()), learning_rate=2e-3, ema_decay=0.98
    )
    assert_same_bits(tuned.scaling, base().scaling)
    state = trained(TOY, hyper, 400, seed=1)
    assert abs(share_of_right_mode(state) - 0.8) < 0.07
    # The scaling is that of the start, not of the new data.
    assert_same_bits(state.scaling, base().scaling)


# Going on


def test_new_data_between_steps():
    state = begun()
    _, _, steps = small()
    fresh = small_data(weights=tuple(range(1, 41)))
    changed = diffusion.with_data(state, fresh)
    assert_same_bits((changed.params, changed.optimiser), (state.params, state.optimiser))
    np.testing.assert_allclose(
        state.scaling.from_network(changed.data.x), fresh.x, rtol=1e-5, atol=1e-5
    )
    # The same program serves.
    _, metrics = steps(changed, 5, 1)
    weights = np.arange(1.0, 41.0)
    expected = weights.sum() ** 2 / (weights**2).sum()
    np.testing.assert_allclose(metrics["effective_sample_size"].value, expected, rtol=1e-5)
    with pytest.raises(ConfigError, match=r"data.x has shape \(40, 3\), expected \(40, 2\)"):
        diffusion.with_data(state, diffusion.dataset(np.ones((40, 3)), np.ones((40, 1))))


def test_start_from_a_model():
    _, init, steps = small()
    model = diffusion.model(begun())
    shifted = diffusion.dataset(np.asarray(small_data().x) + 100, small_data().cond)
    state = init(jax.random.key(9), Hyper(data=shifted, start=model))
    assert_same_bits((state.params, state.ema), (model.params, model.params))
    assert_same_bits(state.scaling, model.scaling)
    np.testing.assert_allclose(state.scaling.from_network(state.data.x), shifted.x, rtol=1e-4)
    assert largest(state.optimiser) == 0
    state, _ = steps(state, 0, 1)
    assert np.any(state.params["last"]["bias"] != model.params["last"]["bias"])


def test_saved_state_goes_on_to_the_same_bits(tmp_path):
    _, init, steps = small()
    state = begun()
    checkpointing.save(tmp_path / "checkpoints", 5, state, config={})
    sharding = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    abstract = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding),
        jax.eval_shape(init, jax.random.key(0), Hyper(data=small_data())),
    )
    restored = checkpointing.restore(tmp_path / "checkpoints", abstract)
    assert restored.step == 5
    assert_same_bits(restored.state, state)
    assert_same_bits(steps(restored.state, 5, 2), steps(state, 5, 2))


def test_pipeline_samples_weighs_and_trains_again():
    """Two stages over two seeds: the second one's data are samples of the first one's model."""
    config = dataclasses.replace(SMALL, conditions=0)
    seen = {}

    def again(results):
        model = diffusion.model(results["base"].seed_state(1))
        samples = diffusion.sample(config, model, jax.random.key(0), 30, steps=5)
        weights, size = diffusion.reward_weights(-jnp.sum(samples**2, axis=-1), 2.0)
        data = diffusion.dataset(samples, weights=weights, capacity=40)
        seen.update(model=model, size=size)
        return diffusion.make(config, data=data, start=model)

    first = diffusion.make(config, data=diffusion.dataset(small_data().x))
    results = run_stages(
        [Stage("base", lambda _: first, 4), Stage("tuned", again, 4)],
        hyper=Hyper(),
        seeds=2,
        chunk=2,
        progress=False,
    )
    tuned = results["tuned"].state
    assert tuned.data.x.shape == (2, 40, 2)
    assert_same_bits(jax.tree.map(lambda leaf: leaf[0], tuned.scaling), seen["model"].scaling)
    np.testing.assert_allclose(
        results["tuned"].metrics["effective_sample_size"], seen["size"], rtol=1e-4
    )
    loss = results["tuned"].metrics["loss"]
    assert loss.shape == (2, 2)
    assert np.all(np.isfinite(loss))
    assert np.all(loss[:, 0] != loss[:, 1])


def test_each_seed_may_have_numbers_data_and_a_start_of_its_own():
    learner, init, _ = small()
    key, model = jax.random.key(0), diffusion.model(begun())
    other = diffusion.dataset(np.asarray(small_data().x) * 3, small_data().cond)
    hypers = [
        jax.tree.map(jnp.asarray, Hyper(data=data, start=start, learning_rate=rate))
        for data, start, rate in (
            (small_data(), model, 1e-4),
            (other, model.replace(params=jax.tree.map(lambda x: 2 * x, model.params)), 1e-2),
        )
    ]
    sweep = jax.tree.map(lambda *x: jnp.stack(x), *hypers)
    states = jax.jit(jax.vmap(learner.init, (None, 0)))(key, sweep)
    for index, hyper in enumerate(hypers):
        found = jax.tree.map(lambda leaf, index=index: leaf[index], states)
        assert_same_bits(found, init(key, hyper))


# Mistakes


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": np.ones(3)}, r"x has shape \(3,\), expected \[rows"),
        ({"x": np.ones((0, 2))}, "at least one row"),
        ({"cond": np.ones((2, 1))}, r"cond has shape \(2, 1\), expected \[3, conditions\]"),
        ({"weights": np.ones(2)}, r"weights have shape \(2,\), expected \[3\]"),
        ({"weights": [1.0, -0.5, 1.0]}, "weights: row 1 has -0.5"),
        ({"weights": [1.0, np.nan, 1.0]}, "weights: row 1 has nan"),
        ({"weights": np.zeros(3)}, "weights are all zero"),
        (
            {"x": np.array([[1.0], [np.nan], [1.0]])},
            "x is not finite in 1 rows, the first of them 1",
        ),
        ({"capacity": 2}, "x has 3 rows, more than the capacity of 2"),
    ],
)
def test_bad_data_are_refused(change, message):
    with pytest.raises(ConfigError, match=message):
        diffusion.dataset(**({"x": np.ones((3, 2))} | change))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"network": "transformer"}, "network is 'transformer', expected one of mlp, unet"),
        ({"schedule": "sigmoid"}, "schedule is 'sigmoid'"),
        ({"prediction": "score"}, "prediction is 'score'"),
        ({"scaling": "log"}, "scaling is 'log'"),
        ({"timesteps": 1}, "timesteps is 1"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"conditions": -1}, "conditions is -1"),
        ({"embedding": 7}, "embedding is 7, expected an even number"),
        ({"clip": 0.0}, "clip is 0.0"),
        ({"conditions": 0, "guidance": 2.0}, "guidance is 2.0, but conditions is 0"),
        ({"shape": [2]}, r"shape is \[2\], expected a tuple"),
        ({"shape": (4, 2)}, r"shape is \(4, 2\), expected \(dim,\)"),
        ({"network": "unet"}, r"shape is \(2,\), expected \(length, channels\)"),
    ],
)
def test_bad_options_are_refused(change, message):
    with pytest.raises(ConfigError, match=message):
        diffusion.make(dataclasses.replace(SMALL, **change))


def test_bad_hyper_parameters_are_refused():
    learner, _, _ = small()
    model = diffusion.model(begun())
    narrow = jax.tree.map(lambda x: x[..., :4], model.params)
    for hyper, message in (
        (Hyper(), "data is NoneType"),
        (Hyper(data=diffusion.dataset(np.ones((3, 5)))), r"shape \(5,\), expected \(2,\)"),
        (Hyper(data=diffusion.dataset(np.ones((3, 2)))), "0 conditions, expected 1"),
        (Hyper(data=small_data(), start=model.params), "start is dict, expected a Model"),
        (Hyper(data=small_data(), start=model.replace(params=narrow)), "another network"),
    ):
        with pytest.raises(ConfigError, match=message):
            learner.init(jax.random.key(0), hyper)


def test_options_are_read_without_jax():
    code = (
        "import sys; from jaxlab.agents.diffusion.config import Hyper, DiffusionConfig; "
        "assert DiffusionConfig().shape and Hyper().ema_decay; "
        "assert not {'jax', 'flax'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_importing_starts_no_backend():
    code = (
        "import jax; from jaxlab.agents import diffusion; "
        "[getattr(diffusion, name) for name in diffusion.__all__]; "
        "jax.config.update('jax_num_cpu_devices', 2); assert len(jax.devices('cpu')) == 2"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
