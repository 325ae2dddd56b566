"""The step that benchmarks/aot.py compiles for other chips is the update's own, and its prediction near the truth."""

import jax
import jax.numpy as jnp
import learn_fixtures
import numpy as np

from benchmarks import aot
from hdl_jax.learn import packing
from hdl_jax.learn.update import make_loss


def test_the_compiled_step_is_the_gradient_of_the_packed_loss_added_to_what_was_there():
    cfg, tokens = learn_fixtures.POLICY, 128
    params = learn_fixtures.random_params()
    rng = np.random.default_rng(0)
    group = learn_fixtures.random_group(rng, (9, 16), vocabulary=cfg.vocab_size, roots=2, continuations=3)
    families = packing.families(group, np.linspace(-1, 1, len(group)))
    batch = next(b for b in packing.pack(families, packing.Streams(tokens, tokens)))
    step = aot.lower_step(cfg, "xla", jax.devices()[:1], len(batch.tokens), tokens).compile()
    before = jax.tree.map(jnp.ones_like, params)
    got = step(params, before, jax.tree.map(lambda x: np.asarray(x)[None], batch))
    want = jax.jit(jax.grad(make_loss(cfg, learn_fixtures.learn_config(), 1.0), has_aux=True))(params, batch, None, 1.0)
    learn_fixtures.assert_trees_close(got, jax.tree.map(lambda g: g + 1, want[0]), rtol=1e-4, atol=1e-4)


def test_predicted_temporaries_are_those_of_the_compiled_program_within_a_half():
    got = aot.measure(aot.SHAPES["tiny"], "xla", "cpu", 1024, 1024)
    assert 0.5 < got["predicted"] / got["temporaries"] < 2
    assert got["kernels"] == 0
