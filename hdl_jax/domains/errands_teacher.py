"""A scripted demonstrator of the errands game: knows the grammar and the task, and plays it only so well.

It reads nothing but what a player sees. How it goes wrong is one dataclass, so that a policy trained on its games
starts where the task is understood and mostly not solved, with the right action always among the likely ones.
"""

from __future__ import annotations

import dataclasses
import random

from hdl_jax.domains import errands
from hdl_jax.domains.errands import (
    CONTAINERS,
    FILLERS,
    KIND_OF,
    KINDS,
    OBJECTS,
    ROOM_OF,
    ROOMS,
    TREATMENTS,
    Errand,
    Variation,
)


@dataclasses.dataclass(frozen=True)
class Noise:
    """Probabilities of going wrong, each per decision of its kind.

    Attributes:
        random_search: opens some container at random instead of the likeliest one not opened yet.
        overlook: does not act now on an object that is in sight or known.
        wrong_object: takes something else out of the container.
        no_treatment: brings an object as it is although it should be treated.
        wrong_treatment: treats an object as its kind often is, although the errand does not say so.
        wrong_target: puts an object where its kind usually lies, or near the right container, or anywhere.
        look: looks around for nothing, before any action.
        slip: tries something impossible, before any action.
        quit: says `done` before the end, before any action.
        filler: puts a filler word first, which is harmless.
    """

    random_search: float = 0.5
    overlook: float = 0.25
    wrong_object: float = 0.06
    no_treatment: float = 0.4
    wrong_treatment: float = 0.2
    wrong_target: float = 0.4
    look: float = 0.05
    slip: float = 0.03
    quit: float = 0.015
    filler: float = 0.6

    def scaled(self, factor: float) -> Noise:
        """The same with every probability but the filler's times `factor`."""
        fields = {f.name: getattr(self, f.name) * factor for f in dataclasses.fields(self)}
        return Noise(**{**fields, "filler": self.filler})


@dataclasses.dataclass(frozen=True)
class Hint:
    """What a reflection on an earlier attempt lets a player know.

    Attributes:
        seats: where objects of the errands were seen.
        rooms: rooms worth searching, since they had not been.
    """

    seats: dict[str, str]
    rooms: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Attempt:
    """A finished episode: the opening, its (action, observation) turns, the verifier's points and feedback."""

    opening: str
    turns: tuple[tuple[str, str], ...]
    reward: float
    success: bool
    feedback: str


