"""Supervised start of the embedded policy: `python -m hdl_jax.warmstart [--out=DIR] [--steps=N] [--seed=N]`.

Builds the vocabulary and trains the `errands` preset from scratch on scripted conversations of four kinds: episodes,
reflections on an attempt, retry points of an attempt, and episodes played under a hindsight context. All are made from
the train split; the figures printed at the end are of the validation split. Only the assistant's tokens are trained,
and nothing ever labels where an attempt should be branched for hindsight: reading a hindsight context is learnt from
second attempts that make use of one.

Writes `errands.model` and `errands.safetensors` (bfloat16); about 11 minutes on two cores. The vocabulary
comes out byte for byte; the weights differ in the last bits with the machine and its threads, not in what they can do.
"""

from __future__ import annotations

import argparse
import collections
import functools
import itertools
import json
import random
import re
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import optax
import tqdm
from jax import Array

from hdl_jax.domains import errands
from hdl_jax.domains.domain import Problem
from hdl_jax.domains.errands_record import hint, reflect, retry_points
from hdl_jax.domains.errands_teacher import Attempt, Noise, play
from hdl_jax.localize.reflection import parse_steps
from hdl_jax.policy import transformer
from hdl_jax.policy.chat import Chat, ControlChat
from hdl_jax.policy.presets import TransformerConfig, preset
from hdl_jax.policy.tokenizer import PAD, train_vocabulary
from hdl_jax.policy.weights import save_params

ASSETS = Path(__file__).parent / "assets"

KIND_SHARES = {"episode": 0.34, "reflection": 0.22, "retry": 0.18, "hindsight": 0.26}
# Attempts that are reflected on range from perfect to hopeless, as those of a policy in training do.
ATTEMPT_NOISE = (0.0, 0.3, 0.6, 1.0, 1.0, 1.4)
# Someone who has read what went wrong the last time repeats little of it.
HINDSIGHT_NOISE = 0.15
CAREFUL_NOISE, CAREFUL_SHARE = 0.2, 0.6
# Rows are padded to one of these lengths, so that as many shapes are compiled and no more. [tokens]
LENGTHS = (96, 128, 160, 192, 224, 256)
BATCH_TOKENS = 2048
VOCABULARY_SCRIPTS = 3000
STEPS = 2000
MUON_RATE, ADAM_RATE = 0.02, 0.004


class Example(NamedTuple):
    """One training conversation: token ids [T] and whether each is the assistant's own, bool [T]."""

    kind: str
    ids: list[int]
    own: list[bool]


class Script(NamedTuple):
    """One conversation before tokenisation.

    Attributes:
        kind: a key of KIND_SHARES.
        attempt: the episode that is played, reflected on, or given retry points.
        hindsight: what the first user message of an episode carries besides the opening: (feedback, reflection).
        answer: the reply to the reflection or retry prompt; empty for episodes.
    """

    kind: str
    attempt: Attempt
    hindsight: tuple[str, str] | None
    answer: str


def script(problem: Problem, rng: random.Random, noise: Noise) -> Script:
    """A random conversation about a problem; `noise` is the player's, unless the conversation is about its attempt."""
    limit = errands.Errands.max_actions
    house = errands.variation(problem.split, problem.index)
    kind = rng.choices(list(KIND_SHARES), list(KIND_SHARES.values()))[0]
    attempt = play(house, limit, noise if kind == "episode" else Noise().scaled(rng.choice(ATTEMPT_NOISE)), rng)
    if kind == "reflection":
        return Script(kind, attempt, None, reflect(house.errands, attempt))
    if kind == "retry" and len(attempt.turns) > 1:
        return Script(kind, attempt, None, retry_points(house.errands, attempt, rng))
    if kind == "hindsight":
        again = play(house, limit, Noise().scaled(HINDSIGHT_NOISE), rng, hint(house.errands, attempt))
        return Script(kind, again, (attempt.feedback, reflect(house.errands, attempt)), "")
    return Script("episode", attempt, None, "")


def scripts(split: str, seed: int, noise: Noise | None = None) -> Iterator[Script]:
    """An endless stream of conversations about random problems of a split, episodes played with `noise`."""
    rng = random.Random(f"warmstart/{split}/{seed}")
    problems = errands.Errands().problems(split)
    while True:
        yield script(rng.choice(problems), rng, noise or Noise())


def example(chat: Chat, talk: Script) -> Example:
    """Tokenises a conversation exactly as a rollout would record it."""
    attempt = talk.attempt
    if talk.answer:
        if talk.kind == "reflection":
            prompt = chat.reflection_prompt(attempt.opening, attempt.turns, attempt.feedback)
        else:
            prompt = chat.retry_prompt(attempt.opening, attempt.turns, attempt.feedback, attempt.success)
        reply = chat.reply(talk.answer)
        return Example(talk.kind, prompt + reply, [False] * len(prompt) + [True] * len(reply))
    ids = chat.prompt(attempt.opening, chat.hindsight(*talk.hindsight) if talk.hindsight else "")
    own = [False] * len(ids)
    for number, (action, observation) in enumerate(attempt.turns, 1):
        reply = chat.reply(action)
        # The last observation is never acted on: a rollout does not record it either.
        answer = chat.observation(observation) if number < len(attempt.turns) else []
        ids += reply + answer
        own += [True] * len(reply) + [False] * len(answer)
    return Example(talk.kind, ids, own)


