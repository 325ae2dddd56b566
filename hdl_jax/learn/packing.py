"""Groups of trajectories to micro-batches: packed streams in which a prefix that trajectories share is forwarded once.

A family is a root and the trajectories that left it: HDL's root with its continuations, or the complete trajectories of
one prompt (GRPO's group), which leave the first of them at the prompt's end. Whole families share streams of a fixed
length; one that is too large is split over several, each with as much of the root as its members see.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

import flax.struct
import numpy as np

from hdl_jax.policy import flash, packed
from hdl_jax.rollout.trajectory import Trajectory


@flax.struct.dataclass
class Batch:
    """One packed stream of N tokens, and what is trained in it.

    Attributes:
        tokens: int32 [N]. layout: who sees whom.
        count: int32 scalar, trained tokens. The arrays below have one entry for each, in their first `count` places;
            what stands behind them means nothing.
        source: int32 [N], the place in the stream of the token before it in its path, whose hidden state predicts it.
        target: int32 [N], its id. sampler: float32 [N], the sampler's log-prob. advantage: float32 [N].
    """

    tokens: np.ndarray
    layout: packed.Layout
    count: np.ndarray | np.int32
    source: np.ndarray
    target: np.ndarray
    sampler: np.ndarray
    advantage: np.ndarray


@dataclasses.dataclass(frozen=True)
class Streams:
    """The static shapes of the update: streams of `tokens`, and shorter ones for what is left over.

    Attributes:
        tokens: N, the longest stream: the token budget of a micro-batch.
        longest: tokens of the longest trajectory that a run can make.
        attention: whose tables a layout carries: xla, cudnn or splash.
    """

    tokens: int
    longest: int
    attention: str = "xla"

    @property
    def lengths(self) -> tuple[int, ...]:
        """Longest first."""
        return (self.tokens, self.tokens // 2)

    def row_shapes(self, length: int) -> tuple[tuple[int, int], ...]:
        """The shapes that the kernel's rows may have in a stream of that length, narrowest first; none for xla."""
        return flash.row_shapes(self.attention, length, self.longest)


@dataclasses.dataclass(frozen=True, eq=False)
class Member:
    """A trajectory to be trained, of which the tokens from `fork` on are forwarded; of its family's root, all."""

    trajectory: Trajectory
    advantage: float
    fork: int
    is_root: bool

    @property
    def own(self) -> int:
        return len(self.trajectory.tokens) - self.fork


@dataclasses.dataclass(frozen=True, eq=False)
class Family:
    """The tokens of a root, int32 [P], and those to be trained of the trajectories that it and its branches are."""

    root: np.ndarray
    members: tuple[Member, ...]

    @property
    def context(self) -> int:
        """Tokens of the root that are forwarded only for others to see: none where it is a member."""
        return 0 if any(m.is_root for m in self.members) else max(m.fork for m in self.members)

    @property
    def size(self) -> int:
        """Tokens it takes in a stream."""
        return self.context + sum(m.own for m in self.members)

    @property
    def segments(self) -> list[tuple[int, int]]:
        """(fork, own tokens) of each piece of a stream that it takes."""
        return [(0, self.context)] * (self.context > 0) + [(m.fork, m.own) for m in self.members]


def families(trajectories: Sequence[Trajectory], advantages: Sequence[float]) -> list[Family]:
    """One group's families; only what has a verdict and something to train is a member.

    A root with continuations is one with them; the others are one with whoever has the same prompt.

    Raises:
        ValueError: a continuation does not begin as its root does, or a token that nothing precedes is to be trained.
    """
    roots = [t for t in trajectories if t.origin is None]
    branched = {t.origin for t in trajectories}
    found: dict[int | bytes, list[Member]] = {}  # by the root's position, or by the prompt
    tokens: dict[int | bytes, np.ndarray] = {}
    position = -1
    for t, advantage in zip(trajectories, advantages, strict=True):
        position += t.origin is None
        if t.verdict is None or not t.trained.any():
            continue
        if t.trained[0]:
            raise ValueError(
                "a trajectory's first token is to be trained, but nothing comes before it: it has no prompt"
            )
        origin = t.origin if t.origin is not None else position if position in branched else None
        key: int | bytes = t.tokens[: t.prompt_length].tobytes() if origin is None else origin
        is_root = t.origin is None and (origin is not None or key not in found)
        member = Member(t, float(advantage), 0 if is_root else t.fork, is_root)
        root = tokens.setdefault(key, t.tokens if origin is None else roots[origin].tokens)
        if not np.array_equal(t.tokens[: member.fork], root[: member.fork]):
            raise ValueError(f"a continuation's first {member.fork} tokens are not those of its root")
        found.setdefault(key, []).append(member)
    return [Family(tokens[key], tuple(members)) for key, members in found.items()]


