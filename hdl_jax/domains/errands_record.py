"""Reads the record of an errands episode: what became of each errand, told as a reflection and as retry points.

Works on the texts alone, so that an attempt of any player can be read. It is the truth that the warm start teaches the
small policy to tell; in training the policy writes its own.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence

from hdl_jax.domains.errands import ROOMS, TREATMENTS, Errand, parse
from hdl_jax.domains.errands_teacher import Attempt, Hint

_RUINS = {entry.ruin: name for name, entry in TREATMENTS.items()}


@dataclasses.dataclass
class Fate:
    """What the record says about one errand.

    Attributes:
        errand: the errand.
        seat: the container it was seen in, None if it never was.
        taken, treated, delivered: whether it got so far; treated means in the way the errand asks.
        ruined_by: the treatment that ruined it.
        put: the container it was put into.
    """

    errand: Errand
    seat: str | None = None
    taken: bool = False
    treated: bool = False
    ruined_by: str | None = None
    put: str | None = None

    @property
    def delivered(self) -> bool:
        """Whether it was put in the right place in the right state."""
        return self.put == self.errand.target and (self.treated or not self.errand.treatment)

    @property
    def hopeless(self) -> bool:
        """Whether it can no longer be delivered."""
        return self.ruined_by is not None or (self.put is not None and not self.delivered)


@dataclasses.dataclass
class Account:
    """What a record says: the fate of each errand, what was opened, and which steps (from 1) went wrong or mattered.

    Attributes:
        fates: one per errand, in the order of the task.
        opened: containers opened.
        quit: whether the player said `done` before both errands were settled.
        fatal: steps that cannot be undone and were wrong.
        wasted: steps that were impossible or told nothing new.
        telling: steps that found, took, treated or delivered something rightly.
    """

    fates: list[Fate]
    opened: set[str] = dataclasses.field(default_factory=set)
    quit: bool = False
    fatal: list[int] = dataclasses.field(default_factory=list)
    wasted: list[int] = dataclasses.field(default_factory=list)
    telling: list[int] = dataclasses.field(default_factory=list)


def read(tasks: Sequence[Errand], turns: Sequence[tuple[str, str]]) -> Account:
    """Reads (action, observation) turns into an account."""
    account = Account([Fate(errand) for errand in tasks])
    fates = {fate.errand.thing: fate for fate in account.fates}
    for number, (action, observation) in enumerate(turns, 1):
        command = parse(action)
        if command is None or observation == "cannot" or command.verb == "look":
            account.wasted.append(number)
            continue
        fate = fates.get(command.arguments[0]) if command.arguments else None
        if command.verb == "done":
            account.quit = True
            account.fatal.append(number)
        elif command.verb == "open":
            container, *things = observation.replace(":", " ").split()
            new = [fates[t] for t in things if t in fates and not fates[t].seat]
            for found in new:
                found.seat = container
            (account.wasted if container in account.opened else account.telling if new else []).append(number)
            account.opened.add(container)
        elif fate is None:
            if command.verb != "go":
                account.wasted.append(number)
        elif command.verb == "take":
            fate.taken = True
            account.telling.append(number)
        elif command.verb == "put":
            fate.put = command.arguments[1]
            (account.telling if fate.delivered else account.fatal).append(number)
        else:
            state = observation.split()[0]
            fate.treated = state == fate.errand.treatment
            fate.ruined_by = _RUINS.get(state)
            (account.telling if fate.treated else account.fatal).append(number)
    return account


def _unsearched_rooms(account: Account) -> tuple[str, ...]:
    """At most three rooms of which little was opened."""
    closed = {room: [c for c in inside if c not in account.opened] for room, inside in ROOMS.items()}
    return tuple(sorted((r for r in closed if closed[r]), key=lambda r: -len(closed[r]) / len(ROOMS[r]))[:3])


def _tell(fate: Fate, account: Account) -> str:
    thing, errand = fate.errand.thing, fate.errand
    if fate.seat is None:
        return f"{thing} not found , search {' '.join(_unsearched_rooms(account)) or 'again'}"
    told = f"{thing} was in {fate.seat}"
    if fate.delivered:
        return f"{told} , done right"
    verb = TREATMENTS[errand.treatment].verb if errand.treatment else ""
    if fate.ruined_by:
        wrong = TREATMENTS[fate.ruined_by].verb
        return f"{told} , {wrong} was wrong , {verb or 'do not ' + wrong} it and put in {errand.target}"
    if fate.put:
        told += " , wrong" if fate.put != errand.target else ""
        told += f" , not {errand.treatment}" if errand.treatment and not fate.treated else ""
    else:
        told += " , not put" if fate.taken else " , not taken"
    return f"{told} , {verb + ' it and ' if errand.treatment else ''}put in {errand.target}"


def reflect(tasks: Sequence[Errand], attempt: Attempt) -> str:
    """The reflection on an attempt, in its two fields: where things were, what went wrong and what is right instead."""
    account = read(tasks, attempt.turns)
    clauses = [_tell(fate, account) for fate in account.fates]
    if account.quit:
        clauses.append("done too early")
    elif not attempt.success and not all(fate.hopeless or fate.delivered for fate in account.fates):
        clauses.append("too slow")
    outcome = "SUCCESS" if attempt.success else "FAILURE"
    return f"OUTCOME: {outcome}\nSUMMARY: {' . '.join(clauses)}"


def hint(tasks: Sequence[Errand], attempt: Attempt) -> Hint:
    """What the reflection on the attempt tells the next player."""
    account = read(tasks, attempt.turns)
    missing = any(fate.seat is None for fate in account.fates)
    return Hint(
        {fate.errand.thing: fate.seat for fate in account.fates if fate.seat},
        _unsearched_rooms(account) if missing else (),
    )


def retry_points(tasks: Sequence[Errand], attempt: Attempt, rng: random.Random) -> str:
    """Two steps to retry from, as `STEP: n` and `STEP2: n`; empty where the attempt has only one step.

    Of a failed attempt the earliest wrong step and another one, of a successful one two steps that decided something.
    """
    account = read(tasks, attempt.turns)
    steps = list(range(1, len(attempt.turns) + 1))
    first = account.telling if attempt.success else account.fatal or account.wasted
    ranked = sorted(first) + sorted(account.wasted if account.fatal and not attempt.success else [])
    rng.shuffle(steps)
    chosen = list(dict.fromkeys([*ranked, *account.telling, *steps]))[:2]
    return f"STEP: {chosen[0]}\nSTEP2: {chosen[1]}" if len(chosen) == 2 else ""
