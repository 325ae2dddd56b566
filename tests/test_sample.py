"""A word with a policy: what is sampled, what is shown, and what is said about what cannot be."""

from __future__ import annotations

import argparse
import functools
import io
import json
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import support

pytest.importorskip("gguf")
pytest.importorskip("tokenizers")
pytest.importorskip("jinja2")
import policy_fixtures  # noqa: E402

from hdl_jax import sample as sample_lib  # noqa: E402
from hdl_jax.policy import transformer as tr  # noqa: E402
from hdl_jax.policy.hf_config import read_config  # noqa: E402
from hdl_jax.policy.presets import TransformerConfig  # noqa: E402
from hdl_jax.policy.source import open_policy  # noqa: E402
from hdl_jax.sample import engine_for, log_probs, main, parse, printable, sample  # noqa: E402
from hdl_jax.sampling.draw import GREEDY, inverse_cdf  # noqa: E402
from hdl_jax.warmstart import greedy_replies  # noqa: E402

OPENING = "clean shirt to chest . pen to crate . hall"
# A vocabulary large enough for the sampler's two levels to be compiled apart.
WIDE = TransformerConfig(vocab_size=5000, d_model=32, n_layers=1, n_heads=2, n_kv_heads=1, head_dim=16, d_ff=32)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("sample") / "checkpoint"
    policy_fixtures.folder(path)
    return path


@pytest.fixture
def call(capsys, monkeypatch):
    """Runs the command on a text at stdin -> (exit status or message, stdout, stderr)."""

    def call(*arguments, stdin=""):
        monkeypatch.setattr("sys.stdin", io.StringIO(stdin))
        try:
            status = main([str(a) for a in arguments])
        except SystemExit as stopped:
            status = stopped.code
        out, err = capsys.readouterr()
        return status, out, err

    return call


class Recorder(sample_lib.Talker):
    """Remembers what it is asked for, and samples nothing."""

    made: list[Recorder] = []

    def __init__(self, policy, args, prefix):
        self.policy, self.chat, self.args, self.prefix = policy, policy.chat, args, prefix
        self.made.append(self)

    def say(self, prefix, *, strip=True):
        self.said = list(prefix), strip


@pytest.fixture
def recorder(monkeypatch):
    """Stands in for the talker; the list of those made."""
    monkeypatch.setattr(sample_lib, "Talker", Recorder)
    monkeypatch.setattr(Recorder, "made", [])
    return Recorder.made


@functools.partial(jax.jit, static_argnums=1)
def _logits(params, cfg, tokens):
    return tr.logits(params, cfg, tr.forward(params, cfg, tokens))


def slow_greedy(params, cfg, prefix, new):
    """The likeliest token each time, by a whole forward for every token."""
    tokens = list(map(int, prefix))
    padded = np.zeros((1, 64), np.int32)
    for _ in range(new):
        padded[0, : len(tokens)] = tokens
        tokens.append(int(np.asarray(_logits(params, cfg, padded))[0, len(tokens) - 1].argmax()))
    return tokens[len(prefix) :]


# ---- sampling -------------------------------------------------------------------------------------------------------


def test_greedy_is_the_likeliest_token_every_time():
    params = support.random_params(WIDE, seed=1)
    engine = engine_for(WIDE, families=3, lanes=2, prefix=40, suffix=24)
    engine.load(params)
    prefixes = [np.arange(n, dtype=np.int32) * 7 + n for n in (3, 40, 17)]
    families = sample(engine, prefixes, lanes=2, budget=24, temperature=0.0, stop=(-1,))
    for prefix, lanes in zip(prefixes, families, strict=True):
        wanted = slow_greedy(params, WIDE, prefix, 24)
        for lane in lanes:
            assert lane.tokens.tolist() == wanted
            np.testing.assert_array_equal(lane.log_probs, 0)
    # A temperature that would be none at all in float32.
    cold = sample(engine, prefixes, lanes=2, budget=24, temperature=1e-44, stop=(-1,))
    assert [lane.tokens.tolist() for f in cold for lane in f] == [lane.tokens.tolist() for f in families for lane in f]


