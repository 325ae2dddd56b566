"""Against transformers on torch's CPU: random tiny checkpoints of each family, run and saved by both."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file
from support import ask

torch = pytest.importorskip("torch", reason="pip install 'hdl_jax[parity]'")
transformers = pytest.importorskip("transformers", reason="pip install 'hdl_jax[parity]'")

from hdl_jax.policy import transformer as tr  # noqa: E402
from hdl_jax.policy.folder import load_folder, save_folder  # noqa: E402
from hdl_jax.policy.hf_config import read_config, write_config  # noqa: E402
from hdl_jax.policy.presets import PRESETS, RopeScaling, TransformerConfig  # noqa: E402
from hdl_jax.policy.tensors import places  # noqa: E402
from hdl_jax.sampling import cache as cache_lib  # noqa: E402
from hdl_jax.sampling.decode import decode_step  # noqa: E402
from hdl_jax.sampling.draw import GREEDY, Stream  # noqa: E402
from hdl_jax.sampling.engine import Engine  # noqa: E402
from hdl_jax.sampling.prefill import prefill  # noqa: E402
from hdl_jax.sampling.requests import Lane, Sample  # noqa: E402

torch.set_num_threads(1)  # waiting threads of torch spin, beside those of other tests

VOCABULARY, LENGTH, BLOCK = 96, 80, 16
SIZES = dict(
    vocab_size=VOCABULARY, hidden_size=48, intermediate_size=72, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, max_position_embeddings=512, initializer_range=0.25, bos_token_id=1, eos_token_id=2,
)  # fmt: skip
# Six pairs a head; in 32 tokens they turn often, seldom and in between.
SCALED = dict(
    rope_type="llama3", rope_theta=100.0, factor=8.0, low_freq_factor=0.3, high_freq_factor=2.0,
    original_max_position_embeddings=32,
)  # fmt: skip
FAMILIES = {
    "llama": ("Llama", dict(rms_norm_eps=1e-5)),
    "llama-tied": ("Llama", dict(num_attention_heads=3, num_key_value_heads=1, tie_word_embeddings=True)),
    "llama3": ("Llama", dict(rope_parameters=SCALED)),
    "llama3-tied": ("Llama", dict(rope_parameters=SCALED, head_dim=16, tie_word_embeddings=True)),
    "qwen3": ("Qwen3", dict(rope_parameters=dict(rope_type="default", rope_theta=1e6), head_dim=16)),
    "qwen3-tied": ("Qwen3", dict(head_dim=8, tie_word_embeddings=True)),
}


def make(family: str) -> transformers.PreTrainedModel:
    """A checkpoint whose attention is far from uniform and whose norms are not ones."""
    kind, changes = FAMILIES[family]
    config = getattr(transformers, f"{kind}Config")(**SIZES | changes)
    torch.manual_seed(sorted(FAMILIES).index(family))
    model = getattr(transformers, f"{kind}ForCausalLM")(config)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "norm" in name:
                p.add_(0.3 * torch.randn_like(p))
    return model.eval()


@dataclasses.dataclass
class Pair:
    """The same policy in both libraries."""

    folder: Path
    theirs: transformers.PreTrainedModel
    cfg: TransformerConfig
    params: tr.Params


@pytest.fixture(scope="module", params=FAMILIES)
def pair(request, tmp_path_factory) -> Pair:
    folder, model = tmp_path_factory.mktemp(request.param), make(request.param)
    model.save_pretrained(folder)
    return Pair(folder, model, cfg := read_config(folder), load_folder(folder, cfg))


def ids(seed: int, n: int = LENGTH) -> np.ndarray:
    return np.random.default_rng(seed).integers(3, VOCABULARY, n).astype(np.int32)


def their_logits(model, tokens) -> np.ndarray:
    """float32 [T, V] of one row without a cache."""
    with torch.no_grad():
        return model(torch.tensor(np.asarray(tokens)[None], dtype=torch.long), use_cache=False).logits[0].numpy()


def assert_close(ours, theirs) -> None:
    assert np.abs(theirs).max() > 3  # or 1e-4 would say nothing
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-4)


# ---- running --------------------------------------------------------------------------------------------------------


def test_whole_rows(pair):
    rows = np.stack([ids(0), ids(1)])
    run = jax.jit(lambda p, t: tr.logits(p, pair.cfg, tr.forward(p, pair.cfg, t)))
    for ours, tokens in zip(np.asarray(run(pair.params, rows)), rows, strict=True):
        assert_close(ours, their_logits(pair.theirs, tokens))


def _prefill(pair: Pair, tokens: np.ndarray, targets: np.ndarray):
    """One row a list of targets, all of the same tokens [T]; the cache, and log-probs and entropies [2, rows, T]."""
    rows, blocks = len(targets), len(tokens) // BLOCK
    cache = cache_lib.empty(pair.cfg, cache_lib.CacheShape(rows, 4, LENGTH, LENGTH, BLOCK))
    row, block = (x.reshape(-1).astype(np.int32) for x in np.mgrid[:rows, :blocks])
    cache, scores = prefill(
        tr.sampling_layout(pair.params, pair.cfg), cache, row, block, np.tile(tokens.reshape(blocks, BLOCK), (rows, 1)),
        targets.reshape(-1, BLOCK), jnp.float32(1), cfg=pair.cfg, score=True,
    )  # fmt: skip
    return cache, np.asarray(scores).reshape(2, rows, -1)


def test_prefill(pair):
    """Log-probabilities of all next tokens, four rows' targets at a time, and the entropies of the distributions."""
    tokens = ids(2)
    every = np.random.default_rng(3).permuted(np.tile(np.arange(VOCABULARY, dtype=np.int32), (LENGTH, 1)), axis=1).T
    theirs = their_logits(pair.theirs, tokens).astype(np.float64)
    theirs -= np.logaddexp.reduce(theirs, axis=-1, keepdims=True)
    for targets in every[:24].reshape(6, 4, LENGTH):
        log_probs, entropies = _prefill(pair, tokens, targets)[1]
        assert_close(log_probs, np.take_along_axis(theirs[None], targets[..., None], axis=-1)[..., 0])
        np.testing.assert_allclose(entropies[1], -(np.exp(theirs) * theirs).sum(axis=-1), atol=1e-4)


