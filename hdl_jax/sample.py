"""A word with a policy: python -m hdl_jax.sample SOURCE [--chat TEXT | --prompt TEXT] [--lanes N] [--log_probs] ...

SOURCE is whatever a config's policy.source may name (a checkpoint folder, FILE.gguf, package:NAME, errands), or the
workdir of a run, whose checkpoint is taken. What the policy says goes to stdout, what is said about it to stderr.
Without a text, stdin is read as one message; at a terminal a conversation begins.
"""

from __future__ import annotations

import argparse
import io
import math
import re
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from hdl_jax.policy import transformer as tr
from hdl_jax.policy.chat import Chat
from hdl_jax.policy.presets import DTYPES, TransformerConfig
from hdl_jax.policy.source import Policy, open_policy
from hdl_jax.policy.template_chat import TemplateChat
from hdl_jax.sampling.cache import CacheShape
from hdl_jax.sampling.draw import GREEDY, Stream
from hdl_jax.sampling.engine import Engine
from hdl_jax.sampling.requests import Job, Lane, LaneResult, Request, Sample, Score, Scored
from hdl_jax.trained import trained_policy

# Tokens that a conversation at the terminal may come to.
CONTEXT = 4096
# Lanes that read their prefix together.
TILE = 16
# Most tokens of prefixes that go through the network together.
PREFILL = 256
_ODD = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")


# ---- the engine -----------------------------------------------------------------------------------------------------