def fits(held: Sequence[Family], length: int, streams: Streams) -> bool:
    """Whether these families fit one stream of that length."""
    if sum(f.size for f in held) > length:
        return False
    return streams.attention == "xla" or _row_shape(held, length, streams) is not None


def pack(found: Iterable[Family], streams: Streams) -> list[Batch]:
    """Micro-batches of all families, the longest streams first; one at least is of full length.

    Trajectories of advantage 0 are forwarded too: they add no gradient, but the step's entropy and log-prob gap are
    over all trained tokens, as its denominator is.
    """
    bins: list[list[Family]] = []
    for family in sorted(found, key=lambda f: -f.size):  # first fit, decreasing
        room = next((held for held in bins if fits([*held, family], streams.tokens, streams)), None)
        rest: Family | None = family
        for held in [room] if room is not None else bins:
            if rest is not None:
                piece, rest = cut(rest, held, streams)
                held += [piece] if piece is not None else []
        while rest is not None:
            bins.append([])
            piece, rest = cut(rest, bins[-1], streams)
            assert piece is not None
            bins[-1].append(piece)
    lengths = [next(n for n in reversed(streams.lengths) if fits(held, n, streams)) for held in bins]
    order = np.argsort([-n for n in lengths], kind="stable")
    if bins:
        lengths[order[0]] = streams.tokens
    return [_batch(bins[i], lengths[i], streams, _row_shape(bins[i], lengths[i], streams)) for i in order]


def cut(family: Family, held: Sequence[Family], streams: Streams) -> tuple[Family | None, Family | None]:
    """What of a family fits beside those in a stream, and what does not.

    Either part takes as much of the root along as its members see. The root goes first, then those that see much of it.

    Raises:
        ValueError: a single trajectory is longer than a stream: nothing is silently cut.
    """
    longest = max(len(m.trajectory.tokens) for m in family.members)
    if longest > streams.tokens:
        raise ValueError(
            f"a trajectory of {longest} tokens is longer than learn.tokens_per_microbatch={streams.tokens}: raise it"
        )
    here: list[Member] = []
    left: list[Member] = []
    for member in sorted(family.members, key=lambda m: (not m.is_root, -m.fork)):
        fit = fits([*held, Family(family.root, (*here, member))], streams.tokens, streams)
        (here if fit else left).append(member)
    piece, rest = (Family(family.root, tuple(part)) if part else None for part in (here, left))
    return piece, rest


def trained_tokens(trajectories: Iterable[Trajectory]) -> int:
    """The step's denominator: trained tokens of every trajectory that has a verdict."""
    return sum(int(t.trained.sum()) for t in trajectories if t.verdict is not None)


def empty(streams: Streams, length: int) -> list[Batch]:
    """Micro-batches of that length with nothing in them, one of each shape that is compiled; for warming up."""
    return [_batch([], length, streams, shape) for shape in streams.row_shapes(length) or (None,)]


def _row_shape(held: Sequence[Family], length: int, streams: Streams) -> tuple[int, int] | None:
    segments = [segment for family in held for segment in family.segments]
    return flash.row_shape(streams.attention, streams.row_shapes(length), segments)


def _batch(held: Sequence[Family], length: int, streams: Streams, row_shape: tuple[int, int] | None) -> Batch:
    tokens = np.zeros(length, np.int32)
    start = np.arange(length, dtype=np.int32)
    prefix_start, prefix_end = start.copy(), start.copy()
    # Of each token: the one before it in its path, whether it is trained, and what is known of it.
    before = np.maximum(start - 1, 0)
    mask, sampler, advantage = np.zeros(length, bool), np.zeros(length, np.float32), np.zeros(length, np.float32)
    at = 0
    for family in held:
        first, context = at, family.context
        tokens[at : at + context] = family.root[:context]
        start[at : at + context] = at
        at += context
        for m in sorted(family.members, key=lambda m: not m.is_root):
            here, t = slice(at, at + m.own), m.trajectory
            tokens[here], mask[here], sampler[here] = t.tokens[m.fork :], t.trained[m.fork :], t.log_probs[m.fork :]
            advantage[here], start[here] = m.advantage, at
            prefix_start[here], prefix_end[here] = first, first + m.fork
            before[at] = max(first + m.fork - 1, 0)
            at += m.own
    trained = np.flatnonzero(mask)

    def compact(x: np.ndarray) -> np.ndarray:
        return np.pad(x[trained], (0, length - len(trained)))

    parts = (start, prefix_start, prefix_end)
    if streams.attention == "xla":
        layout = packed.Layout(*parts, blocks=packed.blocks_of(*parts))
    else:
        assert row_shape is not None
        rows, slots = flash.rows_of(streams.attention, *parts, np.arange(length) < at, row_shape)
        layout = packed.Layout(*parts, rows=rows, slots=slots)
    return Batch(
        tokens, layout, np.int32(len(trained)), compact(before), compact(tokens), compact(sampler), compact(advantage)
    )
