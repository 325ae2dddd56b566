"""GGUF files against transformers: the same ids, the same network, and a folder that it loads."""

from __future__ import annotations

import copy
import json
import re

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("gguf")
import gguf  # noqa: E402
import gguf_fixtures  # noqa: E402
import tokenizers  # noqa: E402
from gguf_fixtures import TEXTS, config, fields, random_weights, tensors, write  # noqa: E402
from test_parity_tokenizer import assert_same, wild  # noqa: E402

from hdl_jax.policy import transformer as tr  # noqa: E402
from hdl_jax.policy.folder import save_folder  # noqa: E402
from hdl_jax.policy.gguf_file import GgufFile  # noqa: E402

torch.set_num_threads(1)  # more of them only wait for each other beside other tests

# A text of its own, not out of any book: 190 tokens or so.
PASSAGE = """The lighthouse keeper climbed the stairs every evening at six. There were 217 of them, and he had counted \
them so often that his feet knew the number better than he did. At the top he lit the lamp, wound the clockwork, and \
wrote the date, the wind and the weather into a thick book: "12 March, north-west, rain." When the fog came in, he \
rang the bell twice a minute until it was gone.

One night a ship answered. It was a small boat with a broken mast, and there were three people in it, a woman and her \
two children. He brought them up to the kitchen, made tea, and gave them bread with butter. In the morning the sea was \
calm again, and a fishing boat took them home to the harbour on the other side of the bay."""


def log_probs(file, tokens):
    """Our log-probability of each token but the first; [T - 1]."""
    params, cfg = file.load(), file.config
    return tr.token_logprobs(params, cfg, tr.forward(params, cfg, tokens)[:, :-1], tokens[:, 1:])[0][0]


def logits(params, cfg, tokens):
    return np.asarray(tr.logits(params, cfg, tr.forward(params, cfg, tokens)))


def conversation():
    return [
        {"role": "user", "content": "2 + 3?"},
        {"role": "assistant", "content": "5 \u2713"},
        {"role": "user", "content": "sure?"},
    ]


def write_files(path, files):
    path.mkdir()
    for name, content in files.items():
        (path / name).write_bytes(content)
    return path


# ---- random weights: converted the way llama.cpp's converter does it ------------------------------------------------


def converted(path, model, architecture):
    """A GGUF file of a transformers model, names from the gguf package's own table."""
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH[architecture.upper()], model.config.num_hidden_layers)
    heads = {"q_proj": model.config.num_attention_heads, "k_proj": model.config.num_key_value_heads}
    out = {}
    for name, tensor in model.state_dict().items():
        weights = tensor.numpy()
        part = name.split(".")[-2]
        if architecture == "llama" and part in heads:
            n = heads[part]
            weights = weights.reshape(n, 2, len(weights) // n // 2, -1).swapaxes(1, 2).reshape(weights.shape)
        if not (name == "lm_head.weight" and model.config.tie_word_embeddings):
            out[names.get_name(name, try_suffixes=(".weight",))] = weights
    cfg = config(architecture, tie_embeddings=model.config.tie_word_embeddings)
    metadata = fields(cfg, architecture) | {f"{architecture}.rope.freq_base": 500_000.0}
    scaling = model.config.rope_parameters
    if scaling["rope_type"] == "llama3":
        inverse = model.model.rotary_emb.inv_freq.double().numpy()
        out["rope_freqs.weight"] = np.float32(500_000.0 ** -(np.arange(len(inverse)) / len(inverse)) / inverse)
    return GgufFile(write(path, architecture, metadata, out))


@pytest.mark.parametrize("architecture", ["llama", "qwen3"])
def test_logits_of_a_converted_model(tmp_path, architecture):
    cfg = config(architecture)
    rope = {"rope_type": "default", "rope_theta": 500_000.0}
    if architecture == "llama":
        llama3 = dict(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=8192)
        rope |= {"rope_type": "llama3", **llama3}
    classes = {"llama": transformers.LlamaForCausalLM, "qwen3": transformers.Qwen3ForCausalLM}
    settings = classes[architecture].config_class(
        vocab_size=cfg.vocab_size, hidden_size=cfg.d_model, intermediate_size=cfg.d_ff, num_hidden_layers=cfg.n_layers,
        num_attention_heads=cfg.n_heads, num_key_value_heads=cfg.n_kv_heads, head_dim=cfg.head_dim,
        rms_norm_eps=cfg.norm_eps, rope_parameters=rope, tie_word_embeddings=cfg.tie_embeddings,
        initializer_range=0.15, max_position_embeddings=512, bos_token_id=1, eos_token_id=2, pad_token_id=0,
    )  # fmt: skip
    torch.manual_seed(0)
    model = classes[architecture](settings).eval()
    file = converted(tmp_path / "a.gguf", model, architecture)
    assert (file.config.rope_scaling is None) == (architecture == "qwen3")
    tokens = np.random.default_rng(0).integers(0, cfg.vocab_size, (2, 300))
    with torch.no_grad():
        theirs = model(torch.tensor(tokens)).logits.numpy()
    np.testing.assert_allclose(logits(file.load(), file.config, tokens), theirs, atol=1e-4, rtol=0)


@pytest.mark.parametrize("architecture", ["llama", "qwen3"])
def test_a_folder_saved_from_a_file_is_loaded_by_transformers(tmp_path, architecture):
    cfg = config(architecture)
    path = write(
        tmp_path / "a.gguf", architecture, fields(cfg, architecture), tensors(random_weights(cfg), cfg, architecture)
    )
    file = GgufFile(path)
    params = file.load()
    save_folder(tmp_path / "folder", params, file.config, files=file.files(), dtype="float32")
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "folder").eval()
    tokens = np.arange(64)[None]
    with torch.no_grad():
        theirs = model(torch.tensor(tokens)).logits.numpy()
    np.testing.assert_allclose(logits(params, cfg, tokens), theirs, atol=1e-4, rtol=0)
    generation = model.generation_config
    assert (generation.bos_token_id, generation.eos_token_id, generation.pad_token_id) == (1, [2], 0)

    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "folder")
    assert_same(file.tokenizer(), theirs, [*TEXTS, *wild(50)])
    assert (theirs.bos_token_id, theirs.eos_token_id, theirs.pad_token_id) == (1, 2, 0)
    rendered = theirs.apply_chat_template(conversation(), tokenize=False, add_generation_prompt=True)
    assert rendered.endswith("<|im_start|>user\nsure?<|im_end|>\n<|im_start|>assistant\n")