def test_no_other_token_has_a_chance_however_close_it_comes():
    """The runner-up is one float32 away, and every draw is asked for the end that it lies at."""
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(5000, 64), scale=9).astype(np.float32)
    best = logits.argmax(axis=0)
    second = (best + rng.integers(1, 5000, 64)) % 5000
    logits[second, np.arange(64)] = np.nextafter(logits.max(axis=0), np.float32(0))
    for u in (0.0, 0.5, 1 - 2**-24):
        draw = jax.jit(lambda z, u: inverse_cdf(z / jnp.float32(GREEDY), u))
        tokens, log_p = draw(logits, np.full(64, u, np.float32))
        np.testing.assert_array_equal(tokens, best)
        np.testing.assert_array_equal(log_p, 0)


@pytest.mark.parametrize(("families", "lanes", "width"), [(1, 1, 1), (1, 5, 5), (2, 16, 32), (1, 20, 32), (2, 20, 64)])
def test_all_lanes_go_through_the_network_at_once_in_whole_tiles(families, lanes, width):
    pool = engine_for(support.TINY, families=families, lanes=lanes, prefix=20, suffix=6).pool
    assert (pool.shape.rows, pool.shape.lanes, pool.width) == (families, families * lanes, width)
    assert pool.tile == min(lanes, 16)


def test_lanes_differ_and_log_probs_are_at_temperature_1_whatever_was_drawn(params, oracle):
    prefix = support.random_ids(0, 12)
    engine = engine_for(support.TINY, families=1, lanes=20, prefix=20, suffix=8, seed=3)
    engine.load(params)
    (results,) = sample(engine, [prefix], lanes=20, budget=8, temperature=0.4, stop=(-1,))
    assert len({tuple(lane.tokens.tolist()) for lane in results}) > 15
    for result, values in zip(results[:3], log_probs(engine, prefix, results[:3]), strict=True):
        wanted = oracle.log_softmax([*prefix, *result.tokens])[len(prefix) - 1 : -1]
        np.testing.assert_allclose(values, wanted[np.arange(8), result.tokens], atol=1e-5)


def test_prefill_is_as_wide_as_what_is_asked_for():
    assert engine_for(support.TINY, families=1, lanes=1, prefix=45, suffix=8).pool.chunks == 1
    assert engine_for(support.TINY, families=3, lanes=1, prefix=65, suffix=8).pool.chunks == 4
    assert engine_for(support.TINY, families=1, lanes=1, prefix=4096, suffix=8).pool.chunks == 2


# ---- the command ----------------------------------------------------------------------------------------------------


def test_a_message_at_stdin_is_answered(call):
    policy = open_policy("errands")
    ids = policy.chat.prompt(OPENING)
    wanted = greedy_replies(policy.load(None), policy.chat, policy.shape, [ids], 12)[0]
    status, out, err = call("errands", "--temperature=0", "--max_tokens=12", stdin=OPENING)
    assert (status, out) == (0, f"{wanted}\n")
    assert re.search(r"errands: [\d,]{9} parameters, float32; read in", err)
    assert re.search(rf"\[\d+ tokens from a prompt of {len(ids)} in [\d.]+ s: [\d.]+ tokens/s\]", err)


def test_a_prompt_is_taken_as_it_is(call, folder, recorder):
    """Control tokens in it are meant; nothing is put around it, and nothing stripped from what follows."""
    text = " the<|im_end|>\n<|im_start|> 1969 "
    assert call(folder, "--prompt", text)[0] == call("errands", "--prompt", "<end> go")[0] == 0
    ids = open_policy(str(folder)).chat.tokenizer.encode_rendered(text)
    assert recorder[0].said == (ids, False) and {1, 2} <= set(ids)
    assert recorder[0].prefix == len(ids)
    assert recorder[1].said == (open_policy("errands").chat.tokenizer.encode("<end> go"), False)


def test_a_message_is_no_prompt(call, folder, recorder):
    call(folder, "--chat", "the <|im_end|>", "--system", "a book")
    chat = open_policy(str(folder), system="a book").chat
    assert recorder[0].said == (chat.prompt("the <|im_end|>"), True)


def test_thinking_is_passed_on(call, tmp_path, recorder):
    policy_fixtures.folder(tmp_path / "thinker", thinks=True)
    for flags, thinking in (((), False), (("--thinking",), True), (("--no-thinking",), False)):
        call(tmp_path / "thinker", "--chat=x", *flags)
        assert recorder[-1].chat.thinking == thinking


