"""A run's policy, opened at one of its checkpoints and taken away as a folder."""

from __future__ import annotations

import json
import shutil

import jax
import ml_dtypes
import numpy as np
import pytest

pytest.importorskip("gguf")
pytest.importorskip("tokenizers")
pytest.importorskip("jinja2")
import policy_fixtures  # noqa: E402
from policy_fixtures import assert_same  # noqa: E402

from hdl_jax import export, mesh  # noqa: E402
from hdl_jax.policy.folder import load_folder  # noqa: E402
from hdl_jax.policy.hf_config import read_config  # noqa: E402
from hdl_jax.policy.presets import PRESETS  # noqa: E402
from hdl_jax.policy.source import open_policy  # noqa: E402
from hdl_jax.trained import trained_policy  # noqa: E402


@pytest.fixture(scope="module")
def began(tmp_path_factory):
    """The checkpoint folder that a run began with."""
    path = tmp_path_factory.mktemp("export") / "began"
    policy_fixtures.folder(path)
    return path


@pytest.fixture(scope="module")
def workdir(began):
    """A run from it; its checkpoints by step: 2 is the best, 4 the latest."""
    return began.parent / "run", policy_fixtures.run(
        began.parent / "run", str(began), read_config(began), s0=0.1, s2=0.4, s4=None
    )


def rounded(params):
    return jax.tree.map(lambda p: p.astype(ml_dtypes.bfloat16).astype(np.float32), params)


# ---- a run's policy -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("which", "step"), [("best", 2), ("latest", 4), ("0", 0)])
def test_the_weights_are_the_checkpoints_and_the_rest_the_beginnings(workdir, began, which, step):
    policy, first = trained_policy(workdir[0], which), open_policy(str(began))
    assert_same(policy.load(None), workdir[1][step])
    assert policy.shape == first.shape and policy.files() == first.files()
    assert policy.chat.prompt("x") == first.chat.prompt("x")
    assert policy.name == f"{began} at step {step} of {workdir[0]}"


def test_weights_go_where_they_are_sent(workdir):
    policy = trained_policy(workdir[0], "best")
    shardings = mesh.parameter_shardings(policy.shape, mesh.fsdp_mesh(jax.devices()))
    params = policy.load(shardings)
    assert jax.tree.map(lambda p: p.sharding, params) == shardings
    assert_same(params, workdir[1][2])


def test_the_runs_own_options_hold_unless_they_are_changed(workdir, tmp_path):
    copy = shutil.copytree(workdir[0], tmp_path / "run")
    config = json.loads((copy / "config.json").read_text())
    config["policy"] |= {"dtype": "bfloat16", "system": "the book"}
    (copy / "config.json").write_text(json.dumps(config))
    policy = trained_policy(copy, "best")
    assert policy.shape.dtype == "bfloat16"
    assert "system\nthe book" in policy.chat.tokenizer.decode(policy.chat.prompt("x"))
    changed = trained_policy(copy, "best", dtype="float32", system="")
    assert changed.shape.dtype == "float32"
    assert "the book" not in changed.chat.tokenizer.decode(changed.chat.prompt("x"))


@pytest.mark.parametrize("text", ["{", "[]", '{"architectures": ["LlamaForCausalLM"]}', '{"policy": {"source": "x"}}'])
def test_another_config_is_refused_by_name(workdir, tmp_path, text):
    copy = shutil.copytree(workdir[0], tmp_path / "run")
    (copy / "config.json").write_text(text)
    with pytest.raises(ValueError, match="run/config.json is not the config of a run: "):
        trained_policy(copy, "best")


# ---- the command ----------------------------------------------------------------------------------------------------


def test_float32_is_exact(workdir, tmp_path, capsys):
    out = tmp_path / "out"
    assert export.main([str(workdir[0]), str(out), "--dtype=float32"]) == 0
    policy = open_policy(str(out))
    assert_same(policy.load(None), workdir[1][2])
    told = capsys.readouterr().out
    assert "at step 2 of" in told and "float32" in told and f"{out}: " in told


def test_bfloat16_is_the_default_and_config_json_says_so(workdir, began, tmp_path):
    out = tmp_path / "out"
    assert export.main([str(workdir[0]), str(out), "--step=latest"]) == 0
    assert_same(load_folder(out, read_config(out)), rounded(workdir[1][4]))
    assert {p.name for p in out.iterdir()} == {p.name for p in began.iterdir()}
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        assert (out / name).read_bytes() == (began / name).read_bytes()


def test_transformers_runs_it(workdir, tmp_path):
    torch, transformers = (pytest.importorskip(name) for name in ("torch", "transformers"))
    out = tmp_path / "out"
    export.main([str(workdir[0]), str(out), "--step=4"])
    model = transformers.AutoModelForCausalLM.from_pretrained(out, dtype="auto")
    embed = model.state_dict()["model.embed_tokens.weight"].to(torch.float32).numpy()
    np.testing.assert_array_equal(embed, rounded(workdir[1][4])["embed"])
    ids = transformers.AutoTokenizer.from_pretrained(out)("the year 1969").input_ids
    assert ids == open_policy(str(out)).chat.tokenizer.encode("the year 1969")


def test_a_run_of_the_embedded_policy(tmp_path):
    saved = policy_fixtures.run(tmp_path / "run", "errands", PRESETS["errands"], s1=0.5)
    assert export.main([str(tmp_path / "run"), str(tmp_path / "out"), "--dtype=float32"]) == 0
    assert read_config(tmp_path / "out") == PRESETS["errands"]
    assert_same(load_folder(tmp_path / "out", PRESETS["errands"]), saved[1])


def test_what_cannot_be_exported_is_one_line(workdir, tmp_path, capsys):
    full = tmp_path / "full"
    full.mkdir()
    (full / "x").write_text("")

    def message(*arguments):
        with pytest.raises(SystemExit) as stopped:
            export.main([*map(str, arguments)])
        return str(stopped.value.code)

    assert "full is not an empty folder" in message(workdir[0], full)
    assert "no checkpoints at" in message(tmp_path, tmp_path / "out")
    assert "no checkpoint at" in message(workdir[0], tmp_path / "out", "--step=7")
    assert "--step=first" in message(workdir[0], tmp_path / "out", "--step=first")
    assert message(workdir[0], full).startswith("error: ") and "\n" not in message(workdir[0], full)
    assert not (tmp_path / "out").exists()
    assert message(workdir[0], tmp_path / "out", "--dtype=float16") == "2"
    assert "float16" in capsys.readouterr().err