class _Recorder:
    """Stands in for the tokenizer before there is one: notes the texts that a conversation is made of."""

    vocab_size = bos_id = end_id = user_id = assistant_id = 0

    def __init__(self):
        self.texts: list[str] = []

    def encode(self, text: str) -> list[int]:
        self.texts.append(text)
        return []

    def decode(self, ids: object) -> str:
        return ""


def vocabulary_texts(seed: int) -> list[str]:
    """Every text of the first conversations, cut where the chat cuts them."""
    recorder = _Recorder()
    for talk in itertools.islice(scripts("train", seed), VOCABULARY_SCRIPTS):
        example(ControlChat(recorder), talk)
    return recorder.texts


class Batch(NamedTuple):
    """Rows of one padded length: tokens int32 [B, T] and the mask of the assistant's own, bool [B, T]."""

    tokens: np.ndarray
    own: np.ndarray


def batches(chat: Chat, talks: Iterable[Script]) -> Iterator[Batch]:
    """Groups a stream of conversations by padded length; each batch holds about BATCH_TOKENS tokens."""
    waiting: dict[int, list[Example]] = collections.defaultdict(list)
    for talk in talks:
        item = example(chat, talk)
        length = next((n for n in LENGTHS if len(item.ids) <= n), 0)
        if not length:
            continue
        waiting[length].append(item)
        if len(waiting[length]) == BATCH_TOKENS // length:
            yield pad(waiting.pop(length), length)


def pad(examples: Sequence[Example], length: int) -> Batch:
    """Stacks examples, padded on the right to [B, length]."""
    tokens = np.full((len(examples), length), PAD, np.int32)
    own = np.zeros((len(examples), length), bool)
    for row, item in enumerate(examples):
        tokens[row, : len(item.ids)] = item.ids
        own[row, : len(item.own)] = item.own
    return Batch(tokens, own)


def summed_loss(params: transformer.Params, cfg: TransformerConfig, tokens: Array, own: Array) -> tuple[Array, Array]:
    """Negative log-likelihood of the assistant's tokens, nats, summed over the batch, and how many they are."""
    hidden = transformer.forward(params, cfg, tokens)
    log_p, _ = transformer.token_logprobs(params, cfg, hidden[:, :-1], tokens[:, 1:])
    return -jnp.where(own[:, 1:], log_p, 0.0).sum(), own[:, 1:].sum()


