"""Errands: a small deterministic text game of our own, played the way ScienceWorld is.

A house of six rooms, all reachable from each other. Every room but the hall has closed containers, and eighteen objects
lie in them. The task names two errands, such as `clean shirt to chest . pen to crate`: find the object, treat it
if a word before it says so (`clean` is washed in the bath, `hot` is heated in the kitchen), put it where it should go.
Only what is opened is seen, one object is carried at a time, and three things cannot be undone: what is put down stays
there, a treatment nobody asked for ruins the object, and `done` ends the episode.

Where things are follows habits that hold in every house: each kind of object has a container where most of it lies.
"""

from __future__ import annotations

import dataclasses
import functools
import random
import re
from collections.abc import Sequence

from hdl_jax.domains.domain import Problem, Step, Verdict

ROOMS: dict[str, tuple[str, ...]] = {
    "hall": (),
    "kitchen": ("fridge", "cupboard", "drawer"),
    "bath": ("cabinet", "basket"),
    "study": ("desk", "shelf"),
    "bedroom": ("wardrobe", "chest", "trunk"),
    "shed": ("toolbox", "crate"),
}
ROOM_OF: dict[str, str] = {container: room for room, containers in ROOMS.items() for container in containers}
CONTAINERS: tuple[str, ...] = tuple(ROOM_OF)


@dataclasses.dataclass(frozen=True)
class Kind:
    """Objects that share a usual container and the treatments an errand may ask of them."""

    usual: str
    treatments: tuple[str, ...]
    objects: tuple[str, ...]


KINDS: dict[str, Kind] = {
    "clothes": Kind("wardrobe", ("clean",), ("shirt", "sock", "scarf", "hat")),
    "food": Kind("fridge", ("clean", "hot"), ("bread", "apple", "soup", "egg")),
    "tools": Kind("toolbox", ("clean",), ("hammer", "saw", "drill")),
    "papers": Kind("desk", (), ("pen", "book", "stamp", "map")),
    "toiletries": Kind("cabinet", ("clean", "hot"), ("towel", "soap", "comb")),
}
KIND_OF: dict[str, str] = {thing: kind for kind, entry in KINDS.items() for thing in entry.objects}
OBJECTS: tuple[str, ...] = tuple(KIND_OF)


@dataclasses.dataclass(frozen=True)
class Treatment:
    """The verb that does it, the room it is done in, and what becomes of an object that should not have had it."""

    verb: str
    room: str
    ruin: str


TREATMENTS: dict[str, Treatment] = {
    "clean": Treatment("wash", "bath", "soaked"),
    "hot": Treatment("heat", "kitchen", "burnt"),
}
_TREATMENT_OF_VERB = {entry.verb: name for name, entry in TREATMENTS.items()}

FILLERS: tuple[str, ...] = ("ok", "now", "so", "well", "then", "next", "right", "hm")
_VERBS = {"go": 1, "open": 1, "take": 1, "grab": 1, "get": 1, "wash": 1, "heat": 1, "put": 2, "done": 0, "look": 0}
_SAME_VERB = {"grab": "take", "get": "take"}
VERBS: tuple[str, ...] = tuple(_VERBS)

_USUAL_SHARE, _SAME_ROOM_SHARE = 0.65, 0.20
_TREATED_SHARE = 0.6
# Points of 50 an errand, in the order in which the sub-goals have to be reached.
_POINTS = {"found": 10, "taken": 10, "delivered": 30}
_POINTS_TREATED = {"found": 8, "taken": 7, "treated": 10, "delivered": 25}

_SIZES = {"train": 4000, "validation": 500, "test": 1000}


@dataclasses.dataclass(frozen=True)
class Errand:
    """One errand: the object, the treatment it needs (a key of TREATMENTS) or None, the container it goes to."""

    thing: str
    treatment: str | None
    target: str

    def __str__(self) -> str:
        words = [self.thing, "to", self.target]
        return " ".join([self.treatment, *words] if self.treatment else words)


@dataclasses.dataclass(frozen=True)
class Variation:
    """A task in a house: two errands on different objects, and the container each object lies in at the start."""

    errands: tuple[Errand, Errand]
    homes: dict[str, str]


def _home(thing: str, rng: random.Random) -> str:
    usual = KINDS[KIND_OF[thing]].usual
    draw = rng.random()
    if draw < _USUAL_SHARE:
        return usual
    if draw < _USUAL_SHARE + _SAME_ROOM_SHARE:
        return rng.choice([c for c in ROOMS[ROOM_OF[usual]] if c != usual])
    return rng.choice(CONTAINERS)


@functools.lru_cache(maxsize=8192)
def variation(split: str, index: int) -> Variation:
    """Builds variation `index` of a split. The seed is the pair itself, so no two splits share one."""
    rng = random.Random(f"errands/{split}/{index}")
    homes = {thing: _home(thing, rng) for thing in OBJECTS}
    errands = []
    for thing in rng.sample(OBJECTS, 2):
        possible = KINDS[KIND_OF[thing]].treatments
        treatment = rng.choice(possible) if possible and rng.random() < _TREATED_SHARE else None
        errands.append(Errand(thing, treatment, rng.choice([c for c in CONTAINERS if c != homes[thing]])))
    return Variation((errands[0], errands[1]), homes)


@dataclasses.dataclass(frozen=True)
class Command:
    """A parsed action: the verb (synonyms folded) and its arguments."""

    verb: str
    arguments: tuple[str, ...]


