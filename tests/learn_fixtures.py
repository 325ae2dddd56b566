"""Trajectories with random contents, and the update written the slow way: a row at a time, a token at a time."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hdl_jax import config as config_lib
from hdl_jax.domains.domain import Verdict
from hdl_jax.policy import transformer as tr
from hdl_jax.policy.presets import TransformerConfig
from hdl_jax.rollout.trajectory import Trajectory


def trajectory(
    tokens: Sequence[int],
    generated: Sequence[int],
    *,
    fork: int | None = None,
    origin: int = 0,
    reward: float | None = 0.5,
    log_probs: Sequence[float] | None = None,
    truncated: bool = False,
) -> Trajectory:
    """A root, or with a `fork` a continuation that left root `origin` there; unverified where `reward` is None."""
    mask = np.asarray(generated, bool)
    prompt = int(np.flatnonzero(mask)[0]) if mask.any() else len(mask)
    return Trajectory(
        tokens=np.asarray(tokens, np.int32),
        generated=mask,
        log_probs=np.asarray(np.zeros(len(mask)) if log_probs is None else log_probs, np.float32),
        prompt_length=prompt,
        fork=prompt if fork is None else fork,
        turns=(),
        verdict=None if reward is None else Verdict(reward, reward == 1.0, "feedback"),
        truncated=truncated,
        origin=None if fork is None else origin,
    )


def _acts(rng: np.random.Generator, length: int) -> np.ndarray:
    """Actions with observations between them, an action first; bool [length]."""
    generated, at, acting = np.zeros(length, bool), 0, True
    while at < length:
        run = int(rng.integers(1, 5))
        generated[at : at + run] = acting
        at, acting = at + run, not acting
    return generated


def random_root(
    rng: np.random.Generator,
    length: int,
    *,
    vocabulary: int,
    prompt: Sequence[int] = (1, 2, 3),
    reward: float | None = 0.5,
) -> Trajectory:
    """A prompt, then actions and observations; ids of padding and stop tokens occur anywhere."""
    generated = np.concatenate([np.zeros(len(prompt), bool), _acts(rng, length - len(prompt))])
    return trajectory(
        [*prompt, *rng.integers(0, vocabulary, length - len(prompt))],
        generated,
        reward=reward,
        log_probs=np.where(generated, rng.normal(-2, 1, length), 0),
    )


def random_continuation(
    rng: np.random.Generator,
    root: Trajectory,
    length: int,
    *,
    vocabulary: int,
    origin: int = 0,
    fork: int | None = None,
    reward: float | None = 0.5,
) -> Trajectory:
    """Leaves the root at a generated token, any of them but for a given `fork`, and goes on to `length` tokens."""
    if fork is None:
        fork = int(rng.choice(np.flatnonzero(root.generated[: length - 1])))
    generated = np.concatenate([root.generated[:fork], _acts(rng, length - fork)])
    return dataclasses.replace(
        trajectory(
            [*root.tokens[:fork], *rng.integers(0, vocabulary, length - fork)],
            generated,
            fork=fork,
            origin=origin,
            reward=reward,
            log_probs=[*root.log_probs[:fork], *np.where(generated[fork:], rng.normal(-2, 1, length - fork), 0)],
        ),
        prompt_length=root.prompt_length,
    )


def random_group(
    rng: np.random.Generator, lengths: Sequence[int], *, vocabulary: int, roots: int, continuations: int
) -> list[Trajectory]:
    """Roots of one prompt, then continuations of random ones of them; one in five of either is unverified."""

    def reward() -> float | None:
        return None if rng.random() < 0.2 else 0.5

    prompt = rng.integers(0, vocabulary, 3)
    group = [
        random_root(rng, int(rng.choice(lengths)), vocabulary=vocabulary, prompt=prompt, reward=reward())
        for _ in range(roots)
    ]
    for _ in range(continuations):
        origin = int(rng.integers(roots))
        group.append(
            random_continuation(
                rng, group[origin], int(rng.choice(lengths)), vocabulary=vocabulary, origin=origin, reward=reward()
            )
        )
    return group


def learn_config(**changes):
    """The config's learn section at test sizes."""
    learn = config_lib.default().learn
    learn.tokens_per_microbatch = 96
    learn.update(changes)
    return learn