def test_cached_decode(pair):
    """Two lanes that leave one prefix at different places, a token at a time, beside their own cached decode."""
    prefix, forks, steps = ids(4), (64, 37), 40
    fed = np.stack([ids(5, steps), ids(6, steps)])
    params = tr.sampling_layout(pair.params, pair.cfg)
    cache = _prefill(pair, prefix, np.zeros((1, LENGTH), np.int32))[0]
    step = jax.jit(decode_step, static_argnums=1)
    ours = []
    for i in range(steps):
        z, cache = step(
            params, pair.cfg, cache, jnp.asarray(fed[:, i]), jnp.array([0]), jnp.arange(2), jnp.array(forks),
            jnp.array([i, i]),
        )  # fmt: skip
        ours.append(np.asarray(z.T))
    for lane, fork in enumerate(forks):
        with torch.no_grad():
            out = pair.theirs(torch.tensor(prefix[None, :fork], dtype=torch.long), use_cache=True)
            for i, token in enumerate(fed[lane]):
                out = pair.theirs(torch.tensor([[int(token)]]), past_key_values=out.past_key_values, use_cache=True)
                assert_close(ours[i][lane], out.logits[0, -1].numpy())


def test_greedy_generation(pair):
    """Through the engine, where a greedy temperature leaves nothing to draw: prompts of several lengths at once."""
    prompts, new = [ids(7, 5), ids(8, 16), ids(9, 50), ids(10, 79)], 48
    engine = Engine(
        pair.cfg, cache_lib.CacheShape(4, 4, LENGTH, new + 1, BLOCK), seed=0, tile=1, width=4, chunks=4, steps=16
    )
    engine.load(pair.params)
    lanes = [Lane((Stream.ROOT, 0, 0, len(p), 0, i), len(p), new, GREEDY, (-1,)) for i, p in enumerate(prompts)]
    results = engine.run([ask(*(Sample(p, (lane,), "root") for p, lane in zip(prompts, lanes, strict=True)))], 0)[0]
    for prompt, (result,) in zip(prompts, results, strict=True):
        inputs = torch.tensor(prompt[None], dtype=torch.long)
        theirs = pair.theirs.generate(
            inputs, attention_mask=torch.ones_like(inputs), do_sample=False, max_new_tokens=new, eos_token_id=None,
            pad_token_id=0,
        )  # fmt: skip
        assert result.tokens.tolist() == theirs[0, len(prompt) :].tolist()
        assert len(set(result.tokens.tolist())) > 5


