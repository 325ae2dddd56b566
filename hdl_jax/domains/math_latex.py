r"""Rewrites an expression into LaTeX that math-verify's grammar reads in one way only.

The library (0.9) is told what it would otherwise get wrong: products are written out (it reads `2(3)` as the mixed
number 2 + 3), names become `\variable{...}` (it takes `I` and `\gamma` for constants and `d` for a differential, and
drops the case of letters), decimals become fractions, the arguments of functions get brackets (`\sin x \cdot y` is to
it the sine of a product), binomials become factorials (it works them out while parsing, however large).
"""

from __future__ import annotations

import re
from collections.abc import Collection

from hdl_jax.domains import math_number

DEEPEST = 24  # brackets inside brackets, powers of powers
_MOST_TOKENS = 500
_MOST_EXTREMES = 4  # values that are compared; the text doubles with each
EULER, IMAGINARY = "e", "i"  # names of constants; a sum's index has another name, even if it is written i
_RUNNING = " running"


class Unreadable(ValueError):
    """The text is no expression that is understood; the message says what is in the way."""


class Foreign(Unreadable):
    """The text may make sense, but not as an expression: it has a command, character or word that none has."""


_BRACED = r"[^{}]*(?:\{[^{}]*\}[^{}]*)*"
_TOKEN = re.compile(
    rf"""
    (?P<space>\s+)
  | (?P<number>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+(?![0-9.]*[a-zA-Z({{^\\]))?)
  | (?P<derivative>\\frac\s*\{{\s*(?:d|\\partial){_BRACED}\}}\s*\{{\s*(?:d|\\partial)\s*\\?[a-zA-Z]{_BRACED}\}})
  | (?P<text>\\text\s*\{{(?P<letters>[^{{}}]*)\}})
  | (?P<command>\\(?:[a-zA-Z]+|[{{}}|]))
  | (?P<word>[a-zA-Z]+)
  | (?P<mark>\*\*|[-+*/^_!|(){{}}\[\]',.=])
    """,
    re.X,
)
_INVERSES = {name: f"arc{name}" for name in ("sin", "cos", "tan", "csc", "sec", "cot")}
_INVERSES |= {name: f"ar{name}" for name in ("sinh", "cosh", "tanh")}
_FUNCTIONS = frozenset([*_INVERSES, *_INVERSES.values(), "arcsinh", "arccosh", "arctanh", "ln", "log", "exp"])
_SPELLED = {"asin": "arcsin", "acos": "arccos", "atan": "arctan"}
_WORDS = _FUNCTIONS | {"sqrt", "pi", "max", "min"} | _SPELLED.keys()
ACCENTS = frozenset(
    "dot ddot hat bar overline vec tilde widehat widetilde overrightarrow mathcal mathbb mathfrak mathscr".split()
)
SYMBOLS = frozenset(
    """alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa lambda mu nu xi omicron rho varrho
    sigma varsigma tau upsilon phi varphi chi psi omega Alpha Beta Gamma Delta Epsilon Zeta Eta Theta Iota Kappa Lambda
    Mu Nu Xi Rho Sigma Tau Upsilon Phi Chi Psi Omega hbar ell angle triangle mho nabla odot partial imath jmath aleph wp
    square""".split()
)
# Before brackets, these are functions; other letters are so only where the brackets hold a single thing or a list.
_HEADS = frozenset(["f", "g", "h", "F", "G", "H", "P", "Q", r"\phi", r"\varphi", r"\psi", r"\Phi", r"\Psi"])
_BRACKETS = {"(": ")", "[": "]", "{": "}", r"\{": r"\}"}
_TIMES = (r"\cdot", r"\times", "*")


def rewrite(text: str, log_base: str = "10") -> str:
    r"""The expression for the library.

    Args:
        text: cleaned, without unit, relation or list. log_base: of a `\log` that has none: `10` or `e`.

    Raises:
        Unreadable: it is no expression, or is nested too deeply.
    """
    tokens = _tokens(text)
    if len(tokens) > _MOST_TOKENS:
        raise Unreadable("too long an expression")
    reader = _Rewriter(tokens, log_base)
    try:
        return reader.sequence(())
    except RecursionError as error:  # from commands without braces, which no count of brackets bounds
        raise Unreadable("nested too deeply") from error