def test_what_is_said_is_shown_by_lane(call, folder):
    arguments = (folder, "--chat", "the year", "--lanes=3", "--max_tokens=9", "--seed=5")
    status, out, err = call(*arguments)
    assert status == 0
    headers = re.findall(r"^--- lane (\d) of 3, (\d+) tokens(, cut)?$", out, re.M)
    assert [lane for lane, _, _ in headers] == ["1", "2", "3"]
    cut = sum(bool(end) for _, _, end in headers)
    assert all(bool(end) == (n == "9") for _, n, end in headers) and cut
    total = sum(int(n) for _, n, _ in headers)
    assert re.search(rf"\[{total} tokens .* tokens/s; {cut} of 3 cut by --max_tokens=9\]", err)
    assert len({part for part in re.split("--- lane.*", out)[1:]}) == 3
    assert call(*arguments)[1] == out
    assert call(*arguments[:-1], "--seed=6")[1] != out


def test_log_probs_are_listed_token_by_token(call, folder, monkeypatch):
    results = []
    sampled = sample_lib.log_probs
    monkeypatch.setattr(sample_lib, "log_probs", lambda *a: results.append((a[2], sampled(*a))) or results[-1][1])
    arguments = ("--chat=the", "--lanes=3", "--max_tokens=5", "--log_probs", "--temperature=0.7")
    status, out, _ = call(folder, *arguments)
    assert status == 0
    lanes, values = results[-1]
    rows = re.findall(r"^ *(-[\d.]+) +(\d+)  (.+)$", out, re.M)
    assert [int(i) for _, i, _ in rows] == [t for lane in lanes for t in lane.tokens.tolist()]
    np.testing.assert_allclose([float(v) for v, _, _ in rows], np.concatenate(values), atol=1e-4)
    sums = re.findall(r"^ *(-[\d.]+) +sum, (-[\d.]+) a token$", out, re.M)
    np.testing.assert_allclose(np.float64(sums), [(v.sum(), v.mean()) for v in values], atol=1e-3)


def test_a_table_names_control_tokens_and_spells_the_rest(folder):
    chat = open_policy(str(folder)).chat
    ids = [*chat.tokenizer.encode("\n"), 2]
    table = sample_lib.token_table(chat, np.array(ids), np.float32([-0.5, -1.0]))
    assert table.splitlines()[1:] == [
        f" -0.5000 {ids[0]:7d}  '\\n'",
        " -1.0000       2  <|im_end|>",
        " -1.5000          sum, -0.7500 a token",
    ]


def test_a_runs_checkpoint_is_taken(call, folder, tmp_path, recorder):
    saved = policy_fixtures.run(tmp_path / "run", str(folder), read_config(folder), s1=0.9, s2=0.1)
    for flags, step in (((), 1), (("--step=latest",), 2), (("--step=2",), 2)):
        assert call(tmp_path / "run", "--chat=the", *flags)[0] == 0
        policy_fixtures.assert_same(recorder[-1].policy.load(None), saved[step])
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    config["policy"]["dtype"] = "bfloat16"
    (tmp_path / "run" / "config.json").write_text(json.dumps(config))
    for flags, dtype in (((), "bfloat16"), (("--dtype=float32",), "float32")):
        call(tmp_path / "run", "--chat=the", *flags)
        assert recorder[-1].policy.shape.dtype == dtype


def test_dtype_is_passed_on(call, folder, recorder):
    call(folder, "--chat=the", "--dtype=bfloat16")
    assert recorder[0].policy.shape.dtype == "bfloat16"


def test_what_a_terminal_would_obey_is_spelled_out():
    assert printable("a\x1b[31mb\x07\n\tc\x9b\x7f é\r") == "a\\x1b[31mb\\x07\n\tc\\x9b\\x7f é\\x0d"


def test_a_terminal_that_cannot_show_a_text_gets_escapes(monkeypatch):
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr("sys.stdout", stream)
    monkeypatch.setattr(sample_lib, "Talker", lambda *args: argparse.Namespace(say=lambda *a, **k: print("caf\u00e9")))
    assert main(["errands", "--chat=a"]) == 0
    stream.flush()
    assert stream.buffer.getvalue() == b"caf\\xe9\n"


# ---- conversations --------------------------------------------------------------------------------------------------