# ---- folders --------------------------------------------------------------------------------------------------------


def _tensors(folder: Path) -> dict[str, np.ndarray]:
    return {name: tensor for file in folder.glob("*.safetensors") for name, tensor in load_file(file).items()}


@pytest.mark.parametrize("shard_bytes", [5 * 10**9, 20_000])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("family", FAMILIES)
def test_their_folder_to_parameters_to_our_folder_bit_for_bit(tmp_path, family, dtype, shard_bytes):
    """Single files and shards, theirs and ours; and they load what we saved."""
    model = make(family).to(getattr(torch, dtype))
    model.save_pretrained(tmp_path / "theirs", max_shard_size=shard_bytes)
    files = {p.name: p.read_bytes() for p in (tmp_path / "theirs").iterdir() if "safetensors" not in p.name}
    assert {"config.json", "generation_config.json"} <= files.keys()
    cfg = read_config(tmp_path / "theirs")
    params = load_folder(tmp_path / "theirs", cfg)
    save_folder(tmp_path / "ours", params, cfg, files=files, dtype=dtype, shard_bytes=shard_bytes)

    theirs, ours = _tensors(tmp_path / "theirs"), _tensors(tmp_path / "ours")
    assert theirs.keys() == ours.keys() == places(cfg).keys()
    for name, tensor in theirs.items():
        assert tensor.dtype == ours[name].dtype and tensor.shape == ours[name].shape
        assert tensor.tobytes() == ours[name].tobytes(), name
    assert {p.name: p.read_bytes() for p in (tmp_path / "ours").iterdir() if "safetensors" not in p.name} == files
    assert len(list((tmp_path / "theirs").glob("*.safetensors"))) > 1 or shard_bytes > 20_000

    loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "ours", dtype="auto")
    assert type(loaded) is type(model) and loaded.dtype == model.dtype
    for (name, a), (_, b) in zip(model.state_dict().items(), loaded.state_dict().items(), strict=True):
        assert torch.equal(a, b), name


@pytest.mark.parametrize(
    "cfg",
    [
        TransformerConfig(96, 48, 2, 3, 1, 16, 72, 1e5, 1e-5),
        TransformerConfig(96, 48, 2, 4, 2, 8, 72, 100.0, tie_embeddings=False, rope_scaling=RopeScaling(8, 0.3, 2, 32)),
        TransformerConfig(96, 44, 2, 3, 3, 16, 72, 1e6, qk_norm=True, tie_embeddings=False),
    ],
    ids=["llama", "llama3", "qwen3"],
)  # fmt: skip
def test_they_run_a_policy_that_never_had_a_folder(tmp_path, cfg):
    rng, like = np.random.default_rng(0), tr.abstract_params(cfg)
    params = jax.tree.map(lambda p: jnp.asarray(0.25 * rng.standard_normal(p.shape, np.float32)), like)
    params["norm"] += 1
    config = write_config(cfg, bos_token_id=1, eos_token_id=[2, 3], max_position_embeddings=256)
    save_folder(tmp_path / "x", params, cfg, files={"config.json": json.dumps(config).encode()}, dtype="float32")
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "x", dtype="auto")
    assert (model.dtype, model.config.eos_token_id, model.config.max_position_embeddings) == (
        torch.float32,
        [2, 3],
        256,
    )
    hidden = jax.jit(functools.partial(tr.forward, cfg=cfg))(params, tokens=ids(11)[None])
    assert_close(tr.logits(params, cfg, hidden)[0], their_logits(model.eval(), ids(11)))


# ---- presets --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PRESETS)
def test_a_presets_tensors_and_frequencies_are_theirs(name):
    """Names and shapes of every tensor at full size, without memory, and the rotary frequencies of one head."""
    cfg = PRESETS[name]
    fields = write_config(cfg)
    config = transformers.AutoConfig.for_model(**fields)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    theirs = {n: tuple(p.shape) for n, p in model.state_dict().items()}
    if cfg.tie_embeddings:
        assert theirs.pop("lm_head.weight") == theirs["model.embed_tokens.weight"]
    assert theirs == {n: place.shape for n, place in places(cfg).items()}
    assert sum(map(math.prod, theirs.values())) == tr.parameter_count(tr.abstract_params(cfg))
    rotary = type(model.model.rotary_emb)(config)
    np.testing.assert_allclose(tr.rotary_frequencies(cfg), rotary.inv_freq.numpy(), rtol=5e-7)