# ---- SmolLM2-135M-Instruct ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def smollm2():
    return gguf_fixtures.smollm2()


@pytest.fixture(scope="module")
def theirs(smollm2):
    return transformers.AutoTokenizer.from_pretrained(smollm2.path.parent, gguf_file=smollm2.path.name)


def test_smollm2s_ids(smollm2, theirs):
    """As transformers reads them, but that it does not know of SmolLM2 taking digits out first."""
    ours = smollm2.tokenizer()
    taken_out = re.compile("  [0-9]|[\u00bd\u00b2]")  # alone they make a difference; single spaces and digits do not
    assert_same(ours, theirs, [text for text in [*TEXTS, PASSAGE] if not taken_out.search(text)])
    assert ours.encode("In  1969") != theirs("In  1969").input_ids
    corrected = copy.deepcopy(theirs)
    digits = tokenizers.pre_tokenizers.Digits(individual_digits=True)
    words = corrected.backend_tokenizer.pre_tokenizer
    corrected.backend_tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([digits, words])
    assert_same(ours, corrected, [*TEXTS, *wild(300, seed=2)])


def test_smollm2s_folder_has_the_same_ids_and_template(smollm2, theirs, tmp_path):
    folder = write_files(tmp_path / "folder", smollm2.files())
    exported = transformers.AutoTokenizer.from_pretrained(folder)
    assert exported.chat_template == theirs.chat_template
    assert (
        exported.apply_chat_template(conversation(), add_generation_prompt=True).input_ids
        == theirs.apply_chat_template(conversation(), add_generation_prompt=True).input_ids
    )
    for role in ("bos", "eos", "unk", "pad"):
        assert getattr(exported, f"{role}_token") == getattr(theirs, f"{role}_token")
    assert_same(smollm2.tokenizer(), exported, [*TEXTS, *wild(100, seed=3)])
    config = transformers.AutoConfig.from_pretrained(folder)
    assert config.max_position_embeddings == 8192
    assert json.loads((folder / "generation_config.json").read_text())["eos_token_id"] == [2]


def test_smollm2s_perplexity_is_transformers(smollm2):
    pytest.importorskip("accelerate")
    model = transformers.AutoModelForCausalLM.from_pretrained(
        smollm2.path.parent, gguf_file=smollm2.path.name, dtype=torch.float32
    )
    tokens = np.array([smollm2.tokenizer().encode(PASSAGE)])
    with torch.no_grad():
        theirs = model(torch.tensor(tokens)).logits[0, :-1].log_softmax(-1).numpy()
    theirs = theirs[np.arange(tokens.shape[1] - 1), tokens[0, 1:]]
    ours = np.asarray(log_probs(smollm2, tokens))
    print(f"nats a token over {len(ours)}: ours {-ours.mean():.6f}, transformers {-theirs.mean():.6f}")
    # Perplexity within 1 %, and far closer a token: both dequantise the same blocks.
    assert np.exp(-ours.mean()) == pytest.approx(np.exp(-theirs.mean()), rel=0.01)
    np.testing.assert_allclose(ours, theirs, atol=2e-3)
