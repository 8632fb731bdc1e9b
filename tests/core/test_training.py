"""`run`: reductions, seeds, tracing, host work, sweeps, bad arguments."""

from __future__ import annotations

import signal

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxlab.core import learner as contract
from jaxlab.core import reporting
from jaxlab.core.chunks import compile_chunk, initialiser, seed_key
from jaxlab.core.errors import ConfigError, Interrupted
from jaxlab.core.learner import Learner
from jaxlab.core.placement import place
from jaxlab.core.stages import Stage, combined_performance, run_stages
from jaxlab.core.training import run
from tests.core import probes

STEPS, THIN = 12, 3


def counter(metrics=None, state=None) -> Learner:
    """A learner that counts; metrics and the next state can be replaced."""

    def init(key, hyper):
        return {"key": key, "n": jnp.int32(0)}

    def step(s, t):
        following = {"key": s["key"], "n": s["n"] + 1}
        following = following if state is None else state(following)
        return following, {} if metrics is None else metrics(s, t)

    return Learner(init, step)


def by_hand(seed: int) -> tuple[probes.State, list]:
    """The probe learner stepped in a Python loop."""
    learner = probes.noisy_descent()
    hyper = jax.tree.map(jnp.asarray, probes.Hyper())
    state, history = learner.init(seed_key(seed), hyper), []
    step = jax.jit(learner.step)
    for t in range(STEPS):
        state, metrics = step(state, jnp.int32(t))
        history.append(metrics)
    return state, history


@pytest.fixture(scope="module")
def batch():
    return run(
        probes.noisy_descent(),
        steps=STEPS,
        hyper=probes.Hyper(),
        seeds=3,
        seed=5,
        chunk=6,
        thin=THIN,
        progress=False,
    )


def test_run_equals_a_python_loop(batch):
    state, history = by_hand(6)
    got = batch.seed_state(1)
    np.testing.assert_array_equal(got.visits, state.visits)
    np.testing.assert_allclose(got.weights, state.weights, atol=1e-6)
    for row, steps in enumerate((slice(0, 6), slice(6, 12))):
        part = history[steps]
        expected = {
            "loss": np.mean([m["loss"].value for m in part]),
            "norm": part[-1]["norm"].value,
            "env_steps": sum(m["env_steps"].value for m in part),
            "largest": max(m["largest"].value for m in part),
            "rare": np.nanmean([m["rare"].value for m in part]),
        }
        for name, value in expected.items():
            np.testing.assert_allclose(batch.metrics[name][row, 1], value, rtol=1e-5, err_msg=name)
    np.testing.assert_array_equal(batch.metrics["step"], [6, 12])


def test_records_are_those_of_every_thin_step(batch):
    _, history = by_hand(7)
    records = batch.records()
    np.testing.assert_array_equal(records["step"], [3, 6, 9, 12])
    assert records["weights"].shape == (4, 3, 4)
    expected = [history[step - 1]["weights"].value for step in records["step"]]
    np.testing.assert_allclose(records["weights"][:, 2], expected, atol=1e-6)


@pytest.mark.parametrize("seed", [5, 7])
def test_a_seed_alone_gets_the_bits_it_gets_in_a_batch(batch, seed):
    alone = run(
        probes.noisy_descent(), steps=STEPS, hyper=probes.Hyper(), seed=seed, progress=False
    )
    both = alone.seed_state(), batch.seed_state(seed - 5)
    keys = [jax.random.key_data(state.key) for state in both]
    np.testing.assert_array_equal(*keys)
    np.testing.assert_array_equal(*[state.visits for state in both])
    np.testing.assert_allclose(*[state.weights for state in both], atol=1e-6)


def test_seeds_differ(batch):
    assert not np.allclose(batch.state.weights[0], batch.state.weights[1], atol=1e-4)


