"""One episode bound to token ids: masks, budgets, replays. Played by hand, without an engine."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
from support import EchoDomain, PairTokenizer, context

from hdl_jax.domains.domain import Problem, Step, Verdict
from hdl_jax.domains.errands import Errands
from hdl_jax.policy.chat import ControlChat
from hdl_jax.rollout.context import Context
from hdl_jax.rollout.session import ReplayMismatch, Session
from hdl_jax.sampling.requests import LaneResult
from hdl_jax.setup_run import make_policy

E = 3
PROBLEM = Problem("echo/train/1", 1, "train")


def play(session: Session, *actions: list[int]):
    """Feeds whole actions to a session as the engine would; a last id of E is a stop. Returns its trajectory."""
    tokens: list[int] = []
    generated: list[bool] = []
    for action in actions:
        answer = session.respond(action, action[-1] in session.ctx.chat.stop_ids)
        tokens += action
        generated += [True] * len(action)
        if answer is None:
            break
        tokens += answer[0]
        generated += [False] * len(answer[0])
    log_probs = np.where(generated, -0.5 - 0.01 * np.arange(len(tokens)), 0).astype(np.float32)
    lane = LaneResult(np.asarray(tokens, np.int32), np.asarray(generated, bool), log_probs, True)
    return session.trajectory(lane, Verdict(0.5, False, "f"))


class TinyChat(ControlChat):
    """The conversation of cases T4: prompt [1, 2], every observation [20, 21]."""

    def __init__(self):
        super().__init__(PairTokenizer())

    def prompt(self, opening, hindsight=""):
        return [1, 2]

    def observation(self, text):
        return [20, 21]

    def decode(self, ids):
        return "-".join(map(str, ids))


class Talk:
    """An episode that ends when it is told 12, and remembers what it was told."""

    def __init__(self):
        self.heard: list[str] = []

    def opening(self):
        return "hi"

    def step(self, action):
        self.heard.append(action)
        return Step(f"heard {action}", action.endswith("12"))

    def verdict(self):
        return Verdict(0, False, "f")


class TalkDomain(EchoDomain):
    def start(self, problem):
        return Talk()


def _tiny(**changes) -> Context:
    return dataclasses.replace(context(TalkDomain(), **changes), chat=TinyChat())


def test_masks_of_a_conversation():
    """Case T4: prompt, action, observation, action."""
    t = play(Session(_tiny(), PROBLEM), [10, 11, E], [12, E])
    assert t.tokens.tolist() == [1, 2, 10, 11, E, 20, 21, 12, E]
    assert t.generated.astype(int).tolist() == [0, 0, 1, 1, 1, 0, 0, 1, 1]
    assert t.trained.astype(int).tolist() == [0, 0, 1, 1, 1, 0, 0, 1, 1]
    assert [(turn.start, turn.end, turn.action, turn.observation) for turn in t.turns] == [
        (2, 5, "10-11", "heard 10-11"),
        (7, 9, "12", "heard 12"),
    ]
    assert t.prompt_length == t.fork == 2 and not t.truncated and t.origin is None


def test_a_continuation_trains_on_its_own_tokens_only():
    """Case T4b: token 15 is conditioned on 10, which is kept and not trained."""
    ctx = _tiny()
    root = play(Session(ctx, PROBLEM), [10, 11, 12, E])
    child = play(Session(ctx, PROBLEM, root, 3, 0), [15, E])
    assert child.tokens.tolist()[:5] == [1, 2, 10, 15, E]
    assert child.trained.astype(int).tolist()[:5] == [0, 0, 0, 1, 1]
    assert child.generated.astype(int).tolist()[:5] == [0, 0, 1, 1, 1]
    assert child.turns[0].action == "10-15" and child.turns[0].start == 2
    assert child.log_probs[2] == root.log_probs[2] and child.fork == 3 and child.origin == 0


def _turns_of(tokens, generated):
    """Runs of generated tokens."""
    spans = []
    for made, run in itertools.groupby(range(len(tokens)), key=lambda i: bool(generated[i])):
        positions = list(run)
        if made:
            spans.append((positions[0], positions[-1] + 1))
    return spans


@pytest.mark.parametrize("stopped", [True, False])
def test_a_fork_at_every_generated_token(stopped):
    """Replays exactly the complete actions before it, keeps the sampled ids, and asks the environment nothing new."""
    ctx = _tiny()
    end = [E] if stopped else []
    root = play(Session(ctx, PROBLEM), [10, 11, *end], [30, *end], [31, 32, 33, *end], [34, *end])
    spans = _turns_of(root.tokens, root.generated)
    assert spans == [(t.start, t.end) for t in root.turns]
    for fork in np.flatnonzero(root.generated):
        session = Session(ctx, PROBLEM, root, int(fork), 1)
        complete = [t for t in root.turns if t.end <= fork]
        assert isinstance(session.episode, Talk)
        assert session.episode.heard == [t.action for t in complete]
        assert session.tokens == root.tokens[:fork].tolist() and session.turns == complete
        interrupted = root.turns[len(complete)]
        kept = root.tokens[interrupted.start : fork].tolist()
        child = play(session, [40, E], [12, E])
        assert child.tokens[:fork].tolist() == root.tokens[:fork].tolist()
        assert child.generated[:fork].tolist() == root.generated[:fork].tolist()
        assert child.turns[len(complete)].action == "-".join(map(str, [*kept, 40]))
        assert not child.trained[:fork].any() and child.trained.sum() == child.generated[fork:].sum()


def test_a_cut_action_is_closed_by_the_template():
    ctx = _tiny()
    t = play(Session(ctx, PROBLEM), [10, 11], [12, E])
    assert t.tokens.tolist() == [1, 2, 10, 11, E, 20, 21, 12, E]
    assert t.generated.astype(int).tolist() == [0, 0, 1, 1, 0, 0, 0, 1, 1]
    assert t.turns[0].end == 4 and t.turns[0].action == "10-11"


# ---- budgets --------------------------------------------------------------------------------------------------------


def test_budgets_of_an_action_and_of_the_trajectory():
    ctx = _tiny(rollout__max_action_tokens=6, rollout__max_response_tokens=12)
    session = Session(ctx, PROBLEM)
    assert session.budget() == 6
    assert session.respond([10, E], True) == ([20, 21], 6)
    assert session.respond([11, E], True) == ([20, 21], 4), "12 tokens of response, 8 are there"
    assert session.respond([11, 13, 14], False) is None, "no room for an observation and an action"
    assert session.truncated


def test_a_continuation_has_what_its_root_had_left():
    """T10: budgets count the kept prefix, of the action it interrupts and of the trajectory."""
    ctx = _tiny(rollout__max_action_tokens=6, rollout__max_response_tokens=12)
    root = play(Session(ctx, PROBLEM), [10, 11, 30, 31, E], [13, 14, 15, 16, 17])
    for fork in np.flatnonzero(root.generated):
        session = Session(ctx, PROBLEM, root, int(fork), 0)
        start = max(t.start for t in root.turns if t.start <= fork)
        assert session.budget() == min(6 - (fork - start), 14 - fork) >= 1


def test_actions_are_limited_and_those_of_the_root_count():
    ctx = _tiny()
    assert ctx.domain.max_actions == 4
    root = play(Session(ctx, PROBLEM), *[[10, E]] * 9)
    assert len(root.turns) == 4 and root.truncated
    child = play(Session(ctx, PROBLEM, root, root.turns[2].start, 0), *[[11, E]] * 9)
    assert len(child.turns) == 4 and child.truncated and child.turns[:2] == root.turns[:2]


def test_the_last_action_may_also_end_the_episode():
    t = play(Session(_tiny(), PROBLEM), *[[10, E]] * 3, [12, E])
    assert len(t.turns) == 4 and not t.truncated


def test_a_prompt_that_is_too_long_is_named():
    """Case T8: refused, never cut."""
    with pytest.raises(ValueError, match="echo/train/1: its prompt has 2 tokens.*max_prompt_tokens=1"):
        Session(_tiny(rollout__max_prompt_tokens=1), PROBLEM)


# ---- ids and replays ------------------------------------------------------------------------------------------------


def test_sampled_ids_are_kept_though_text_would_give_others():
    """Cases T5 and T5b: a pair of letters that encodes as two, and a fork between the two bytes of one character."""
    ctx = context()
    tokenizer = ctx.chat.tokenizer
    a, pair, first, second = (6 + PairTokenizer.PIECES.index(piece) for piece in (b"a", b"ab", b"\xc3", b"\xa9"))
    root = play(Session(ctx, PROBLEM), [a, pair, first, second, E], [a, E])
    assert root.turns[0].action == "aab\u00e9"
    assert tokenizer.encode(root.turns[0].action)[:2] != [a, pair]
    start = root.prompt_length
    for fork in (start + 1, start + 2, start + 3, root.turns[1].start):
        child = play(Session(ctx, PROBLEM, root, fork, 0), [pair, E])
        assert child.tokens[:fork].tolist() == root.tokens[:fork].tolist()
    inside = play(Session(ctx, PROBLEM, root, start + 3, 0), [second, a, E])
    assert inside.turns[0].action == "aab\u00e9a"


def test_a_replay_that_differs_is_refused():
    domain = EchoDomain()
    ctx = context(domain)
    (a,) = ctx.chat.tokenizer.encode("a")
    root = play(Session(ctx, PROBLEM), [a, E], [a, E], [a, E])
    domain.salt = "0"
    Session(ctx, PROBLEM, root, root.turns[0].start, 0)  # nothing to replay
    with pytest.raises(ReplayMismatch, match="echo/train/1: action 0 answered"):
        Session(ctx, PROBLEM, root, root.turns[1].start, 0)


def test_a_replay_that_ends_early_is_refused():
    class Early(Talk):
        def step(self, action):
            return Step(f"heard {action}", done=True)

    class EarlyDomain(EchoDomain):
        def start(self, problem):
            return Early()

    ctx = _tiny()
    root = play(Session(ctx, PROBLEM), [10, E], [11, E], [12, E])
    with pytest.raises(ReplayMismatch):
        Session(dataclasses.replace(ctx, domain=EarlyDomain()), PROBLEM, root, root.turns[1].start, 0)


def test_a_record_that_differs_from_the_engines_is_refused():
    session = Session(_tiny(), PROBLEM)
    session.respond([12, E], True)
    lane = LaneResult(np.array([12, 4]), np.ones(2, bool), np.zeros(2, np.float32), True)
    with pytest.raises(AssertionError, match="recorded different tokens"):
        session.trajectory(lane, None)


ACTIONS = (
    "go kitchen", "open fridge", "ok take bread", "grab bread", "go shed", "open crate", "put bread crate", "look",
    "wash soap", "qwerty", "", "go bath", "open cabinet", "take soap", "wash soap", "done",
)  # fmt: skip


@pytest.mark.parametrize("index", range(3))
def test_errands_replays_to_the_same_state_from_every_fork(index):
    """A continuation that says what its root said gets the root's observations, text and verdict."""
    ctx = context(Errands(), rollout__max_prompt_tokens=64, rollout__max_response_tokens=400)
    chat = make_policy(ctx.config).chat
    ctx = dataclasses.replace(ctx, chat=chat)
    problem = ctx.domain.problems("train")[index]
    actions = [chat.reply(text) if text else [E] for text in ACTIONS]
    root_session = Session(ctx, problem)
    root = play(root_session, *actions)
    assert [t.action for t in root.turns] == list(ACTIONS) and not root.truncated
    for fork in np.flatnonzero(root.generated):
        n = sum(t.end <= fork for t in root.turns)
        rest = [root.tokens[fork : root.turns[n].end].tolist(), *actions[n + 1 :]]
        session = Session(ctx, problem, root, int(fork), 0)
        child = play(session, *rest)
        assert child.tokens.tolist() == root.tokens.tolist() and child.turns == root.turns
        assert session.episode.verdict() == root_session.episode.verdict()


@pytest.mark.parametrize("stopped", [True, False])
def test_a_last_answer_without_its_stop_token_is_truncated(stopped):
    """A row without an end is a truncated row, even where the action ends the episode (a cut single-turn answer)."""
    session = Session(_tiny(), PROBLEM)
    assert session.respond([12, E] if stopped else [12], stopped) is None
    assert session.truncated is not stopped


def test_another_opening_is_a_replay_mismatch():
    ctx = context()
    (a,) = ctx.chat.tokenizer.encode("a")
    root = play(Session(ctx, PROBLEM), [a, E], [a, E])
    with pytest.raises(ReplayMismatch, match="opens with"):
        Session(ctx, Problem("echo/train/2", 2, "train"), root, root.turns[0].start, 0)
