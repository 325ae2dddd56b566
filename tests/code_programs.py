"""Right programs for published problems, by the problems' names, and changes that make each of them wrong.

Each change is `(what the program has, what it has instead)`.
"""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Solved:
    """A right program, and what to change in it for wrong ones."""

    program: str
    changes: tuple[tuple[str, str], ...]

    def mutants(self) -> list[str]:
        """A wrong program for each change."""
        for old, _ in self.changes:
            assert self.program.count(old) == 1, old
        return [self.program.replace(old, new) for old, new in self.changes]


CODE_CONTESTS = {
    "digjump": Solved(
        """
from collections import deque

digits = input().strip()
places = {}
for place, digit in enumerate(digits):
    places.setdefault(digit, []).append(place)
jumps = {0: 0}
queue = deque([0])
while queue:
    here = queue.popleft()
    for there in [here - 1, here + 1] + places.pop(digits[here], []):
        if 0 <= there < len(digits) and there not in jumps:
            jumps[there] = jumps[here] + 1
            queue.append(there)
print(jumps[len(digits) - 1])
""",
        (("+ places.pop(digits[here], [])", ""), ("jumps[here] + 1", "jumps[here] + 2")),
    ),
    "1000_A. Codehorses T-shirts": Solved(
        """
from collections import Counter

n = int(input())
before = Counter(input() for _ in range(n))
after = Counter(input() for _ in range(n))
print(sum((before - after).values()))
""",
        (("(before - after)", "(before & after)"), ("sum((before - after).values())", "len(before - after)")),
    ),
    "1068_D. Array Without Local Maximums ": Solved(
        """
from itertools import accumulate

MOD, TOP = 998244353, 200
n = int(input())
first, *others = map(int, input().split())


def allowed(a):
    return range(1, TOP + 1) if a == -1 else [a]


# ways, by the last element: it is greater than the one before it, or it is not
more, other = [0] * (TOP + 1), [0] * (TOP + 1)
for value in allowed(first):
    more[value] = 1
for a in others:
    below = [0, *accumulate(x + y for x, y in zip(more, other))]
    above = [0, *accumulate(other)]
    now_more, now_other = [0] * (TOP + 1), [0] * (TOP + 1)
    for value in allowed(a):
        now_more[value] = below[value] % MOD
        now_other[value] = (more[value] + other[value] + above[-1] - above[value + 1]) % MOD
    more, other = now_more, now_other
print(sum(other) % MOD)
""",
        (("MOD, TOP = 998244353, 200", "MOD, TOP = 998244353, 199"), ("above[-1] - above[value + 1]", "above[-1]")),
    ),
    "1109_F. Sasha and Algorithm of Silence's Sounds": Solved(
        """
import sys

rows, columns, *park = map(int, sys.stdin.read().split())
cells = {level: divmod(place, columns) for place, level in enumerate(park[: rows * columns])}
levels = {cell: level for level, cell in cells.items()}


def root(parents, level):
    while parents[level] != level:
        level = parents[level]
    return level


pleasant = 0
for low in range(1, rows * columns + 1):
    parents, trees = {}, 0
    for high in range(low, rows * columns + 1):
        row, column = cells[high]
        beside = [levels.get(c) for c in ((row - 1, column), (row + 1, column), (row, column - 1), (row, column + 1))]
        roots = [root(parents, level) for level in beside if level in parents]
        if len(set(roots)) < len(roots):
            break
        parents[high] = high
        for other in roots:
            parents[other] = high
        trees += 1 - len(roots)
        pleasant += trees == 1
print(pleasant)
""",
        (("            break", "            continue"), ("pleasant += trees == 1", "pleasant += 1")),
    ),
    "1139_C. Edgy Trees": Solved(
        """
import sys

data = list(map(int, sys.stdin.read().split()))
n, k = data[:2]
parents = list(range(n + 1))


def root(node):
    while parents[node] != node:
        parents[node] = parents[parents[node]]
        node = parents[node]
    return node


for u, v, black in zip(data[2::3], data[3::3], data[4::3]):
    if not black:
        parents[root(u)] = root(v)
sizes = [0] * (n + 1)
for node in range(1, n + 1):
    sizes[root(node)] += 1
mod = 10**9 + 7
print((pow(n, k, mod) - sum(pow(size, k, mod) for size in sizes)) % mod)
""",
        (
            ("10**9 + 7", "10**9 + 9"),
            ("if not black", "if black"),
            ("- sum(pow(size, k, mod)", "- sum(pow(size, 2, mod)"),
        ),
    ),
    "1198_A. MP3": Solved(
        """
from itertools import accumulate

n, size = map(int, input().split())
values = list(map(int, input().split()))
counts = {}
for value in sorted(values):
    counts[value] = counts.get(value, 0) + 1
kept = min(2 ** min(8 * size // n, 20), len(counts))
sums = [0, *accumulate(counts.values())]
print(n - max(high - low for low, high in zip(sums, sums[kept:])))
""",
        (("8 * size // n", "-(-8 * size // n)"), ("in sorted(values)", "in values")),
    ),
    "1238_B. Kill 'Em All": Solved(
        """
for _ in range(int(input())):
    n, r = map(int, input().split())
    places = sorted(set(map(int, input().split())), reverse=True)
    print(sum(place > shots * r for shots, place in enumerate(places)))
""",
        (("set(map(int, input().split()))", "map(int, input().split())"), ("place > shots", "place >= shots")),
    ),
    "12_B. Correct Solution?": Solved(
        """
number, answer = input().strip(), input().strip()
digits = sorted(number)
for place, digit in enumerate(digits):
    if digit != "0":
        digits[0], digits[place] = digit, digits[0]
        break
print("OK" if "".join(digits) == answer else "WRONG_ANSWER")
""",
        (("        break\n", ""), ('"".join(digits) == answer', 'int("".join(digits)) == int(answer)')),
    ),
    "1323_D. Present": Solved(
        """
input()
numbers = list(map(int, input().split()))
answer = 0
for bit in range(25):
    # a pair's sum has the bit when it is in [2^bit, 2^(bit + 1)) or at least 3 * 2^bit, modulo 2^(bit + 1)
    half = 1 << bit
    rests = sorted(number % (2 * half) for number in numbers)
    pairs = 0
    for begin, end in ((half, 2 * half), (3 * half, 4 * half)):
        for bound, sign in ((end, 1), (begin, -1)):
            low, high = 0, len(rests) - 1
            while low < high:
                if rests[low] + rests[high] < bound:
                    pairs += sign * (high - low)
                    low += 1
                else:
                    high -= 1
    answer |= pairs % 2 << bit
print(answer)
""",
        (("range(25)", "range(3)"), ("< bound", "<= bound"), ("(3 * half, 4 * half)", "(3 * half, 3 * half)")),
    ),
    "1342_C. Yet Another Counting Problem": Solved(
        """
from itertools import accumulate

for _ in range(int(input())):
    a, b, queries = map(int, input().split())
    period = a * b
    counts = [0, *accumulate((x % a) % b != (x % b) % a for x in range(period))]

    def below(x):
        return x // period * counts[period] + counts[x % period]

    answers = []
    for _ in range(queries):
        low, high = map(int, input().split())
        answers.append(below(high + 1) - below(low))
    print(*answers)
""",
        (("below(high + 1)", "below(high)"), ("counts[x % period]", "counts[0]")),
    ),
}
LIVECODEBENCH = {
    "codeforces/1873_A": Solved(
        """
for _ in range(int(input())):
    row = input().strip()
    print("YES" if sum(x != y for x, y in zip(row, "abc")) <= 2 else "NO")
""",
        (("<= 2", "<= 3"), ("<= 2", "< 2"), ('"YES"', '"NO"')),
    ),
    "leetcode/2727": Solved(
        """
class Solution:
    def countSeniors(self, details: List[str]) -> int:
        return sum(int(detail[11:13]) > 60 for detail in details)
""",
        (("> 60", ">= 60"), ("[11:13]", "[12:14]"), ("return sum", "print")),
    ),
    "atcoder/abc301_a": Solved(
        """
n, games = int(input()), input()
wins = {"T": 0, "A": 0}
for winner in games:
    wins[winner] += 1
    if wins[winner] * 2 >= n:
        break
print(winner)
""",
        (("        break", "        pass"), (">= n", ">= n + 1")),
    ),
}