def test_a_last_shorter_chunk_changes_nothing(batch):
    odd = run(
        probes.noisy_descent(),
        steps=STEPS,
        hyper=probes.Hyper(),
        seeds=3,
        seed=5,
        chunk=5,
        progress=False,
    )
    np.testing.assert_array_equal(odd.metrics["step"], [5, 10, 12])
    np.testing.assert_array_equal(odd.state.visits, batch.state.visits)
    np.testing.assert_allclose(odd.state.weights, batch.state.weights, atol=1e-6)


@pytest.mark.parametrize("seeds", [1, 2])
@pytest.mark.parametrize(("chunk", "traces"), [(4, 1), (5, 2)])
def test_one_trace_per_shape(seeds, chunk, traces):
    chex.clear_trace_counter()
    learner = probes.noisy_descent()
    step = chex.assert_max_traces(learner.step, n=traces)
    run(
        learner._replace(step=step),
        steps=STEPS,
        hyper=probes.Hyper(),
        seeds=seeds,
        chunk=chunk,
        progress=False,
    )


def test_branches_on_the_counter_stay_branches_under_many_seeds():
    """A select would compute both sides for every seed at every step."""

    def step(state, t):
        new = jax.lax.cond(t % 30 == 0, lambda x: jnp.sin(x) + 1, lambda x: x, state)
        return new, {}

    learner = Learner(lambda key, hyper: jax.random.normal(key, (7,), jnp.float32), step)
    init = initialiser(learner, 0, 4, None)
    placement = place(4)
    abstract = placement.abstract(jax.eval_shape(init, None))
    text = compile_chunk(learner, abstract, placement, 30, 1).as_text()
    assert "conditional(" in text
    assert run(learner, steps=30, seeds=4, progress=False).step == 30


def test_weak_types_of_a_learner_cost_no_second_trace():
    def init(key, hyper):
        return {"x": jnp.asarray(1.0), "key": key}

    def step(state, t):
        return {"x": jnp.where(t > 0, 2.0, 3.0), "key": state["key"]}, {}

    learner = Learner(init, chex.assert_max_traces(step, n=1))
    result = run(learner, steps=4, chunk=2, progress=False)
    assert result.state["x"].dtype == jnp.float32


@pytest.mark.parametrize("x64", [False, True])
def test_both_precisions(x64):
    with jax.enable_x64(x64):
        result = run(probes.noisy_descent(), steps=4, hyper=probes.Hyper(), seeds=2, progress=False)
        assert result.state.hyper.learning_rate.dtype == (jnp.float64 if x64 else jnp.float32)
        assert result.state.weights.dtype == jnp.float32


def test_a_sweep_is_a_batch_of_hyper_parameters():
    rates = np.array([0.05, 0.2])
    hyper = probes.Hyper(learning_rate=rates, noise=np.array([0.5, 0.5]))
    sweep = run(probes.noisy_descent(), steps=8, hyper=hyper, hyper_axis=0, seeds=2, progress=False)
    for index, rate in enumerate(rates):
        alone = run(
            probes.noisy_descent(),
            steps=8,
            hyper=probes.Hyper(learning_rate=rate),
            seed=index,
            progress=False,
        )
        np.testing.assert_allclose(sweep.state.weights[index], alone.state.weights[0], atol=1e-6)


def test_the_hyper_parameters_of_the_caller_survive_donation():
    hyper = jax.tree.map(jnp.asarray, probes.Hyper())
    for _ in range(2):
        run(probes.noisy_descent(), steps=4, hyper=hyper, progress=False)
    assert float(hyper.noise) == 0.5


def test_between_changes_state_metrics_and_host():
    seen = []

    def between(state, metrics, host):
        seen.append((int(state["n"][0]), host))
        metrics["extra"] = np.array([host["calls"] / 2])
        state = {"key": state["key"], "n": state["n"] + 100}
        return state, {"calls": host["calls"] + 1, "pair": (1, 2)}

    result = run(counter(), steps=6, chunk=2, between=between, host={"calls": 0}, progress=False)
    # Lists, not tuples: the host data is what a checkpoint would give back.
    assert [host for _, host in seen][1] == {"calls": 1, "pair": [1, 2]}
    assert [n for n, _ in seen] == [2, 104, 206]
    assert int(result.state["n"][0]) == 306
    np.testing.assert_array_equal(result.metrics["extra"][:, 0], [0, 0.5, 1])
    assert result.host["calls"] == 3