class Demonstrator:
    """Chooses actions from what it has seen so far."""

    def __init__(self, tasks: tuple[Errand, ...], noise: Noise, rng: random.Random, hint: Hint | None = None):
        self._tasks = {errand.thing: errand for errand in tasks}
        self._noise, self._rng = noise, rng
        self._known = dict(hint.seats) if hint else {}
        self._first_rooms = hint.rooms if hint else ()
        self._room = "hall"
        self._opened: set[str] = set()
        self._contents: dict[str, list[str]] = {}
        self._held: str | None = None
        self._plan: list[str] = []
        self._settled: set[str] = set()

    def act(self) -> str:
        """The next action, filler included."""
        action = self._stray() or self._choose()
        if action.startswith("take "):
            action = self._rng.choice(("take", "grab", "get")) + action[4:]
        return f"{self._rng.choice(FILLERS)} {action}" if self._happens(self._noise.filler) else action

    def see(self, action: str, observation: str) -> None:
        """Takes note of what an action led to."""
        command = errands.parse(action)
        if command is None or observation == "cannot":
            return
        words = observation.split()
        if command.verb == "go":
            self._room = command.arguments[0]
        elif command.verb == "open":
            container, things = words[0], words[2:]
            self._opened.add(container)
            self._contents[container] = things
            for thing in self._tasks:
                if self._known.get(thing) == container and thing not in things:
                    del self._known[thing]
                if thing in things:
                    self._known[thing] = container
        elif command.verb == "take":
            self._held = command.arguments[0]
            self._known.pop(self._held, None)
            self._plan = self._make_plan(self._held)
        elif command.verb == "put" or words[0] in [t.ruin for t in TREATMENTS.values()]:
            self._settled.add(command.arguments[0])
            self._held = None
            self._plan = []

    def _happens(self, probability: float) -> bool:
        return self._rng.random() < probability

    def _stray(self) -> str | None:
        if self._happens(self._noise.look):
            return "look"
        if self._happens(self._noise.slip):
            thing = self._rng.choice([t for t in OBJECTS if t != self._held])
            container = self._rng.choice([c for c in CONTAINERS if ROOM_OF[c] != self._room])
            return self._rng.choice([f"open {container}", f"take {thing}", f"wash {thing}", f"put {thing} {container}"])
        return "done" if self._happens(self._noise.quit) else None

    def _choose(self) -> str:
        if self._held:
            return self._carry_out()
        if self._known and not self._happens(self._noise.overlook):
            # What lies in this room first, then in the order in which it was learnt.
            thing = min(self._known, key=lambda t: ROOM_OF[self._known[t]] != self._room)
            return self._fetch(thing, self._known[thing])
        return self._visit(self._next_container())

    def _fetch(self, thing: str, container: str) -> str:
        if ROOM_OF[container] != self._room or container not in self._opened:
            return self._visit(container)
        others = [t for t in self._contents[container] if t != thing and t not in self._settled]
        if others and self._happens(self._noise.wrong_object):
            return f"take {self._rng.choice(others)}"
        return f"take {thing}"

    def _visit(self, container: str) -> str:
        return f"open {container}" if ROOM_OF[container] == self._room else f"go {ROOM_OF[container]}"

    def _next_container(self) -> str:
        closed = [c for c in CONTAINERS if c not in self._opened]
        if not closed:
            self._opened.clear()
            closed = list(CONTAINERS)
        here = [c for c in closed if ROOM_OF[c] == self._room]
        if self._happens(self._noise.random_search):
            # Having walked into a room, even a careless player opens something there more often than not.
            return self._rng.choice(here if here and self._happens(0.7) else list(CONTAINERS))
        usual = {KINDS[KIND_OF[t]].usual for t in self._tasks if t not in self._settled}

        def unlikely(container: str) -> tuple[int, bool, float]:
            likely_room = ROOM_OF[container] in {ROOM_OF[c] for c in usual}
            rank = 0 if container in usual else 1 if likely_room else 2
            if self._first_rooms:
                rank = 0 if ROOM_OF[container] in self._first_rooms else 3 + rank
            return rank, ROOM_OF[container] != self._room, self._rng.random()

        return min(closed, key=unlikely)

    def _make_plan(self, thing: str) -> list[str]:
        """The treatment and delivery to carry out, mistakes included: actions that need a room are preceded by it."""
        errand = self._tasks.get(thing)
        if errand is None:  # taken by mistake: put it away anywhere near
            return [f"put {thing} {self._rng.choice(ROOMS[self._room] or CONTAINERS)}"]
        treatment = errand.treatment
        if treatment and self._happens(self._noise.no_treatment):
            treatment = None
        elif self._happens(self._noise.wrong_treatment):
            habitual = [t for t in KINDS[KIND_OF[thing]].treatments if t != errand.treatment]
            treatment = self._rng.choice(habitual or [t for t in TREATMENTS if t != errand.treatment])
        target = errand.target
        if self._happens(self._noise.wrong_target):
            usual, near = KINDS[KIND_OF[thing]].usual, ROOMS[ROOM_OF[target]]
            target = self._rng.choice([usual, usual, usual, self._rng.choice(near), self._rng.choice(CONTAINERS)])
        plan = [f"{TREATMENTS[treatment].verb} {thing}"] if treatment else []
        return [*plan, f"put {thing} {target}"]

    def _carry_out(self) -> str:
        action = self._plan[0]
        verb, *arguments = action.split()
        rooms = {t.verb: t.room for t in TREATMENTS.values()}
        room = ROOM_OF[arguments[1]] if verb == "put" else rooms[verb]
        if room != self._room:
            return f"go {room}"
        self._plan = self._plan[1:] or self._plan
        return action


def play(house: Variation, max_actions: int, noise: Noise, rng: random.Random, hint: Hint | None = None) -> Attempt:
    """Plays one episode of a variation to its end or to the limit of actions."""
    episode = errands.ErrandsEpisode(house, max_actions)
    player = Demonstrator(house.errands, noise, rng, hint)
    turns = []
    for _ in range(max_actions):
        action = player.act()
        step = episode.step(action)
        player.see(action, step.observation)
        turns.append((action, step.observation))
        if step.done:
            break
    verdict = episode.verdict()
    return Attempt(episode.opening(), tuple(turns), verdict.reward, verdict.success, verdict.feedback)