def engine_for(cfg: TransformerConfig, *, families: int, lanes: int, prefix: int, suffix: int, seed: int = 0) -> Engine:
    """An engine for large weights: all of `lanes` lanes of each of `families` prefixes go through the network together.

    Args:
        prefix: tokens of the longest prefix. suffix: most tokens that a lane adds to it.
    """
    tile, block = min(lanes, TILE), 64 if prefix <= 256 else 128
    width = families * -(-lanes // tile) * tile
    # Idle chunks cost as much as busy ones.
    chunks = min(families * -(-prefix // block), PREFILL // block)
    return Engine(
        cfg,
        CacheShape(families, families * lanes, prefix, suffix, block),
        seed=seed,
        tile=tile,
        width=width,
        chunks=chunks,
        steps=32,
    )


def sample(
    engine: Engine,
    prefixes: Sequence[np.ndarray],
    *,
    lanes: int,
    budget: int,
    temperature: float,
    stop: tuple[int, ...],
) -> list[list[LaneResult]]:
    """The lanes of each prefix, int32 [T]; `temperature` 0 takes the likeliest token each time."""

    def family(i: int, prefix: np.ndarray) -> Sample:
        n, t = len(prefix), max(temperature, GREEDY)
        return Sample(
            prefix, tuple(Lane((Stream.ROOT, i, 0, n, 0, lane), n, budget, t, stop) for lane in range(lanes)), "sample"
        )

    return engine.run([_ask([family(i, prefix) for i, prefix in enumerate(prefixes)])], 0)[0]


def log_probs(engine: Engine, prefix: np.ndarray, results: Sequence[LaneResult]) -> list[np.ndarray]:
    """What each lane's tokens were worth to the policy at temperature 1, whatever they were drawn at; float32 [n]."""
    rows = [np.concatenate([prefix, result.tokens]) for result in results]
    scored: list[Scored] = engine.run([_ask([Score(row, "score") for row in rows])], 0)[0]
    return [s.log_probs[len(prefix) :] for s in scored]


def _ask(requests: list[Request]) -> Job[list]:
    """A job that makes one list of requests and returns their results."""
    return (yield requests)


# ---- what is shown --------------------------------------------------------------------------------------------------


def printable(text: str) -> str:
    """The text with its control characters spelled out: a terminal obeys them."""
    return _ODD.sub(lambda match: f"\\x{ord(match[0]):02x}", text)


def token_table(chat: Chat, tokens: np.ndarray, values: np.ndarray) -> str:
    """A line a token: its log-probability, its id and its text, then their sum."""
    names = {i: name for name, i in chat.tokenizer.special_tokens.items()} if isinstance(chat, TemplateChat) else {}
    lines = ["log-prob      id  token"]
    for i, value in zip(tokens.tolist(), values.tolist(), strict=True):
        lines.append(f"{value:8.4f} {i:7d}  {names.get(i) or repr(chat.tokenizer.decode([i]))}")
    return "\n".join([*lines, f"{values.sum():8.4f}          sum, {values.mean():.4f} a token"])


def show(chat: Chat, results: Sequence[LaneResult], values: Sequence[np.ndarray] | None, *, strip: bool) -> None:
    """Prints what the lanes said, and their tokens where there are values of them."""
    for lane, result in enumerate(results):
        text = chat.tokenizer.decode(result.tokens.tolist())
        if len(results) > 1:
            end = "" if result.stopped else ", cut"
            print(f"{chr(10) if lane else ''}--- lane {lane + 1} of {len(results)}, {len(result.tokens)} tokens{end}")
        print(printable(text.strip() if strip else text))
        if values is not None:
            print(f"\n{token_table(chat, result.tokens, values[lane])}")
    sys.stdout.flush()


def tell(message: str) -> None:
    """A remark beside what the policy says."""
    print(message, file=sys.stderr, flush=True)


# ---- talking --------------------------------------------------------------------------------------------------------


class Talker:
    """A policy ready to speak, and how it is asked to.

    Args:
        prefix: tokens of the longest prefix.
    """

    def __init__(self, policy: Policy, args: argparse.Namespace, prefix: int):
        self.chat, self.args = policy.chat, args
        room = prefix + (args.max_tokens if args.log_probs else 0)
        begun = time.perf_counter()
        params = policy.load(None)
        self.engine = engine_for(
            policy.shape, families=1, lanes=args.lanes, prefix=room, suffix=args.max_tokens, seed=args.seed
        )
        self.engine.load(params)
        loaded = time.perf_counter()
        # The shapes do not depend on what is asked: this compiles all that is needed.
        one = np.zeros(1, np.int32)
        results = sample(self.engine, [one], lanes=args.lanes, budget=1, temperature=1.0, stop=(-1,))[0]
        if args.log_probs:
            log_probs(self.engine, one, results[:1])
        tell(
            f"{policy.name}: {tr.parameter_count(params):,} parameters, {policy.shape.dtype}; read in "
            f"{loaded - begun:.0f} s, compiled in {time.perf_counter() - loaded:.0f} s"
        )

    def say(self, prefix: Sequence[int], *, strip: bool = True) -> list[LaneResult]:
        """Samples from these ids, prints what came of it, and how fast."""
        args, ids = self.args, np.asarray(prefix, np.int32)
        begun = time.perf_counter()
        (results,) = sample(
            self.engine, [ids], lanes=args.lanes, budget=args.max_tokens, temperature=args.temperature,
            stop=self.chat.stop_ids,
        )  # fmt: skip
        seconds = time.perf_counter() - begun
        values = log_probs(self.engine, ids, results) if args.log_probs else None
        show(self.chat, results, values, strip=strip)
        count, cut = sum(len(r.tokens) for r in results), sum(not r.stopped for r in results)
        tell(
            f"[{count} tokens from a prompt of {len(ids)} in {seconds:.1f} s: {count / seconds:.1f} tokens/s"
            f"{f'; {cut} of {len(results)} cut by --max_tokens={args.max_tokens}' if cut else ''}]"
        )
        return results

    def converse(self, messages: Iterator[str]) -> None:
        """A conversation: ids are only ever appended, those of the policy as it drew them."""
        ids: list[int] = []
        for text in messages:
            new = self.chat.observation(text) if ids else self.chat.prompt(text)
            if len(ids) + len(new) > CONTEXT:
                return tell(f"the conversation would come to {len(ids) + len(new)} tokens; {CONTEXT} is the most here")
            ids += new
            ids += self.say(ids)[0].tokens.tolist()
            # A turn that was cut, or ended by another of the stop ids, is closed as the history has it.
            ids += [] if ids[-1] == self.chat.end_id else [self.chat.end_id]
        return None


def typed() -> Iterator[str]:
    """What is typed at the terminal, until its end (control-D)."""
    while True:
        try:
            text = input("> ")
        except EOFError:
            return print()
        if text.strip():
            yield text


# ---- the command line -----------------------------------------------------------------------------------------------


def open_source(args: argparse.Namespace) -> Policy:
    """The policy that the arguments name. Raises as `open_policy` and `trained_policy` do."""
    given = {"dtype": args.dtype, "system": args.system, "thinking": args.thinking}
    changes = {name: value for name, value in given.items() if value is not None}
    if (Path(args.source) / "checkpoints").is_dir():
        return trained_policy(Path(args.source), args.step or "best", **changes)
    if args.step is not None:
        raise ValueError(f"--step={args.step}: {args.source} is not the workdir of a run, which alone has checkpoints")
    return open_policy(args.source, **changes)


def raw_ids(chat: Chat, text: str) -> list[int]:
    """A text as it is: where a model's control tokens have spellings, those in it are meant."""
    return chat.tokenizer.encode_rendered(text) if isinstance(chat, TemplateChat) else chat.tokenizer.encode(text)


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The arguments. Exits with a message where they cannot be meant."""
    parser = argparse.ArgumentParser(prog="python -m hdl_jax.sample", description="A word with a policy.")
    parser.add_argument("source", help="a checkpoint folder, FILE.gguf, package:NAME, errands, or the workdir of a run")
    text = parser.add_mutually_exclusive_group()
    text.add_argument("--chat", metavar="TEXT", help="a message to answer (default: stdin, or a conversation)")
    text.add_argument("--prompt", metavar="TEXT", help="a text to go on from as it is, control tokens included")
    parser.add_argument("--system", metavar="TEXT", help="the system prompt (default: none, or the run's)")
    parser.add_argument("--thinking", action=argparse.BooleanOptionalAction, help="think before speaking")
    parser.add_argument("--step", help="of a run: a step that has a checkpoint, `best` (default) or `latest`")
    parser.add_argument("--lanes", type=int, default=1, metavar="N", help="answers to sample (default %(default)s)")
    parser.add_argument("--max_tokens", type=int, default=256, metavar="N", help="of an answer (default %(default)s)")
    parser.add_argument("--temperature", type=float, default=1.0, metavar="T", help="0: greedy (default %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the draws (default %(default)s)")
    parser.add_argument("--log_probs", action="store_true", help="list every token with its log-prob at temperature 1")
    parser.add_argument("--dtype", choices=DTYPES, help="to compute in (default: float32, or the run's)")
    args = parser.parse_args(argv)
    for name in ("lanes", "max_tokens"):
        if getattr(args, name) < 1:
            parser.error(f"--{name}={getattr(args, name)}: must be 1 or more")
    if not 0 <= args.temperature < math.inf:
        parser.error(f"--temperature={args.temperature}: must be 0 or more, and finite")
    if not 0 <= args.seed < 2**31:
        parser.error(f"--seed={args.seed}: must be 0 or more and less than 2**31")
    if args.prompt is not None and (args.system is not None or args.thinking is not None):
        parser.error("--prompt is taken as it is: --system and --thinking belong to --chat")
    args.converse = args.chat is None and args.prompt is None and sys.stdin.isatty()
    if args.converse and args.lanes > 1:
        parser.error(f"--lanes={args.lanes}: a conversation goes on from one answer; give a text with --chat")
    return args


def main(argv: Sequence[str]) -> int:
    args = parse(argv)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # whatever the terminal cannot show
    try:
        policy = open_source(args)
        if args.converse:
            Talker(policy, args, CONTEXT).converse(typed())
            return 0
        text = args.chat if args.chat is not None else args.prompt if args.prompt is not None else sys.stdin.read()
        if not text.strip():
            raise ValueError("there is no text to answer: give one with --chat, --prompt or on stdin")
        ids = policy.chat.prompt(text) if args.prompt is None else raw_ids(policy.chat, text)
        Talker(policy, args, len(ids)).say(ids, strip=args.prompt is None)
    except (ValueError, OSError, ImportError, FloatingPointError) as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit("stopped")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