def optimizer(steps: int) -> optax.GradientTransformation:
    """Muon for the blocks' matrices, Adam for the rest; warmed up, then down to a twentieth along a cosine.

    Muon gets a small policy through the forming of its copying heads in a fraction of Adam's steps.
    """

    def schedule(peak: float) -> optax.Schedule:
        return optax.warmup_cosine_decay_schedule(0.0, peak, min(40, steps // 5), steps, peak / 20)

    def matrices(params: transformer.Params) -> transformer.Params:
        spec = optax.contrib.MuonDimensionNumbers(reduction_axis=1, output_axis=2)
        blocks = jax.tree.map(lambda p: spec if p.ndim == 3 else None, params["blocks"])
        return {**jax.tree.map(lambda p: None, params), "blocks": blocks}

    return optax.chain(
        optax.clip_by_global_norm(1.0),
        optax.contrib.muon(
            schedule(MUON_RATE),
            adam_learning_rate=schedule(ADAM_RATE),
            adam_b2=0.98,
            muon_weight_dimension_numbers=matrices,
        ),
    )


def train(chat: Chat, cfg: TransformerConfig, steps: int, seed: int) -> transformer.Params:
    """Trains a fresh policy for a number of batches and returns its float32 parameters."""
    # One compiled program each: op by op, the many small compilations would take longer than the first fifty steps.
    params = jax.jit(transformer.init, static_argnums=0)(cfg, jax.random.key(seed))
    tx = optimizer(steps)
    state = jax.jit(tx.init)(params)

    @functools.partial(jax.jit, donate_argnums=(0, 1))
    def update(params, state, tokens, own):
        def loss(p):
            total, count = summed_loss(p, cfg, tokens, own)
            return total / count

        value, gradient = jax.value_and_grad(loss)(params)
        changes, state = tx.update(gradient, state, params)
        return optax.apply_updates(params, changes), state, value

    # Copying words of the task is learnt from players who do so; the mistakes are learnt afterwards, and quickly.
    first = int(steps * CAREFUL_SHARE)
    careful = batches(chat, scripts("train", seed, Noise().scaled(CAREFUL_NOISE)))
    usual = batches(chat, scripts("train", seed + 1))
    stream = itertools.chain(itertools.islice(careful, first), itertools.islice(usual, steps - first))
    with tqdm.tqdm(total=steps, desc="warm start", mininterval=1.0) as bar:
        for step, batch in enumerate(stream):
            params, state, value = update(params, state, batch.tokens, batch.own)
            if step % 10 == 0:
                bar.set_postfix(loss=f"{float(value):.3f}")
            bar.update()
    return params


def held_out_losses(
    params: transformer.Params, chat: Chat, cfg: TransformerConfig, count: int = 256
) -> dict[str, float]:
    """Mean loss of an assistant's token on validation conversations, by kind. [nats]"""
    loss = jax.jit(functools.partial(summed_loss, cfg=cfg))
    kinds = collections.defaultdict(list)
    for talk in itertools.islice(scripts("validation", 0), count):
        kinds[talk.kind].append(example(chat, talk))
    result = {}
    for kind, items in sorted(kinds.items()):
        items = [item for item in items if len(item.ids) <= LENGTHS[-1]]
        sums = [loss(params, tokens=b.tokens, own=b.own) for b in (pad([i], LENGTHS[-1]) for i in items)]
        result[kind] = float(sum(s for s, _ in sums)) / float(sum(n for _, n in sums))
    return result


def greedy_replies(
    params: transformer.Params, chat: Chat, cfg: TransformerConfig, prompts: Sequence[list[int]], limit: int
) -> list[str]:
    """The likeliest reply to each prompt, at most `limit` tokens. Recomputes whole rows: for a few prompts only."""
    length = max(map(len, prompts)) + limit
    rows = pad([Example("", ids, [False] * len(ids)) for ids in prompts], length).tokens
    starts = np.array([len(ids) for ids in prompts])
    ends = starts.copy()

    @jax.jit
    def following(params, tokens, last):
        hidden = transformer.forward(params, cfg, tokens)[jnp.arange(len(tokens)), last]
        return transformer.logits(params, cfg, hidden).argmax(-1)

    going = np.ones(len(rows), bool)
    for _ in range(limit):
        chosen = np.asarray(following(params, rows, ends - 1))
        rows[going, ends[going]] = chosen[going]
        going &= chosen != chat.end_id
        ends += going
        if not going.any():
            break
    return [chat.decode(row[start:end]) for row, start, end in zip(rows, starts, ends, strict=True)]


def reflection_figures(
    params: transformer.Params, chat: Chat, cfg: TransformerConfig, count: int = 64
) -> dict[str, float]:
    """Share of greedy reflections on validation attempts in the two-field format, and with the right outcome."""
    asked = itertools.islice((t for t in scripts("validation", 1) if t.kind == "reflection"), count)
    attempts = [talk.attempt for talk in asked]
    prompts = [chat.reflection_prompt(a.opening, a.turns, a.feedback) for a in attempts]
    replies = greedy_replies(params, chat, cfg, prompts, limit=64)
    found = [re.fullmatch(r"OUTCOME: (SUCCESS|FAILURE)\nSUMMARY: [^\n]+", reply) for reply in replies]
    right = [m is not None and (m[1] == "SUCCESS") == a.success for m, a in zip(found, attempts, strict=True)]
    return {"format": sum(map(bool, found)) / count, "outcome_agreement": sum(right) / count}


def retry_figures(params: transformer.Params, chat: Chat, cfg: TransformerConfig, count: int = 64) -> dict[str, float]:
    """Share of the steps that greedy retry-point answers on validation attempts name usably."""
    attempts = [t.attempt for t in itertools.islice((t for t in scripts("validation", 2) if t.kind == "retry"), count)]
    prompts = [chat.retry_prompt(a.opening, a.turns, a.feedback, a.success) for a in attempts]
    replies = greedy_replies(params, chat, cfg, prompts, limit=24)
    usable = [len(parse_steps(r, 1, len(a.turns)).steps) for r, a in zip(replies, attempts, strict=True)]
    return {"usable_steps": sum(usable) / (2 * count)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ASSETS, help="where the two files go")
    parser.add_argument("--steps", type=int, default=STEPS, help="batches to train on")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    started = time.monotonic()

    cfg = preset("errands")
    args.out.mkdir(parents=True, exist_ok=True)
    # Both files are replaced together at the end: new words beside old weights would be gibberish.
    with tempfile.TemporaryDirectory(dir=args.out) as fresh:
        vocabulary, weights = Path(fresh) / "errands.model", Path(fresh) / "errands.safetensors"
        chat = ControlChat(train_vocabulary(vocabulary_texts(args.seed), vocabulary, cfg.vocab_size))
        params = train(chat, cfg, args.steps, args.seed)
        save_params(weights, params, ml_dtypes.bfloat16)
        for path in (vocabulary, weights):
            path.replace(args.out / path.name)

    # What ships is the rounded copy, so that is what the figures are of.
    params = jax.tree.map(lambda p: p.astype(jnp.bfloat16).astype(jnp.float32), params)
    figures = {f"loss/{kind}": value for kind, value in held_out_losses(params, chat, cfg).items()}
    figures |= {f"reflection/{name}": value for name, value in reflection_figures(params, chat, cfg).items()}
    figures |= {f"retry/{name}": value for name, value in retry_figures(params, chat, cfg).items()}
    figures |= {"parameters": transformer.parameter_count(params), "minutes": (time.monotonic() - started) / 60}
    print(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