def name_of(symbol: str) -> str:
    """The name that a `\\variable` of a rewritten expression stands for."""
    return bytes.fromhex(symbol[1:]).decode()


def is_index(name: str) -> bool:
    """Whether a name is what a sum or product runs over."""
    return name.endswith(_RUNNING)


def _variable(name: str) -> str:
    return rf"\variable{{v{name.encode().hex()}}}"


def _tokens(text: str) -> list[str]:
    found: list[str] = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise Foreign(f"the character {text[position]!r}")
        position = match.end()
        if match.lastgroup in ("word", "text"):
            found += _letters(match["letters"] if match.lastgroup == "text" else match.group())
        elif match.lastgroup == "derivative":
            found.append(re.sub(r"\s", "", match.group()))
        elif match.lastgroup != "space":
            found.append(match.group())
    return found


def _letters(word: str) -> list[str]:
    word = word.strip()
    if word in _WORDS:
        return [f"\\{_SPELLED.get(word, word)}"]
    if not word.isalpha():
        raise Foreign(f"the words {word!r}")
    return list(word)


class _Rewriter:
    """Goes through the tokens once; each method takes those of what it is named after, and returns it rewritten."""

    def __init__(self, tokens: list[str], log_base: str):
        self.tokens, self.at, self.log_base = tokens, 0, log_base
        self.depth, self.indices = 0, frozenset[str]()

    def peek(self, ahead: int = 0) -> str:
        return self.tokens[self.at + ahead] if self.at + ahead < len(self.tokens) else ""

    def take(self, expected: str = "") -> str:
        token = self.peek()
        if not token:
            raise Unreadable("it ends too early")
        if expected and token != expected:
            raise Unreadable(f"{token!r} where {expected!r} should be")
        self.at += 1
        return token

    def raw(self) -> str:
        """The next argument as it is written, without the braces around it."""
        if self.peek() != "{":
            return self.take()
        self.take()
        begin, depth = self.at, 1
        while depth:
            token = self.take()
            depth += (token == "{") - (token == "}")
        return "".join(self.tokens[begin : self.at - 1])

    def sequence(self, stops: Collection[str]) -> str:
        """Sums and products up to one of these tokens, which is left, or to the end."""
        self.depth += 1
        if self.depth > DEEPEST:
            raise Unreadable("nested too deeply")
        out: list[str] = []
        complete = False
        # A bar that follows no operand opens, like that of |x| + ||y| - 1|.
        while (token := self.peek()) and not (token in stops and (complete or token != "|")):
            if token in ("+", "-"):
                out.append(self.take())
                complete = False
            elif complete and (token in _TIMES or token == "/"):
                self.take()
                out.append("/" if token == "/" else r"\cdot ")
                complete = False
            elif complete and token in (r"\over", r"\choose"):
                self.take()
                out, below = ["".join(out)], self.sequence(stops)
                out = [rf"\frac{{{out[0]}}}{{{below}}}" if token == r"\over" else _binomial(out[0], below)]
            elif complete and _is_number(token) and _is_number(self.tokens[self.at - 1]):
                raise Unreadable("two numbers side by side")
            else:
                out += [r"\cdot "] * complete + [self.factor()]
                complete = True
        self.depth -= 1
        if not complete:
            raise Unreadable("an operator with nothing after it" if out else "nothing where an expression should be")
        return "".join(out)

    def group(self, closing: str) -> str:
        inside = self.sequence((closing,))
        if closing == "|" and not self.peek():
            raise Foreign("a bar by itself")
        self.take(closing)
        return inside

    def factor(self) -> str:
        """One value with its powers, factorials and degree signs."""
        out = self.value()
        for _ in range(DEEPEST):
            token = self.peek()
            if token == r"\degree":
                self.take()
                out = rf"({out}\cdot \frac{{\pi}}{{180}})"
            elif token in ("^", "**"):
                self.take()
                out = f"{out}^{{{self.argument(whole=True)}}}"
            elif token == "!":
                self.take()
                if self.peek() == "!":
                    raise Foreign("a double factorial")
                out = f"({out}!)"
            else:
                return out
        raise Unreadable("nested too deeply")

    def value(self) -> str:
        token = self.take()
        if _is_number(token):
            return self.mixed(token)
        if token in _BRACKETS:
            return f"({self.group(_BRACKETS[token])})"
        if token == "|":
            return rf"\lvert {self.group('|')}\rvert "
        if token in (r"\lfloor", r"\lceil"):
            closing = token.replace("l", "r", 1)
            return rf"{token} {self.group(closing)}{closing} "
        if token.isalpha():
            return self.name(token)
        if token.startswith("\\"):
            return self.command(token)
        raise Unreadable(f"a stray {token!r}")

    def argument(self, whole: bool = False) -> str:
        """What a command applies to: a group or the next token. Of a number that is one digit, unless it is `whole`."""
        token = self.peek()
        if token == "{":
            self.take()
            return self.group("}")
        if whole and token in ("+", "-"):
            return self.take() + self.argument(whole)
        if token[:1].isdigit():
            if whole or len(token) == 1:
                return _number(self.take())
            self.tokens[self.at] = token[1:]
            return token[0]
        return self.value()

    def mixed(self, token: str) -> str:
        r"""A number, and what `\frac{1}{2}` after a whole one adds to it."""
        if self.peek() == "_":
            raise Foreign("a number in another base")
        following = "".join(self.tokens[self.at : self.at + 7])
        if token.isdigit() and re.match(r"\\frac(?:\{[0-9]+\}|[0-9])(?:\{[0-9]+\}|[0-9])", following):
            self.take()
            above, below = self.argument(), self.argument()
            return rf"({_number(token)}+\frac{{{above}}}{{{below}}})"
        return _number(token)

    def name(self, letter: str) -> str:
        r"""A variable with subscripts, primes and arguments: `x`, `C_{1}`, `f'(x)`, `I(0)`."""
        name = letter
        while self.peek() in ("_", "'") or (self.peek() == "^" and self.primes()):
            name += f"_{self.raw()}" if self.take() == "_" else "'"
        inside = self.inside() if name not in (EULER, IMAGINARY) else []
        single = len(inside) == 1 or (len(inside) > 2 and inside[1] == "_" and "+" not in inside and "-" not in inside)
        if inside and (letter in _HEADS or "'" in name or single or "," in inside):
            self.at += len(inside) + 2
            return _variable(f"{name}({''.join(inside)})")
        return _variable(name + _RUNNING if name in self.indices else name)

    def primes(self) -> bool:
        r"""Turns a `^{\prime\prime}` that follows into the tokens `''`."""
        begin = self.at + 1 + (self.peek(1) == "{")
        end = begin
        while self.tokens[end : end + 1] == [r"\prime"]:
            end += 1
        braced = begin > self.at + 1
        if end == begin or (braced and self.tokens[end : end + 1] != ["}"]):
            return False
        self.tokens[self.at : end + braced] = ["'"] * (end - begin)
        return True

    def inside(self) -> list[str]:
        """The tokens inside the round brackets that follow; empty if there are none."""
        depth = 0
        for i in range(self.at, len(self.tokens) if self.peek() == "(" else self.at):
            depth += (self.tokens[i] == "(") - (self.tokens[i] == ")")
            if depth == 0:
                return self.tokens[self.at + 1 : i]
        return []

    def command(self, token: str) -> str:
        name = token[1:]
        if name.startswith("frac{"):
            return _variable(token)  # a derivative
        if name == "frac":
            above, below = self.argument(), self.argument()
            return rf"\frac{{{above}}}{{{below}}}"
        if name == "sqrt":
            return self.root()
        if name == "binom":
            n, k = self.argument(), self.argument()
            return _binomial(n, k)
        if name == "Gamma" and self.peek() == "(":
            self.take()
            return f"(({self.group(')')}-1)!)"
        if name in _FUNCTIONS:
            return self.function(name)
        if name in ("max", "min"):
            return self.extreme(name)
        if name in ("sum", "prod"):
            return self.series(name)
        if name in ("pi", "infty") and self.peek() != "_":
            return rf"\{name} "
        if name in ACCENTS:
            return self.name(f"{token}{{{self.raw()}}}")
        if name in SYMBOLS or name == "pi":
            return self.name(token)
        raise Foreign(f"the command {token}")

    def root(self) -> str:
        degree = ""
        if self.peek() == "[":
            self.take()
            degree = self.group("]")
        inside = self.group(")") if self.peek() == "(" and self.take() else self.argument(whole=True)
        # The library would work out 1 / degree.
        return rf"({inside})^{{\frac{{1}}{{{degree}}}}}" if degree else rf"\sqrt{{{inside}}}"

    def function(self, name: str) -> str:
        power = base = ""
        while self.peek() in ("^", "**", "_"):
            if self.take() == "_":
                base = self.argument(whole=True)
            else:
                power = self.argument(whole=True)
        if base and name != "log":
            raise Unreadable(rf"a subscript of \{name}")
        if power == "-1" and name in _INVERSES:
            name, power = _INVERSES[name], ""
        bracket = _BRACKETS.get(self.peek())
        inside = self.group(bracket) if bracket and self.take() else self.bare_argument()
        if name == "exp":
            out = f"{_variable(EULER)}^{{{inside}}}"
        elif name == "log":
            base = base or (_variable(EULER) if self.log_base == EULER else self.log_base)
            out = rf"\frac{{\ln({inside})}}{{\ln({base})}}"
        else:
            out = rf"\{name}({inside})"
        return f"({out})^{{{power}}}" if power else f"({out})"

    def bare_argument(self) -> str:
        r"""The factors after a function without brackets, up to a sign, a bracket or another function."""
        out = [self.take()] if self.peek() in ("+", "-") else []
        out.append(self.factor())
        while (token := self.peek()) and (
            token.isalnum() or token in (r"\frac", r"\sqrt", r"\pi") or token[1:] in SYMBOLS
        ):
            out += [r"\cdot ", self.factor()]
        return "".join(out)

    def extreme(self, name: str) -> str:
        r"""`\max` or `\min`, by sums and differences: the library reads their arguments by its slow way in."""
        closing = _BRACKETS.get(self.take())
        if closing is None:
            raise Unreadable(rf"a \{name} without brackets")
        parts = [self.sequence((",", closing))]
        while self.take() == ",":
            parts.append(self.sequence((",", closing)))
        if len(parts) > _MOST_EXTREMES:
            raise Foreign(rf"a \{name} of {len(parts)} values")
        sign, out = "+" if name == "max" else "-", parts[0]
        for part in parts[1:]:
            out = rf"\frac{{({out})+({part}){sign}\lvert ({out})-({part})\rvert }}{{2}}"
        return f"({out})"

    def series(self, name: str) -> str:
        r"""`\sum_{k=1}^{n}` or `\prod`, over the factors up to the next sign."""
        lower = upper = letter = ""
        while self.peek() in ("_", "^"):
            if self.take() == "_":
                self.take("{")
                letter = self.take()
                self.take("=")
                lower = self.group("}")
            else:
                upper = self.argument(whole=True)
        if not letter.isalpha() or not upper:
            raise Foreign(rf"a \{name} without limits")
        outer, self.indices = self.indices, self.indices | {letter}
        out = [self.factor()]
        while (token := self.peek()) and token not in ("+", "-", ",", "|", *_BRACKETS.values(), r"\rfloor", r"\rceil"):
            operator = "/" if token == "/" else r"\cdot "
            if token in _TIMES or token == "/":
                self.take()
            out += [operator, self.factor()]
        self.indices = outer
        return rf"(\{name}_{{{_variable(letter + _RUNNING)}={lower}}}^{{{upper}}} ({''.join(out)}))"


def _is_number(token: str) -> bool:
    return token[0].isdigit() or token[0] == "."


def _binomial(n: str, k: str) -> str:
    return rf"\frac{{({n})!}}{{({k})!\cdot (({n})-({k}))!}}"


def _number(token: str) -> str:
    """Exact: `0.5` is a fraction, `5e-3` a product with a power of ten, and leading zeros go."""
    mantissa, _, exponent = re.sub("E", "e", token).partition("e")
    value = math_number.read(mantissa)
    if value is None:
        raise Unreadable(f"the number {token[:20]!r}")
    out = str(value) if value.denominator == 1 else rf"\frac{{{value.numerator}}}{{{value.denominator}}}"
    return rf"({out}\cdot 10^{{{int(exponent[:9])}}})" if exponent else out
