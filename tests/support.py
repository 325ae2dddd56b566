"""What tests share: a tiny policy, a slow sampler to compare with, a domain and a tokenizer to reason about."""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from hdl_jax import config as config_lib
from hdl_jax.domains.domain import EnvironmentFailure, Problem, Step, Verdict
from hdl_jax.policy import transformer as tr
from hdl_jax.policy.chat import Chat, ControlChat
from hdl_jax.policy.presets import TransformerConfig
from hdl_jax.policy.texts import EMBEDDED
from hdl_jax.rollout.context import Context
from hdl_jax.sampling.cache import CacheShape
from hdl_jax.sampling.draw import Stream
from hdl_jax.sampling.engine import Engine
from hdl_jax.sampling.pool import LaneState
from hdl_jax.sampling.requests import Lane, Request

SEED = 11
BLOCK, STEPS, FORCED_WIDTH = 16, 4, 4
PREFIX, SUFFIX = 96, 48
ROWS, LANES, TILE, WIDTH, CHUNKS = 7, 14, 2, 4, 3
VOCABULARY = 64
TINY = TransformerConfig(
    vocab_size=VOCABULARY, d_model=32, n_layers=2, n_heads=4, n_kv_heads=2, head_dim=8, d_ff=64, qk_norm=True
)


# ---- policy and engine ----------------------------------------------------------------------------------------------


def random_params(cfg: TransformerConfig, seed: int) -> tr.Params:
    """Weights with nothing left at a special value: norms away from 1, and attention that is far from uniform."""
    params = jax.jit(tr.init, static_argnums=0)(cfg, jax.random.key(seed))
    leaves, tree = jax.tree.flatten(params)
    keys = jax.random.split(jax.random.key(seed + 1), len(leaves))
    noisy = [p + 0.3 * jax.random.normal(k, p.shape) * jnp.std(p).clip(0.3) for p, k in zip(leaves, keys, strict=True)]
    return jax.tree.unflatten(tree, noisy)


def engine(
    *,
    rows: int = ROWS,
    lanes: int = LANES,
    tile: int = TILE,
    width: int = WIDTH,
    chunks: int = CHUNKS,
    steps: int = STEPS,
    workers: int = 2,
    seed: int = SEED,
) -> Engine:
    shape = CacheShape(rows, lanes, PREFIX, SUFFIX, BLOCK)
    return Engine(
        TINY, shape, seed=seed, tile=tile, width=width, chunks=chunks, steps=steps, forced_width=FORCED_WIDTH,
        workers=workers,
    )  # fmt: skip


def ask(*requests: Request):
    """A job that makes one list of requests and returns their results."""
    return (yield list(requests))


def run(engine: Engine, *requests: Request, step: int = 0) -> list:
    """The results of a few requests of one job."""
    return engine.run([ask(*requests)], step)[0]


def lane(fork: int, number: int = 0, *, budget: int = 12, temperature: float = 1.0, stop=(3,), respond=None) -> Lane:
    return Lane((Stream.ROOT, 5, 0, fork, 0, number), fork, budget, temperature, stop, respond)


def lane_state(row: int) -> LaneState:
    """A lane in flight on a row, of which nothing else matters."""
    return LaneState(lane(1), row, 0, [1], 1)


