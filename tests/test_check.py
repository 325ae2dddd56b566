"""The check of a checkpoint against transformers: what is right passes, and each figure fails on what it is for."""

from __future__ import annotations

import dataclasses
import json
import shutil
import sys

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

pytest.importorskip("gguf")
pytest.importorskip("tokenizers")
pytest.importorskip("jinja2")
import policy_fixtures  # noqa: E402
from gguf_fixtures import TEMPLATE, made  # noqa: E402

from hdl_jax.policy import check, check_theirs  # noqa: E402
from hdl_jax.policy.check import difference, first_difference, main, roundtrip_equal  # noqa: E402
from hdl_jax.policy.folder import save_folder  # noqa: E402
from hdl_jax.policy.source import open_policy  # noqa: E402

COMPARED = ("max_logit_difference", "greedy_equal", "chat_equal")
NAMES = ["max_logit_difference", "max_cached_logit_difference", "greedy_equal", "roundtrip_equal", "chat_equal"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("check") / "checkpoint"
    policy_fixtures.folder(path)
    return path


@pytest.fixture(scope="module")
def theirs(folder):
    """What transformers makes of it, worked out once."""
    for name in ("torch", "transformers"):
        pytest.importorskip(name, reason="pip install 'hdl_jax[parity]'")
    sys.modules["torch"].set_num_threads(1)  # more only wait for each other beside other tests
    rows = [open_policy(str(folder)).chat.tokenizer.encode(text)[: check.LENGTH] for text in check.TEXTS]
    return check_theirs.run_theirs(str(folder), rows, check.NEW)


@pytest.fixture
def run(capsys):
    """Runs the command -> (exit status or message, its figures by name)."""

    def run(name):
        try:
            status = main([str(name)])
        except SystemExit as stopped:
            status = stopped.code
        lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert [line["name"] for line in lines] in ([], [f"check/{n}" for n in NAMES])
        return status, {line["name"].removeprefix("check/"): line for line in lines}

    return run


def values(figures):
    return {name: line["value"] for name, line in figures.items()}


def assert_passed(status, figures):
    assert status == 0, figures
    for name in ("max_logit_difference", "max_cached_logit_difference"):
        assert 0 < figures[name]["value"] <= figures[name]["tolerance"] <= 1e-3
    assert figures["max_cached_logit_difference"]["against"] == "whole rows and transformers"
    assert all(figures[name]["value"] is True for name in ("greedy_equal", "roundtrip_equal", "chat_equal"))
    assert figures["greedy_equal"]["tokens"] == 4 * 32


# ---- what is right passes -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("architecture", "dtype", "thinks"), [("llama", "bfloat16", False), ("qwen3", "float32", True)]
)
def test_a_folder_passes(tmp_path, run, theirs, architecture, dtype, thinks):
    policy_fixtures.folder(tmp_path / "x", architecture, dtype=dtype, thinks=thinks)
    assert_passed(*run(tmp_path / "x"))


def test_a_gguf_file_passes(tmp_path, run, theirs):
    pytest.importorskip("accelerate", reason="transformers reads GGUF with it")
    changes = {"tokenizer.ggml.pre": "gpt-2"}  # of which transformers reads the words as they are
    assert_passed(*run(made(tmp_path, "llama", changes=changes)[0].path))


