"""The policy against a hand-written float64 network, and the chunked head against the whole one."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import TINY, random_ids, random_params

from hdl_jax.policy import transformer as tr
from hdl_jax.policy.attention import causal_attention
from hdl_jax.policy.presets import RopeScaling, TransformerConfig

FORWARD = jax.jit(tr.forward, static_argnums=1)
VARIANTS = [
    dataclasses.replace(TINY, qk_norm=qk_norm, tie_embeddings=tie, n_kv_heads=kv)
    for qk_norm, tie, kv in [(True, True, 2), (False, False, 1), (True, False, 4), (False, True, 2)]
]
# Heads of four pairs, which turn 10.2, 1.02, 0.1 and 0.01 times in 64 tokens: the first keeps its
# speed, the last two are slowed down, the second lies half way between.
VARIANTS.append(dataclasses.replace(VARIANTS[1], rope_scaling=RopeScaling(8.0, 0.5, 1.54, 64)))


def _name(cfg: TransformerConfig) -> str:
    scaled = "-scaled" if cfg.rope_scaling else ""
    return f"qk{cfg.qk_norm}-tied{cfg.tie_embeddings}-kv{cfg.n_kv_heads}{scaled}"


def _norm(x, scale, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * scale


def _frequency(cfg: TransformerConfig, i: int) -> float:
    """Radians a position of pair i; the scaling as a pair's wavelength decides it."""
    f, scaling = cfg.rope_theta ** (-2 * i / cfg.head_dim), cfg.rope_scaling
    if scaling is None:
        return f
    wavelength, context = 2 * np.pi / f, scaling.original_max_position
    if wavelength < context / scaling.high_freq_factor:
        return f
    if wavelength > context / scaling.low_freq_factor:
        return f / scaling.factor
    smooth = (context / wavelength - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor)
    return (1 - smooth) * f / scaling.factor + smooth * f