def random_ids(seed: int, n: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(6, VOCABULARY, n).astype(np.int32)


@dataclasses.dataclass
class SlowLane:
    """What SlowSampler drew: lists over the tokens after the fork, and whether the last turn drew a stop token."""

    tokens: list[int]
    generated: list[bool]
    log_probs: list[float]
    stopped: bool = False


class SlowSampler:
    """Samples a lane with a full forward pass a token and a plain cumulative sum in float64."""

    LENGTH = PREFIX + SUFFIX + 16

    def __init__(self, params: tr.Params, cfg: TransformerConfig, seed: jax.Array):
        self.params, self.cfg, self.seed = params, cfg, seed
        self._forward = jax.jit(lambda p, tokens: tr.logits(p, cfg, tr.forward(p, cfg, tokens[None])[0]))

    def logits(self, tokens: Sequence[int]) -> np.ndarray:
        """float64 [T, V], the logits after each token."""
        padded = np.zeros(self.LENGTH, np.int32)
        padded[: len(tokens)] = tokens
        return np.asarray(self._forward(self.params, padded), np.float64)[: len(tokens)]

    def log_softmax(self, tokens: Sequence[int], temperature: float = 1.0) -> np.ndarray:
        z = self.logits(tokens) / temperature
        z = z - z.max(axis=-1, keepdims=True)
        return z - np.log(np.exp(z).sum(axis=-1, keepdims=True))

    def sample(self, prefix: Sequence[int], lane: Lane, step: int = 0) -> SlowLane:
        key = self.seed
        for name in (step, *lane.path):
            key = jax.random.fold_in(key, name)
        path, out = [int(t) for t in prefix[: lane.fork]], SlowLane([], [], [])
        budget, fresh = lane.budget, 0
        while True:
            log_p = self.log_softmax(path, lane.temperature)[-1]
            u = float(jax.random.uniform(jax.random.fold_in(key, len(path))))
            cdf = np.cumsum(np.exp(log_p))
            token = int(np.searchsorted(cdf, u * cdf[-1], side="right"))
            path.append(token)
            out.tokens.append(token)
            out.generated.append(True)
            out.log_probs.append(float(log_p[token]))
            fresh += 1
            out.stopped = token in lane.stop
            if not out.stopped and fresh < budget:
                continue
            answer = lane.respond(out.tokens[-fresh:], out.stopped) if lane.respond else None
            if answer is None:
                return out
            ids, budget = answer
            fresh = 0
            path += ids
            out.tokens += ids
            out.generated += [False] * len(ids)
            out.log_probs += [0.0] * len(ids)


def assert_lane(result, slow: SlowLane) -> None:
    """The engine's lane is the slow sampler's: tokens and mask exactly, log-probs to 1e-5."""
    assert result.tokens.tolist() == slow.tokens
    assert result.generated.tolist() == slow.generated
    np.testing.assert_allclose(result.log_probs, slow.log_probs, atol=1e-5)
    assert result.stopped == slow.stopped


# With jax 0.12 the CPU compiler rounds a row of an array differently by where in the array it lies: what a lane samples
# still does not change with its row, but the last bits of its log-probabilities do.
BITWISE = jax.__version_info__ < (0, 11)


def same_log_probs(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether two lanes' log-probabilities are equal bit for bit, where the compiler lets them be, else to 1e-5."""
    return a.tobytes() == b.tobytes() if BITWISE else a.shape == b.shape and bool((np.abs(a - b) <= 1e-5).all())


def same_bits(a, b) -> bool:
    """Whether two lane results are equal: ids, mask and end exactly, log-probabilities as `same_log_probs` has it."""
    return (
        a.tokens.tolist() == b.tokens.tolist()
        and a.generated.tolist() == b.generated.tolist()
        and same_log_probs(a.log_probs, b.log_probs)
        and a.stopped == b.stopped
    )


# ---- a small world --------------------------------------------------------------------------------------------------


class PairTokenizer:
    """Letters a-f, space, digits, a point, every pair of letters as one id of its own, and loose bytes.

    A pair that was sampled is encoded back as two letters, so text rarely leads back to the ids that were sampled.
    """

    pad_id, bos_id, end_id, user_id, assistant_id = 0, 2, 3, 4, 5
    PIECES: tuple[bytes, ...] = (
        *(c.encode() for c in "abcdef 0123456789."),
        *("".join(pair).encode() for pair in itertools.product("abcdef", repeat=2)),
        b"\xc3",  # the two bytes of one character
        b"\xa9",
        b"x",
        b"y",
    )

    def encode(self, text: str) -> list[int]:
        # Characters outside the alphabet become a digit: texts of templates need ids, not a way back.
        pieces = [c.encode() if c.encode() in self.PIECES else b"%d" % (ord(c) % 10) for c in text]
        return [6 + self.PIECES.index(piece) for piece in pieces]

    def decode(self, ids: Sequence[int]) -> str:
        return b"".join(self.PIECES[i - 6] for i in ids if i >= 6).decode(errors="replace")


assert 6 + len(PairTokenizer.PIECES) == VOCABULARY
STOPS = (PairTokenizer.end_id, 62, 63)  # several ways to end a turn, or random weights would rarely end one
TEXTS = dataclasses.replace(
    EMBEDDED,
    lead="",
    turn="{action}.{observation}.",
    reflection="{opening}.{attempt}{feedback}",
    hindsight="{feedback}.{reflection}",
)


def chat() -> Chat:
    chat = ControlChat(PairTokenizer(), TEXTS)
    chat.stop_ids = STOPS
    return chat


class EchoEpisode:
    """Answers each action with its number and its first letters; a `d` as the first letter ends the episode."""

    def __init__(self, domain: EchoDomain, problem: Problem):
        self.domain, self.problem = domain, problem
        self.actions: list[str] = []
        self.verified = 0

    def opening(self) -> str:
        return f"{self.problem.index} abc"

    def step(self, action: str) -> Step:
        time.sleep(self.domain.delay(action))
        if self.domain.fails(self.problem, len(self.actions)):
            raise EnvironmentFailure("the environment is down")
        self.actions.append(action)
        return Step(f"{self.domain.salt}{len(self.actions)} {action[:4]}", action.startswith("d"))

    def verdict(self) -> Verdict:
        self.verified += 1
        if self.verified <= self.domain.verifier_failures.get(self.problem.index, 0):
            raise EnvironmentFailure("the verifier is down")
        letters = "".join(self.actions)
        reward = (letters.count("a") + letters.count("b")) / max(1, len(letters))
        return Verdict(reward, reward > 0.5, f"{reward:.1f}")


class EchoDomain:
    """A deterministic domain whose observations repeat what was said.

    Attributes:
        salt: part of every observation; another one makes a replay differ from the record.
        verifier_failures: problem index -> how often each verifier of that problem fails before it answers.
        broken: (problem index, number of actions taken) at which the environment fails.
    """

    name = "echo"
    max_actions = 4

    def __init__(self):
        self.salt = ""
        self.verifier_failures: dict[int, int] = {}
        self.broken: set[tuple[int, int]] = set()
        self.sleep = 0.0

    def delay(self, action: str) -> float:
        return self.sleep * (len(action) % 3)

    def fails(self, problem: Problem, actions: int) -> bool:
        return (problem.index, actions) in self.broken

    def problems(self, split: str) -> list[Problem]:
        return [Problem(f"echo/{split}/{i}", i, split) for i in range(8)]

    def start(self, problem: Problem) -> EchoEpisode:
        return EchoEpisode(self, problem)

    def token_class(self, action: str) -> list[tuple[int, int, str]]:
        return []


def context(domain=None, *, step: int = 1, **changes) -> Context:
    """A context of the small world; `changes` are config fields, with __ for the dot."""
    config = config_lib.default()
    config.seed = SEED
    config.rollout.max_prompt_tokens, config.rollout.max_response_tokens = 16, 40
    config.rollout.max_action_tokens = 6
    config.branch.min_spacing = 2
    config.reflection.max_tokens = 8
    config.engine.rows, config.engine.lanes = ROWS, LANES
    config.engine.context_tokens, config.engine.block = PREFIX, BLOCK
    for name, value in changes.items():
        section, _, field = name.partition("__")
        config[section][field] = value
    return Context(domain or EchoDomain(), chat(), config, step, config.rollout.temperature)


def play(engine: Engine, method, ctx: Context, indices: Sequence[int] = (0, 1, 2)) -> list:
    """Runs a method on a few problems of the context's domain."""
    problems = ctx.domain.problems("train")
    return engine.run([method(ctx, problems[i]) for i in indices], ctx.step)
