"""What was trained comes back from its run folder."""

from __future__ import annotations

import chex
import jax
import jax.numpy as jnp
import pytest

from jaxlab.core import runfolder
from jaxlab.core.errors import CheckpointError, ConfigError
from jaxlab.core.policies import load_policy, load_state
from jaxlab.core.stages import run_stages
from jaxlab.core.training import run
from tests.core import probes

OPTIONS = {"size": 3, "learning_rate": 0.1}


def build(options, host):
    hyper = probes.Hyper(learning_rate=options["learning_rate"])
    return probes.noisy_descent(options["size"]), hyper


@pytest.fixture
def trained(tmp_path):
    runfolder.create(tmp_path / "run", "probe", OPTIONS)
    learner, hyper = build(OPTIONS, None)
    return run(
        learner,
        steps=8,
        chunk=4,
        hyper=hyper,
        seeds=2,
        run_dir=tmp_path / "run",
        config=OPTIONS,
        progress=False,
    )


def test_a_policy_acts_as_its_seed_did(trained):
    obs, key = jnp.ones(3), jax.random.key(0)
    for index in range(2):
        policy = load_policy(trained.run_dir, build, seed_index=index)
        chex.assert_trees_all_equal(policy.state, trained.seed_state(index))
        expected = trained.learner.act(trained.seed_state(index), obs, key)
        chex.assert_trees_all_close(jax.jit(policy)(obs, key), expected, rtol=1e-6)


def test_an_earlier_checkpoint_can_be_chosen(trained):
    _, state = load_state(trained.run_dir, build, step=4)
    assert not jnp.allclose(state.weights, trained.state.weights)
    with pytest.raises(CheckpointError, match="no checkpoint of step 5"):
        load_state(trained.run_dir, build, step=5)


def test_a_stage_can_be_chosen(tmp_path):
    runfolder.create(tmp_path / "run", "probe", OPTIONS)
    learner, hyper = build(OPTIONS, None)
    stages = [("first", lambda r: learner, 2), ("second", lambda r: learner, 4)]
    results = run_stages(stages, hyper=hyper, run_dir=tmp_path / "run", progress=False)
    _, state = load_state(tmp_path / "run", build, stage="second")
    chex.assert_trees_all_equal(state, results["second"].state)


def test_host_data_reaches_the_builder(tmp_path):
    runfolder.create(tmp_path / "run", "probe", OPTIONS)
    learner, hyper = build(OPTIONS, None)
    run(
        learner,
        steps=2,
        hyper=hyper,
        run_dir=tmp_path / "run",
        between=lambda state, metrics, host: (state, {"level": 7}),
        progress=False,
    )
    seen = []

    def watch(options, host):
        seen.append(host)
        return build(options, host)

    load_state(tmp_path / "run", watch)
    assert seen == [{"level": 7}]


def test_what_cannot_be_loaded_is_told(trained, tmp_path):
    with pytest.raises(ConfigError, match="the run has 2 seeds"):
        load_policy(trained.run_dir, build, seed_index=2)
    with pytest.raises(CheckpointError, match="not the folder of a run"):
        load_policy(tmp_path, build)
    with pytest.raises(CheckpointError, match="weights: saved"):
        load_policy(trained.run_dir, lambda o, h: build(o | {"size": 4}, h))

    def without_act(options, host):
        learner, hyper = build(options, host)
        return learner._replace(act=None), hyper

    with pytest.raises(ConfigError, match="no policy"):
        load_policy(trained.run_dir, without_act)