def parse(action: str) -> Command | None:
    """Reads an action, dropping one filler word before it. None if the verb is unknown or misses words."""
    words = action.split()
    if words and words[0] in FILLERS:
        words = words[1:]
    if not words or _VERBS.get(words[0]) != len(words) - 1:
        return None
    return Command(_SAME_VERB.get(words[0], words[0]), tuple(words[1:]))


class ErrandsEpisode:
    """One play of one variation; see the module's docstring for the rules."""

    def __init__(self, variation: Variation, max_actions: int):
        self._errands = {errand.thing: errand for errand in variation.errands}
        self._place = dict(variation.homes)  # an object that is carried or gone has no place
        self._room = "hall"
        self._opened: set[str] = set()
        self._held: str | None = None
        self._treated: set[str] = set()
        self._settled: set[str] = set()
        self._reached: dict[str, set[str]] = {thing: set() for thing in self._errands}
        self._actions_left = max_actions
        self._over = False

    def opening(self) -> str:
        """The two errands and where the player stands."""
        return " . ".join(str(errand) for errand in self._errands.values()) + " . hall"

    def step(self, action: str) -> Step:
        """Takes one action; `cannot` for one that is not understood or not possible, `over` after the end."""
        if self._over or self._actions_left == 0:
            return Step("over", True)
        self._actions_left -= 1
        command = parse(action)
        if command is None:
            return Step("cannot", False)
        observation = getattr(self, f"_{command.verb}")(*command.arguments) or "cannot"
        self._over = self._over or len(self._settled) == len(self._errands)
        return Step(observation, self._over)

    def verdict(self) -> Verdict:
        """Points of the sub-goals reached, as a share; success when all were."""
        points, subgoals = 0, []
        for thing, errand in self._errands.items():
            kept = True
            for name, worth in (_POINTS_TREATED if errand.treatment else _POINTS).items():
                kept = kept and name in self._reached[thing]
                points += worth * kept
                subgoals.append((f"{name} {thing}", kept))
        success = all(reached for _, reached in subgoals)
        return Verdict(
            points / 100, success, f"score {points} . {'completed' if success else 'not completed'}", tuple(subgoals)
        )

    # The actions: each returns the observation, or None when it is not possible now.

    def _go(self, room: str) -> str | None:
        if room not in ROOMS:
            return None
        self._room = room
        return self._look()

    def _look(self) -> str:
        return " ".join(ROOMS[self._room]) or "nothing"

    def _open(self, container: str) -> str | None:
        if container not in ROOMS[self._room]:
            return None
        self._opened.add(container)
        inside = [thing for thing in OBJECTS if self._place.get(thing) == container]
        for thing in inside:
            self._reach(thing, "found")
        return f"{container} : {' '.join(inside) or 'nothing'}"

    def _take(self, thing: str) -> str | None:
        container = self._place.get(thing)
        if self._held or container not in self._opened or container not in ROOMS[self._room]:
            return None
        self._held = thing
        del self._place[thing]
        self._reach(thing, "taken")
        return f"have {thing}"

    def _wash(self, thing: str) -> str | None:
        return self._treat(thing, "clean")

    def _heat(self, thing: str) -> str | None:
        return self._treat(thing, "hot")

    def _treat(self, thing: str, treatment: str) -> str | None:
        if thing != self._held or self._room != TREATMENTS[treatment].room or thing in self._treated:
            return None
        errand = self._errands.get(thing)
        if errand is None or errand.treatment != treatment:
            self._held = None
            self._settle(thing)
            return f"{TREATMENTS[treatment].ruin} {thing}"
        self._treated.add(thing)
        self._reach(thing, "treated")
        return f"{treatment} {thing}"

    def _put(self, thing: str, container: str) -> str | None:
        if thing != self._held or container not in ROOMS[self._room]:
            return None
        self._held = None
        errand = self._errands.get(thing)
        if errand and errand.target == container and (errand.treatment is None or thing in self._treated):
            self._reach(thing, "delivered")
        self._settle(thing)
        return f"{thing} in {container}"

    def _done(self) -> str:
        self._over = True
        return "over"

    def _reach(self, thing: str, name: str) -> None:
        if thing in self._errands:
            self._reached[thing].add(name)

    def _settle(self, thing: str) -> None:
        if thing in self._errands:
            self._settled.add(thing)


class Errands:
    """The domain: 4000 train, 500 validation and 1000 test variations."""

    name = "errands"
    max_actions = 24

    def problems(self, split: str) -> Sequence[Problem]:
        """All problems of a split, in index order. Raises ValueError for an unknown split, naming the known ones."""
        if split not in _SIZES:
            raise ValueError(f"errands has no split {split!r}; it has {', '.join(_SIZES)}")
        return [Problem(f"errands/{split}/{index}", index, split) for index in range(_SIZES[split])]

    def start(self, problem: Problem) -> ErrandsEpisode:
        """A fresh episode of the problem. Raises ValueError for a problem that is in no split."""
        if not 0 <= problem.index < _SIZES.get(problem.split, 0):
            raise ValueError(f"errands has no problem {problem.index} in split {problem.split!r}")
        return ErrandsEpisode(variation(problem.split, problem.index), self.max_actions)

    def token_class(self, action: str) -> list[tuple[int, int, str]]:
        """Spans of one filler word, of the verb after it and of every word after that; an unknown verb has no class."""
        words = [(match.start(), match.end(), match.group()) for match in re.finditer(r"\S+", action)]
        spans = []
        if words and words[0][2] in FILLERS:
            start, end, _ = words.pop(0)
            spans.append((start, end, "filler"))
        if words and words[0][2] in _VERBS:
            spans.append((words[0][0], words[0][1], "verb"))
        return spans + [(start, end, "argument") for start, end, _ in words[1:]]