def test_between_may_bring_another_learner_and_shape():
    def grown(host):
        def step(state, t):
            return state + 1, {"sum": contract.last(jnp.sum(state))}

        return Learner(lambda key, hyper: jnp.zeros(host["size"], jnp.float32), step)

    def between(state, metrics, host):
        host = {"size": host["size"] + 1}
        return (grown(host), jnp.pad(state, ((0, 0), (0, 1)))), host

    result = run(grown, steps=6, chunk=2, between=between, host={"size": 1}, progress=False)
    np.testing.assert_array_equal(result.state[0], [6, 4, 2, 0])
    assert result.host == {"size": 4}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: {"key": s["key"]}, "another structure"),
        (lambda s: {**s, "n": s["n"].astype(jnp.float32)}, "'n' as float32"),
        (lambda s: {**s, "n": jnp.zeros((1, 2), jnp.int32)}, "int32\\[1, 2\\]"),
    ],
)
def test_between_may_not_change_the_shape_of_the_state_alone(change, message):
    with pytest.raises(ConfigError, match=message):
        run(counter(), steps=4, between=lambda s, m, h: (change(s), h), progress=False)


@pytest.mark.parametrize(("name", "value"), [("seconds", 1.0), ("note", "text"), ("x", None)])
def test_between_may_add_numbers_only(name, value):
    def between(state, metrics, host):
        metrics[name] = value
        return state, host

    with pytest.raises(ConfigError, match=f"metric '{name}'"):
        run(counter(), steps=4, between=between, progress=False)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"steps": 0}, "steps = 0"),
        ({"steps": 2**31}, "fewer than"),
        ({"steps": True}, "expected an integer"),
        ({"steps": 4, "seeds": 0}, "seeds = 0"),
        ({"steps": 4, "seed": -1}, "seed = -1"),
        ({"steps": 4, "seed": 2**32 - 1, "seeds": 2}, "below 2"),
        ({"steps": 4, "chunk": 0}, "chunk = 0"),
        ({"steps": 4, "chunk": 3, "thin": 2}, "multiple of thin"),
        ({"steps": 5, "thin": 2}, "multiple of thin"),
        ({"steps": 4, "checkpoint_every": 0}, "checkpoint_every"),
        ({"steps": 4, "keep": 0}, "keep"),
        ({"steps": 4, "hyper": {"rate": "fast"}}, "'rate'"),
        ({"steps": 4, "hyper": {"rate": [1.0]}, "hyper_axis": 0, "seeds": 2}, "'rate/0'"),
        ({"steps": 4, "hyper_axis": 1}, "hyper_axis"),
        ({"steps": 4, "config": {"x": object()}}, "cannot be written"),
    ],
)
def test_wrong_arguments_fail_before_compilation(arguments, message):
    def never(key, hyper):
        raise AssertionError("compiled")

    with pytest.raises(ConfigError, match=message):
        run(Learner(never, never), progress=False, **arguments)


@pytest.mark.parametrize(
    ("learner", "message"),
    [
        (counter(state=lambda s: {**s, "n": s["n"] * 1.0}), "n: int32\\[\\] became float32"),
        (counter(state=lambda s: {"n": s["n"]}), "key: .* became absent"),
        (counter(state=lambda s: {**s, "n": s["n"][None]}), "became int32\\[1\\]"),
        (counter(metrics=lambda s, t: {"a": t}), "metric 'a'"),
        (counter(metrics=lambda s, t: [1]), "metrics of type list"),
        (counter(metrics=lambda s, t: {"step": contract.last(t)}), "reserved"),
        (
            counter(metrics=lambda s, t: {"a": contract.Metric(t, jnp.ones(()), "median")}),
            "'median'",
        ),
    ],
)
def test_a_learner_that_breaks_the_contract_is_told_how(learner, message):
    with pytest.raises(ConfigError, match=message):
        run(learner, steps=4, progress=False)