def _rope(x, cfg):
    """x [T, d]: each pair (i, i + d/2) is turned by its angle, one number at a time."""
    t, d = x.shape
    out = np.empty_like(x)
    for pos in range(t):
        for i in range(d // 2):
            angle = pos * _frequency(cfg, i)
            a, b = x[pos, i], x[pos, i + d // 2]
            out[pos, i] = a * np.cos(angle) - b * np.sin(angle)
            out[pos, i + d // 2] = b * np.cos(angle) + a * np.sin(angle)
    return out


def slow_hidden(params, cfg: TransformerConfig, tokens) -> np.ndarray:
    """Hidden states [T, D] of one row in float64, head by head and query by query."""
    params = jax.tree.map(lambda p: np.asarray(p, np.float64), params)
    x = params["embed"][np.asarray(tokens)]
    for layer in range(cfg.n_layers):
        block = jax.tree.map(lambda p, i=layer: p[i], params["blocks"])
        h = _norm(x, block["attention_norm"]["scale"], cfg.norm_eps)
        q, k, v = (h @ block[name]["kernel"] for name in "qkv")
        heads = []
        for head in range(cfg.n_heads):
            shared = head // (cfg.n_heads // cfg.n_kv_heads)
            own, their = (slice(i * cfg.head_dim, (i + 1) * cfg.head_dim) for i in (head, shared))
            qh, kh, vh = q[:, own], k[:, their], v[:, their]
            if cfg.qk_norm:
                qh = _norm(qh, block["q_norm"]["scale"], cfg.norm_eps)
                kh = _norm(kh, block["k_norm"]["scale"], cfg.norm_eps)
            qh, kh = _rope(qh, cfg), _rope(kh, cfg)
            out = np.zeros_like(vh)
            for i in range(len(x)):
                scores = kh[: i + 1] @ qh[i] / np.sqrt(cfg.head_dim)
                weights = np.exp(scores - scores.max())
                out[i] = weights / weights.sum() @ vh[: i + 1]
            heads.append(out)
        x = x + np.concatenate(heads, axis=1) @ block["o"]["kernel"]
        h = _norm(x, block["mlp_norm"]["scale"], cfg.norm_eps)
        gate = h @ block["gate"]["kernel"]
        x = x + (gate / (1 + np.exp(-gate)) * (h @ block["up"]["kernel"])) @ block["down"]["kernel"]
    return x


def slow_logits(params, cfg: TransformerConfig, hidden) -> np.ndarray:
    params = jax.tree.map(lambda p: np.asarray(p, np.float64), params)
    head = params["embed"].T if cfg.tie_embeddings else params["head"]
    return _norm(np.asarray(hidden, np.float64), params["norm"], cfg.norm_eps) @ head


def slow_log_softmax(z) -> np.ndarray:
    z = z - z.max(-1, keepdims=True)
    return z - np.log(np.exp(z).sum(-1, keepdims=True))


@pytest.mark.parametrize("cfg", VARIANTS, ids=_name)
def test_forward_is_the_hand_written_network(cfg):
    params = random_params(cfg, seed=3)
    tokens = np.stack([random_ids(1, 21), random_ids(2, 21)])
    hidden = FORWARD(params, cfg, tokens)
    for row in range(2):
        expected = slow_hidden(params, cfg, tokens[row])
        np.testing.assert_allclose(hidden[row], expected, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(
            tr.logits(params, cfg, hidden[row]), slow_logits(params, cfg, expected), rtol=1e-4, atol=1e-4
        )


def test_later_tokens_change_nothing_before_them(params):
    tokens = random_ids(4, 24)
    other = tokens.copy()
    other[10:] = random_ids(5, 14)
    a, b = FORWARD(params, TINY, tokens[None])[0], FORWARD(params, TINY, other[None])[0]
    assert np.asarray(a[:10]).tobytes() == np.asarray(b[:10]).tobytes()
    assert np.abs(a[10:] - b[10:]).max() > 1e-3


def test_bfloat16_computes_in_bfloat16_and_stays_close(params):
    tokens = random_ids(6, 20)[None]
    half = dataclasses.replace(TINY, dtype="bfloat16")
    hidden = FORWARD(params, half, tokens)
    assert hidden.dtype == jnp.bfloat16
    z = tr.logits(params, half, hidden)
    assert z.dtype == jnp.float32
    exact = tr.logits(params, TINY, FORWARD(params, TINY, tokens))
    assert np.abs(z - exact).mean() < 0.05 * np.abs(exact).mean() + 0.02


@pytest.mark.parametrize("cfg", VARIANTS, ids=_name)
def test_the_sampling_layout_keeps_every_layer(cfg):
    params = random_params(cfg, seed=4)
    sampling = tr.sampling_layout(params, cfg)
    assert len(sampling["blocks"]) == cfg.n_layers
    for i, block in enumerate(sampling["blocks"]):
        # Kernels are turned, scales are not.
        jax.tree.map(lambda one, all_, i=i: np.testing.assert_array_equal(one.T, all_[i]), block, params["blocks"])
    for name in params.keys() - {"blocks"}:
        np.testing.assert_array_equal(sampling[name], params[name])


def test_the_sampling_layout_computes_in_the_policys_dtype(params):
    sampling = tr.sampling_layout(params, dataclasses.replace(TINY, dtype="bfloat16"))
    assert {p.dtype for p in jax.tree.leaves(sampling["blocks"][0]) if p.ndim == 2} == {jnp.dtype("bfloat16")}
    assert sampling["embed"].dtype == jnp.bfloat16
    scales = [p for p in jax.tree.leaves(sampling["blocks"]) if p.ndim == 1]
    assert scales and {p.dtype for p in [sampling["norm"], *scales]} == {jnp.dtype("float32")}


@pytest.mark.parametrize("cfg", VARIANTS, ids=_name)
def test_a_token_a_column_is_the_hand_written_network(cfg):
    """The layers that sampling runs, in its own layout, and its head; positions need not start at 0 nor be in order."""
    params = random_params(cfg, seed=5)
    tokens = random_ids(8, 21)
    order = np.random.default_rng(9).permutation(21)
    sampling = tr.sampling_layout(params, cfg)
    x = tr.embed(sampling, cfg, tokens[order]).T
    where = np.argsort(order)  # column of each position

    def attend(q, k, v):
        q, k, v = (y.transpose(2, 0, 1)[None, where] for y in (q, k, v))
        return causal_attention(q, k, v)[0, order].transpose(1, 2, 0), None

    for block in sampling["blocks"]:
        x, _ = tr.Block(cfg, columns=True).apply({"params": block}, x, jnp.asarray(order), attend)
    expected = slow_hidden(params, cfg, tokens)
    np.testing.assert_allclose(x.T[where], expected, rtol=1e-4, atol=1e-4)
    z = tr.column_logits(sampling, cfg, x)
    assert z.shape == (cfg.vocab_size, 21) and z.dtype == jnp.float32
    np.testing.assert_allclose(z.T[where], slow_logits(params, cfg, expected), rtol=1e-4, atol=2e-4)


def test_init_is_what_abstract_params_and_the_count_say():
    cfg = VARIANTS[1]
    params, shapes = tr.init(cfg, jax.random.key(0)), tr.abstract_params(cfg)
    assert jax.tree.map(jnp.shape, params) == jax.tree.map(lambda s: s.shape, shapes)
    d, hd, f = cfg.d_model, cfg.head_dim, cfg.d_ff
    layer = d * hd * (cfg.n_heads + 2 * cfg.n_kv_heads) + cfg.n_heads * hd * d + 3 * d * f + 2 * d
    assert tr.parameter_count(params) == cfg.n_layers * layer + 2 * cfg.vocab_size * d + d


# ---- the head -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("elements", [1, 7 * TINY.vocab_size, 11 * TINY.vocab_size, 1 << 23])
@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_chunked_head_equals_the_whole_one(params, monkeypatch, elements, temperature):
    monkeypatch.setattr(tr, "HEAD_ELEMENTS", elements)
    rng = np.random.default_rng(7)
    hidden = jnp.asarray(rng.normal(size=(2, 11, TINY.d_model)), jnp.float32)
    targets = jnp.asarray(rng.integers(0, TINY.vocab_size, (2, 11)))
    log_p, entropy = tr.token_logprobs(params, TINY, hidden, targets, temperature)
    whole = slow_log_softmax(slow_logits(params, TINY, hidden) / temperature)
    np.testing.assert_allclose(log_p, np.take_along_axis(whole, np.asarray(targets)[..., None], -1)[..., 0], atol=1e-5)
    np.testing.assert_allclose(entropy, -(np.exp(whole) * whole).sum(-1), atol=1e-5)


@pytest.mark.parametrize("seed", [0, 1])
def test_gradients_through_the_chunked_head_equal_the_whole_ones(monkeypatch, seed):
    cfg = VARIANTS[1]
    params = random_params(cfg, seed)
    rng = np.random.default_rng(seed)
    hidden = jnp.asarray(rng.normal(size=(13, cfg.d_model)), jnp.float32)
    targets = jnp.asarray(rng.integers(0, cfg.vocab_size, 13))
    weights = rng.normal(size=(2, 13)).astype(np.float32)

    def chunked(params, hidden):
        log_p, entropy = tr.token_logprobs(params, cfg, hidden, targets, 0.7)
        return (weights[0] * log_p + weights[1] * entropy).sum()

    def whole(params, hidden):
        log_p = jax.nn.log_softmax(tr.logits(params, cfg, hidden) / 0.7)
        entropy = -(jnp.exp(log_p) * log_p).sum(-1)
        return (weights[0] * log_p[jnp.arange(13), targets] + weights[1] * entropy).sum()

    monkeypatch.setattr(tr, "HEAD_ELEMENTS", 4 * cfg.vocab_size)
    got, expected = (jax.jit(jax.grad(f, argnums=(0, 1)))(params, hidden) for f in (chunked, whole))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-5), got, expected)


def _one_hot_policy(z) -> tuple[TransformerConfig, tr.Params, jax.Array]:
    """A head that gives the logits z for the hidden state of ones."""
    cfg = TransformerConfig(len(z), 4, 1, 1, 1, 2, 4, norm_eps=1e-12, tie_embeddings=False)
    return cfg, {"norm": jnp.ones(4), "head": jnp.tile(jnp.asarray(z) / 4, (4, 1))}, jnp.ones((1, 4))


@pytest.mark.parametrize(("temperature", "log_p", "entropy"), [(1.0, -0.407606, 0.832396), (0.6, -0.202573, 0.556749)])
def test_known_values_at_the_samplers_temperature(temperature, log_p, entropy):
    cfg, params, hidden = _one_hot_policy([2.0, 1.0, 0.0])
    got = tr.token_logprobs(params, cfg, hidden, jnp.array([0]), temperature)
    np.testing.assert_allclose(got[0], [log_p], atol=1e-6)
    np.testing.assert_allclose(got[1], [entropy], atol=1e-6)


def test_a_ruled_out_token_leaves_the_entropy_finite():
    cfg, params, hidden = _one_hot_policy([0.0, 0.0, -3e4])
    log_p, entropy = tr.token_logprobs(params, cfg, hidden, jnp.array([2]))
    np.testing.assert_allclose(entropy, [np.log(2)], atol=1e-6)
    assert np.isfinite(log_p).all()


def _sizes(jaxpr) -> list[int]:
    """Sizes of everything a program computes, inner programs included."""
    sizes = []
    for equation in jaxpr.eqns:
        sizes += [v.aval.size for v in equation.outvars if hasattr(v.aval, "size")]
        for value in jax.tree.leaves(equation.params, is_leaf=lambda p: hasattr(p, "eqns") or hasattr(p, "jaxpr")):
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                sizes += _sizes(inner)
    return sizes


@pytest.mark.parametrize("differentiate", [False, True])
def test_logits_of_a_row_never_exist_whole(monkeypatch, differentiate):
    cfg = dataclasses.replace(TINY, vocab_size=512)
    t = 64
    params = tr.abstract_params(cfg)
    hidden, targets = jax.ShapeDtypeStruct((t, cfg.d_model), jnp.float32), jax.ShapeDtypeStruct((t,), jnp.int32)

    def loss(params, hidden, targets):
        return sum(x.sum() for x in tr.token_logprobs(params, cfg, hidden, targets))

    def largest(elements: int) -> int:
        monkeypatch.setattr(tr, "HEAD_ELEMENTS", elements)
        # A function of its own: make_jaxpr remembers what it has traced, and would not see the new limit.
        f = (lambda *a: jax.grad(loss, argnums=(0, 1))(*a)) if differentiate else (lambda *a: loss(*a))
        return max(_sizes(jax.make_jaxpr(f)(params, hidden, targets).jaxpr))

    assert largest(1 << 23) >= t * cfg.vocab_size  # this walk does see the logits of a single chunk
    assert largest(8 * cfg.vocab_size) < t * cfg.vocab_size


# ---- shapes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [("n_kv_heads", 3, "n_kv_heads=3 must divide"), ("head_dim", 7, "head_dim=7"), ("dtype", "float16", "float16")],
)
def test_impossible_shapes_are_refused(field, value, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(TINY, **{field: value})