def test_without_transformers_the_rest_is_checked_and_said_so(folder, run, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    status, figures = run(folder)
    assert status == 0
    for name in COMPARED:
        assert figures[name]["value"] is None
        assert figures[name]["reason"].startswith("not compared with transformers: ")
    cached = figures["max_cached_logit_difference"]
    assert 0 < cached["value"] <= cached["tolerance"] and cached["against"] == "whole rows"
    assert figures["roundtrip_equal"]["value"] is True


# ---- each figure fails on what it is there for ----------------------------------------------------------------------


@pytest.fixture
def ready(theirs, monkeypatch):
    """Transformers' part is taken as worked out."""
    monkeypatch.setattr(check, "run_theirs", lambda *args: theirs)


def changed(monkeypatch, change):
    """Opens policies whose parameters are read wrongly."""

    def opened(name, **options):
        policy = open_policy(name, **options)
        return dataclasses.replace(policy, load=lambda sharding: change(policy.load(sharding)))

    monkeypatch.setattr(check, "open_policy", opened)


def test_a_weight_that_is_read_wrongly(folder, run, ready, monkeypatch):
    def change(params):
        params["blocks"]["o"]["kernel"] = params["blocks"]["o"]["kernel"].at[1, 3, 5].multiply(-3)
        return params

    changed(monkeypatch, change)
    status, figures = run(folder)
    assert status == 1
    assert figures["max_logit_difference"]["value"] > 1e-3
    # The cache agrees with whole rows here, not with theirs.
    assert figures["max_cached_logit_difference"]["value"] > 1e-3
    assert figures["roundtrip_equal"]["value"] is False and figures["chat_equal"]["value"] is True


def test_a_policy_of_other_weights_says_other_things(folder, run, ready, monkeypatch):
    changed(monkeypatch, lambda params: params | {"norm": params["norm"] * np.linspace(-1, 1, len(params["norm"]))})
    status, figures = run(folder)
    assert status == 1 and figures["greedy_equal"]["value"] is False
    assert any(isinstance(i, int) for i in figures["greedy_equal"]["parted"])


def test_broken_numbers_are_within_nothing(folder, run, ready, monkeypatch):
    changed(monkeypatch, lambda params: params | {"norm": params["norm"] * np.float32(np.nan)})
    # Where nothing is finite the engine refuses to draw.
    monkeypatch.setattr(check, "greedy_tokens", lambda params, cfg, rows: [[0] * check.NEW] * len(rows))
    status, figures = run(folder)
    assert status == 1
    assert figures["max_logit_difference"]["value"] == figures["max_cached_logit_difference"]["value"] == "nan"


@pytest.mark.parametrize("part", ["decode_step", "prefill"])
def test_a_cache_that_is_off(folder, run, ready, monkeypatch, part):
    whole = getattr(check, part)

    def off(*args, **kwargs):
        if part == "decode_step":
            return whole(*args, **kwargs | {"fork": kwargs["fork"] - 1})
        *before, tokens, targets, temperature = args
        return whole(*before, tokens[:, ::-1], targets, temperature, **kwargs)

    monkeypatch.setattr(check, part, off)
    status, figures = run(folder)
    assert status == 1
    cached, direct = figures["max_cached_logit_difference"], figures["max_logit_difference"]
    assert cached["value"] > cached["tolerance"] and direct["value"] <= direct["tolerance"]


@pytest.mark.parametrize("value", [0.0, np.nan])
def test_without_transformers_a_cache_that_is_off_fails_too(folder, run, monkeypatch, value):
    monkeypatch.setitem(sys.modules, "transformers", None)
    monkeypatch.setattr(check, "cached_rows", lambda _, cfg, rows: [np.full((1, cfg.vocab_size), value)] * len(rows))
    assert run(folder)[0] == 1


def test_conversations_that_differ(folder, run, ready, theirs, monkeypatch):
    policy = open_policy(str(folder))
    assert check.compare_chat(policy.chat, theirs) == []
    other = list(theirs.rendered)
    other[1], other[3] = (other[1][0], other[1][1][:-1]), None
    assert check.compare_chat(policy.chat, dataclasses.replace(theirs, rendered=other)) == [1, 3]
    other = list(theirs.rendered)
    other[2] = (other[2][0] + " ", other[2][1])
    assert check.compare_chat(policy.chat, dataclasses.replace(theirs, rendered=other)) == [2]
    # A prompt that is not what the template renders.
    monkeypatch.setattr(type(policy.chat), "prompt", lambda self, text: [1])
    status, figures = run(folder)
    assert status == 1 and figures["chat_equal"]["differing"] == [0]


def test_a_conversation_that_both_refuse_is_no_difference(folder, theirs, monkeypatch):
    chat = open_policy(str(folder)).chat

    def refuse(*args, **kwargs):
        raise ValueError("no")

    monkeypatch.setattr(chat.template, "render", refuse)
    nothing = dataclasses.replace(theirs, rendered=[None] * len(theirs.rendered))
    assert check.compare_chat(chat, nothing) == []
    assert check.compare_chat(chat, theirs) == [0, 1, 2, 3, 4]


def test_a_template_that_refuses_a_system_prompt_does_so_in_both(folder, theirs, tmp_path):
    copy = shutil.copytree(folder, tmp_path / "copy")
    refusal = "{% if messages[0].role == 'system' %}{{ raise_exception('no system prompt') }}{% endif %}"
    (copy / "chat_template.jinja").write_text(refusal + TEMPLATE)
    tokenizer = sys.modules["transformers"].AutoTokenizer.from_pretrained(copy)
    rendered = [check_theirs._rendered(tokenizer, messages) for messages in check_theirs.CONVERSATIONS]
    assert [r is None for r in rendered] == [False, True, False, False, True]
    assert check.compare_chat(open_policy(str(copy)).chat, dataclasses.replace(theirs, rendered=rendered)) == []


# ---- round trips ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("shard_bytes", [5 * 10**9, 50_000])
def test_round_trips(tmp_path, dtype, shard_bytes):
    params = policy_fixtures.folder(tmp_path / "one", dtype="bfloat16" if dtype == "bfloat16" else "float32")
    policy = open_policy(str(tmp_path / "one"))
    out = tmp_path / "two"
    stored = "bfloat16" if dtype == "bfloat16" else "float32"
    save_folder(out, params, policy.shape, files=policy.files(), dtype=stored, shard_bytes=shard_bytes)
    if dtype == "float16":
        for file in out.glob("*.safetensors"):
            save_file({n: t.astype(np.float16) for n, t in load_file(file).items()}, file)
    (out / "consolidated.safetensors").write_bytes(b"not a part of it")
    read = open_policy(str(out)).load(None)
    assert roundtrip_equal(policy, read, out)
    # One bit of one number.
    off = jax.tree.map(np.array, read)
    off["blocks"]["down"]["kernel"][1, 2, 3] *= np.float32(1 + 2**-7)
    assert not roundtrip_equal(policy, off, out)


def test_a_policy_that_was_no_folder_is_read_back(tmp_path, monkeypatch):
    file, params, _ = made(tmp_path, "llama")
    policy = open_policy(str(file.path))
    assert roundtrip_equal(policy, params, None)
    saved = check.save_folder
    monkeypatch.setattr(check, "save_folder", lambda out, p, *a, **k: saved(out, p | {"norm": p["norm"] + 1}, *a, **k))
    assert not roundtrip_equal(policy, params, None)


# ---- parts ----------------------------------------------------------------------------------------------------------


def test_difference():
    a, b = np.float32([[1, 2], [3, 4]]), np.float32([[1, 2.5], [3, 4]])
    assert difference([a, a], [a, b]) == 0.5 and difference([b, a], [a, a]) == 0.5
    assert np.isnan(difference([a, a * np.nan], [a, a]))


def test_answers_part_where_logits_can_tell_them_apart():
    logits = np.zeros((3, 5), np.float32)
    logits[1, 2], logits[1, 3] = 1.0, 0.9
    assert first_difference([1, 2, 4], [1, 2, 4], logits, 0.01) is None
    assert first_difference([1, 3, 4], [1, 2, 0], logits, 0.01) == 1
    assert first_difference([1, 3, 4], [1, 2, 0], logits, 0.06) is None  # too close; what follows is another text
    logits[2, 0] = 1.0
    assert first_difference([1, 2, 4], [1, 2, 0], logits, 0.01) == 2


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nowhere", "error: policy.source=nowhere: neither a folder"),
        ("errands", "error: errands is a policy of this project's own"),
        ("qwen3-8b", "error: policy.source=qwen3-8b is a shape without weights"),
        ("package:nowhere_at_all", "error: policy.source=package:nowhere_at_all: no such package"),
    ],
)
def test_what_cannot_be_checked_is_one_line(run, name, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    status, figures = run(name)
    assert str(status).startswith(message) and "\n" not in str(status) and not figures


def test_where_transformers_looks(tmp_path, monkeypatch):
    assert check_theirs.location("some/folder") == ("some/folder", {"local_files_only": True})
    assert check_theirs.location("some/a.gguf") == ("some", {"gguf_file": "a.gguf", "local_files_only": True})
    package = tmp_path / "weights_for_the_check"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "b.gguf").write_bytes(b"")
    monkeypatch.syspath_prepend(tmp_path)
    assert check_theirs.location(f"package:{package.name}") == (
        str(package),
        {"gguf_file": "b.gguf", "local_files_only": True},
    )