def test_a_metric_of_every_dtype_is_reduced():
    def metrics(state, t):
        return {
            "bool max": contract.maximum(t == 2),
            "int max": contract.maximum(-t),
            "int mean": contract.mean(t),
            "vector": contract.mean(jnp.array([1.0, 2.0]) * t),
            "bool last": contract.last(t == 3),
            "nothing": contract.mean(t, 0.0),
        }

    got = run(counter(metrics), steps=4, chunk=4, progress=False).metrics
    assert bool(got["bool max"][0, 0])
    assert int(got["int max"][0, 0]) == 0
    assert float(got["int mean"][0, 0]) == 1.5
    np.testing.assert_array_equal(got["vector"][0, 0], [1.5, 3.0])
    assert bool(got["bool last"][0, 0])
    assert np.isnan(got["nothing"][0, 0])


def test_the_default_chunk_divides_where_it_can():
    from jaxlab.core.arguments import check_arguments

    def chosen(steps, thin=1):
        return check_arguments(steps, 1, 0, None, thin, 1, 1, None)

    for steps, thin in [(1, 1), (7, 1), (100, 1), (1000, 10), (12000, 5), (10**6, 1)]:
        chunk = chosen(steps, thin)
        assert steps % chunk == 0
        assert chunk % thin == 0
        assert steps / 100 <= chunk <= max(steps / 25, thin)
    assert chosen(997) == 19  # A prime: the last chunk is shorter.


def test_stages_build_on_earlier_results(tmp_path):
    calls = []

    def first(results):
        calls.append("first")
        return probes.noisy_descent()

    def second(results):
        calls.append("second")
        start = results["first"].state.weights[0]

        def init(key, hyper):
            return jnp.array(start)

        return Learner(init, lambda state, t: (state * 2, {"x": contract.last(state)}))

    stages = [("first", first, 8), Stage("second", second, 3, options={"chunk": 1})]
    options = {"hyper": probes.Hyper(), "progress": False, "run_dir": tmp_path}
    results = run_stages(stages, **options)
    np.testing.assert_allclose(
        results["second"].state[0], 8 * results["first"].state.weights[0], rtol=1e-6
    )
    assert reporting.read_metrics(tmp_path / "second")["x"].shape == (3, 1, 4)
    again = run_stages(stages, resume=True, **options)
    chex.assert_trees_all_equal(again["second"].state, results["second"].state)
    assert "run_seconds" in combined_performance(again)
    assert again["first"].performance["run_seconds"] == 0.0
    assert calls == ["first", "second", "first", "second"]


def test_hyper_parameters_of_a_stage_may_come_from_results_before(tmp_path):
    def later(results):
        return probes.Hyper(learning_rate=results["first"].state.weights[0, 1])

    make = lambda results: probes.noisy_descent()  # noqa: E731
    results = run_stages(
        [("first", make, 8), Stage("second", make, 2, later)], hyper=probes.Hyper(), progress=False
    )
    rates = [results[name].state.hyper.learning_rate[0] for name in ("first", "second")]
    assert rates == [np.float32(0.1), results["first"].state.weights[0, 1]]


def test_an_interrupted_pipeline_says_how_it_goes_on(tmp_path, capsys):
    def stop(state, metrics, host):
        signal.raise_signal(signal.SIGTERM)
        return state, host

    make = lambda results: probes.noisy_descent()  # noqa: E731
    stages = [Stage("only", make, 4, options={"chunk": 1, "between": stop})]
    with pytest.raises(Interrupted):
        run_stages(stages, hyper=probes.Hyper(), run_dir=tmp_path, progress=False)
    told = capsys.readouterr().err.splitlines()[-1]
    assert told.startswith("the pipeline goes on with: ")
    assert told.endswith(reporting.resume_command(tmp_path))


@pytest.mark.parametrize("names", [("a", "a"), ("a/b",), ("",), ("checkpoints",), ("..",)])
def test_stage_names_are_checked(names):
    with pytest.raises(ConfigError, match="stage"):
        run_stages([(name, lambda results: counter(), 2) for name in names], progress=False)