POLICY = TransformerConfig(
    vocab_size=48, d_model=16, n_layers=2, n_heads=2, n_kv_heads=1, head_dim=8, d_ff=24, qk_norm=True
)


def random_params(seed: int = 0) -> tr.Params:
    """Weights of the tiny policy with nothing left at a special value."""
    rng = np.random.default_rng(seed)

    def leaf(path, p):
        norm = "norm" in jax.tree_util.keystr(path)
        return jnp.asarray(rng.normal(float(norm), 0.3, p.shape), jnp.float32)

    return jax.tree_util.tree_map_with_path(leaf, tr.abstract_params(POLICY))


@dataclasses.dataclass(frozen=True)
class SlowRow:
    """One row's part: [T] log-probs and entropies of its tokens, its sum of losses, and the gradient of that sum."""

    log_probs: np.ndarray
    entropies: np.ndarray
    loss: float
    gradient: Any


class SlowUpdate:
    """The update as the method states it: a row at a time, unpadded, whole logits, trained tokens picked one by one."""

    def __init__(self, temperature: float = 1.0, low: float = 0.2, high: float = 0.28):
        def loss(params, tokens, old, chosen, advantage):
            z = tr.logits(params, POLICY, tr.forward(params, POLICY, tokens[None])[0]) / temperature
            rows = jax.nn.log_softmax(z)[:-1]  # what is said after each token but the last
            log_p = jnp.concatenate([jnp.zeros(1), rows[jnp.arange(len(tokens) - 1), tokens[1:]]])
            entropy = jnp.concatenate([jnp.zeros(1), -(jnp.exp(rows) * rows).sum(axis=-1)])
            before = log_p if old is None else old
            ratio = jnp.exp(log_p - jax.lax.stop_gradient(before))
            surrogate = jnp.minimum(ratio * advantage, jnp.clip(ratio, 1 - low, 1 + high) * advantage)
            return -(surrogate * chosen).sum(), (log_p, entropy)

        self._row = jax.jit(jax.value_and_grad(loss, has_aux=True))

    @staticmethod
    def logits(params: tr.Params, t: Trajectory) -> np.ndarray:
        """[T, V], what is said after each token."""
        return np.asarray(tr.logits(params, POLICY, tr.forward(params, POLICY, t.tokens[None])[0]))

    @staticmethod
    def places(t: Trajectory) -> list[int]:
        """Trained positions: sampled by the policy, at or after the trajectory's own first token; none unverified."""
        if t.verdict is None:
            return []
        return [i for i in range(len(t.tokens)) if t.generated[i] and i >= t.fork]

    def row(self, params: tr.Params, t: Trajectory, advantage: float, old: np.ndarray | None = None) -> SlowRow:
        """`old`: log-probs before the update; None: those of `params`, which makes every ratio 1."""
        chosen = np.zeros(len(t.tokens), np.float32)
        chosen[self.places(t)] = 1
        (loss, (log_p, entropy)), gradient = self._row(params, t.tokens, old, chosen, np.float32(advantage))
        return SlowRow(np.asarray(log_p), np.asarray(entropy), float(loss), gradient)

    def log_probs(self, params: tr.Params, t: Trajectory) -> np.ndarray:
        return self.row(params, t, 0.0).log_probs

    def gradient(self, params, rows, advantages, old=None) -> tr.Params:
        """Of the sum over all rows' trained tokens, divided by their number."""
        old = [None] * len(rows) if old is None else old
        parts = [self.row(params, *part).gradient for part in zip(rows, advantages, old, strict=True)]
        count = sum(len(self.places(t)) for t in rows)
        return jax.tree.map(lambda *g: np.sum(np.asarray(g, np.float64), axis=0) / count, *parts)


def assert_trees_close(a, b, **tolerance) -> None:
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for (path, x), y in zip(jax.tree_util.tree_leaves_with_path(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_allclose(np.asarray(x), np.asarray(y), err_msg=jax.tree_util.keystr(path), **tolerance)


def assert_trees_identical(a, b) -> None:
    """Equal bit for bit."""
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for (path, x), y in zip(jax.tree_util.tree_leaves_with_path(a), jax.tree.leaves(b), strict=True):
        assert np.asarray(x).tobytes() == np.asarray(y).tobytes(), jax.tree_util.keystr(path)