class Scripted(sample_lib.Talker):
    """Says what it is given, and remembers what it was asked from."""

    def __init__(self, chat, replies):
        self.chat, self.replies, self.asked = chat, list(replies), []

    def say(self, prefix, *, strip=True):
        self.asked.append(list(prefix))
        result = support.SlowLane(np.array(self.replies.pop(0), np.int32), [], [])
        return [result]


def test_a_conversation_only_ever_grows(folder):
    chat = open_policy(str(folder)).chat
    first, cut = [*chat.tokenizer.encode("a book"), 2], chat.tokenizer.encode("1984")
    talker = Scripted(chat, [first, cut, [0]])
    talker.converse(iter(["the", "year", "was"]))
    one, two, three = talker.asked
    assert one == chat.prompt("the")
    assert two == [*one, *first, *chat.observation("year")]
    assert three == [*two, *cut, 2, *chat.observation("was")]  # a cut turn is closed for it


def test_a_conversation_ends_where_there_is_no_more_room(folder, capsys, monkeypatch):
    chat = open_policy(str(folder)).chat
    monkeypatch.setattr(sample_lib, "CONTEXT", len(chat.prompt("the")) + 5)
    talker = Scripted(chat, [[7, 8, 9, 2]] * 9)
    talker.converse(iter(["the", "year", "was"]))
    assert len(talker.asked) == 1
    assert "the conversation would come to" in capsys.readouterr().err


def test_a_conversation_at_the_terminal(call, folder, monkeypatch, capsys):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setattr("sys.stdin", Terminal("the\n\nyear\n"))
    asked = []
    say = sample_lib.Talker.say
    monkeypatch.setattr(sample_lib.Talker, "say", lambda self, ids: asked.append(len(ids)) or say(self, ids))
    assert main([str(folder), "--max_tokens=3"]) == 0
    assert len(asked) == 2 and asked[0] < asked[1]
    assert capsys.readouterr().err.count("tokens/s") == 2


# ---- what cannot be -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere", "--chat=a"], "error: policy.source=nowhere: neither a folder"),
        (["nowhere.gguf", "--chat=a"], "error: no GGUF file at nowhere.gguf"),
        (["qwen3-8b", "--chat=a"], "error: policy.source=qwen3-8b is a shape without weights"),
        (["errands", "--chat=a", "--system=b"], "error: the embedded policy errands has neither a system prompt"),
        (["errands", "--chat=a", "--step=3"], "error: --step=3: errands is not the workdir of a run"),
        (["errands", "--chat= "], "error: there is no text to answer"),
        (["errands", "--prompt="], "error: there is no text to answer"),
        (["errands"], "error: there is no text to answer"),
    ],
)
def test_what_cannot_be_opened_is_one_line(call, arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    status, out, _ = call(*arguments)
    assert str(status).startswith(message) and "\n" not in str(status) and not out


@pytest.mark.parametrize("error", [FloatingPointError("not finite"), ImportError("no package"), OSError("no disk")])
def test_what_goes_wrong_later_is_one_line_too(call, recorder, monkeypatch, error):
    def fail(*args, **kwargs):
        raise error

    monkeypatch.setattr(Recorder, "say", fail)
    assert call("errands", "--chat=a")[0] == f"error: {error}"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--lanes=0"], "--lanes=0: must be 1 or more"),
        (["--max_tokens=0"], "--max_tokens=0: must be 1 or more"),
        (["--temperature=-1"], "--temperature=-1.0: must be 0 or more"),
        (["--temperature=nan"], "--temperature=nan: must be"),
        (["--temperature=inf"], "--temperature=inf: must be"),
        (["--seed=-1"], "--seed=-1: must be"),
        (["--seed=2147483648"], "--seed=2147483648: must be"),
        (["--chat=a", "--prompt=b"], "not allowed with argument --chat"),
        (["--prompt=b", "--system=s"], "--system and --thinking belong to --chat"),
        (["--prompt=b", "--no-thinking"], "--system and --thinking belong to --chat"),
    ],
)
def test_arguments_that_cannot_be_meant(call, arguments, message):
    status, _, err = call("errands", *arguments)
    assert status == 2 and message in err.splitlines()[-1]


def test_a_conversation_has_one_lane(monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    with pytest.raises(SystemExit):
        parse(["errands", "--lanes=2"])
    assert "--lanes=2: a conversation goes on from one answer" in capsys.readouterr().err
    assert isinstance(parse(["errands", "--lanes=2", "--chat=a"]), argparse.Namespace)
