"""Works out an expression: exactly if it is rational, or to a number of digits, at given values of its names.

Nothing is left to sympy, whose simplification takes any time at all. Every walk has a budget of work, and numbers of
more than 2^17 bits, factorials beyond 10,000 and exponents beyond 10^9 are refused.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from hdl_jax.domains.math_latex import EULER, IMAGINARY, name_of
from hdl_jax.domains.math_number import BITS
from hdl_jax.domains.math_tree import Expression

Value = Expression | Fraction
Names = Mapping[str, Any]  # values of names: whole numbers, fractions, or numbers of mpmath

_LARGEST_FACTORIAL = 10_000
_LARGEST_EXPONENT = 10**9
_WORK = 50_000  # nodes visited, and more for large numbers
_WORK_AT_POINT = 5_000


class TooLarge(Exception):
    """A value that is not worth its cost."""


class Unknown(Exception):
    """A value that cannot be worked out here, such as an infinite sum's."""


class NotExact(Exception):
    """A value that is not rational, or not seen to be."""


class Undefined(Exception):
    """A division by zero, or the like; or a number that is not real where only real ones are looked for."""


def exactly(value: Value) -> Fraction | None:
    """The value of a rational constant; None for any other. Raises TooLarge, Undefined."""
    if isinstance(value, Fraction):
        return value
    if value.names or value.imaginary:
        return None
    try:
        return _Exact(_WORK).walk(value.tree, {})
    except NotExact:
        return None


def approximately(value: Value, names: Names, digits: int, real: bool) -> Any:
    """The value to about so many digits, as a number of `arithmetic(digits)`.

    Args:
        names: values of its names. real: whether a number that is not real, anywhere in it, counts as undefined.

    Raises:
        TooLarge, Unknown, Undefined: there is none.
    """
    walk = _Numeric(digits, real, _WORK_AT_POINT if names else _WORK)
    if isinstance(value, Fraction):
        return walk.fraction(value)
    try:
        return walk.walk(value.tree, names)
    except NotExact as error:
        raise Unknown from error
    except (ValueError, ZeroDivisionError, OverflowError) as error:  # mpmath's, of poles
        raise Undefined from error


_local = threading.local()


def arithmetic(digits: int) -> Any:
    """mpmath at so many digits. A thread has its own, since mpmath's functions change the precision while they run."""
    import mpmath

    contexts: dict[int, Any] = _local.__dict__.setdefault("contexts", {})
    if digits not in contexts:
        contexts[digits] = mpmath.MPContext()
        contexts[digits].dps = digits
    return contexts[digits]


class _Walk:
    """Goes through a tree from its leaves, within a budget."""

    def __init__(self, work: int) -> None:
        self.work = work

    def spend(self, work: int) -> None:
        self.work -= work
        if self.work < 0:
            raise TooLarge

    def walk(self, node: Any, names: Names) -> Any:
        self.spend(1)
        kind = type(node).__name__
        if kind in ("Sum", "Product"):
            return self.series("Add" if kind == "Sum" else "Mul", node.args[0], node.args[1:], names)
        if kind in ("Add", "Mul"):
            return self.combined(kind, (self.walk(arg, names) for arg in node.args))
        return self.checked(self.value(node, kind, names))

    def value(self, node: Any, kind: str, names: Names) -> Any:
        raise NotImplementedError

    def number(self, value: int) -> Any:
        raise NotImplementedError

    def checked(self, value: Any) -> Any:
        raise NotImplementedError

    def combined(self, kind: str, values: Iterable[Any]) -> Any:
        total = self.number(0 if kind == "Add" else 1)
        for value in values:
            total = self.checked(total + value if kind == "Add" else total * value)
        return total

    def series(self, kind: str, term: Any, limits: Sequence[Any], names: Names) -> Any:
        """A sum or product, term by term; sympy has one inside another as one, with the outermost limits last."""
        if not limits:
            return self.walk(term, names)
        index, lower, upper = limits[-1].args
        first, last = (_Exact(self.work).walk(limit, names) for limit in (lower, upper))
        if first.denominator != 1 or last.denominator != 1:
            raise Undefined
        self.spend(max(0, int(last - first)))
        each = ({**names, name_of(index.name): k} for k in range(int(first), int(last) + 1))
        return self.combined(kind, (self.series(kind, term, limits[:-1], inside) for inside in each))


class _Exact(_Walk):
    def number(self, value: int) -> Fraction:
        return Fraction(value)

    def checked(self, value: Fraction) -> Fraction:
        bits = max(value.numerator.bit_length(), value.denominator.bit_length())
        if bits > BITS:
            raise TooLarge
        self.spend((bits >> 12) ** 2)  # as much as reducing it to lowest terms costs
        return value

    def value(self, node: Any, kind: str, names: Names) -> Fraction:
        if node.is_Rational:
            return Fraction(int(node.p), int(node.q))
        if kind == "Symbol" and isinstance(value := names.get(name_of(node.name)), int | Fraction):
            return Fraction(value)
        if kind not in _EXACT:
            raise NotExact
        return _EXACT[kind](*(self.walk(arg, names) for arg in node.args))


def _power(base: Fraction, exponent: Fraction) -> Fraction:
    if exponent.denominator != 1:
        raise NotExact
    n = exponent.numerator
    if base == 0 and n < 0:
        raise Undefined
    if abs(base) in (0, 1):
        return Fraction(1) if n == 0 or (base and n % 2 == 0) else base
    if (max(base.numerator.bit_length(), base.denominator.bit_length()) - 1) * abs(n) > BITS:
        raise TooLarge
    return base**n


def _factorial(value: Fraction) -> Fraction:
    if value.denominator != 1:
        raise NotExact
    if value < 0:
        raise Undefined
    if value > _LARGEST_FACTORIAL:
        raise TooLarge
    return Fraction(math.factorial(value.numerator))


_EXACT: dict[str, Callable[..., Fraction]] = {
    "Pow": _power,
    "factorial": _factorial,
    "Abs": abs,
    "floor": lambda x: Fraction(math.floor(x)),
    "ceiling": lambda x: Fraction(math.ceil(x)),
}


class _Numeric(_Walk):
    def __init__(self, digits: int, real: bool, work: int):
        super().__init__(work)
        self.mp, self.real, self.digits = arithmetic(digits), real, digits

    def number(self, value: int) -> Any:
        return self.mp.mpf(value)

    def fraction(self, value: Fraction) -> Any:
        return self.mp.mpf(value.numerator) / value.denominator

    def checked(self, value: Any) -> Any:
        if not self.mp.isfinite(value):
            raise Undefined
        if self.mp.im(value) == 0:
            return self.mp.re(value)
        if self.real:
            raise Undefined
        return value

    def value(self, node: Any, kind: str, names: Names) -> Any:
        if node.is_Rational:
            return self.mp.mpf(int(node.p)) / int(node.q)
        if kind == "Symbol":
            return self.symbol(name_of(node.name), names)
        if kind == "Pow":
            base, exponent = (self.walk(arg, names) for arg in node.args)
            return self.power(node.args[1], base, exponent, names)
        if kind == "Pi":
            return +self.mp.pi
        if kind == "log":
            return self.logarithm(self.walk(node.args[0], names))
        return self.function(kind, [self.walk(arg, names) for arg in node.args])

    def symbol(self, name: str, names: Names) -> Any:
        if name == EULER:
            return +self.mp.e
        if name == IMAGINARY:
            return self.mp.mpc(0, 1)
        value = names[name]
        return self.fraction(Fraction(value)) if isinstance(value, int | Fraction) else value

    def logarithm(self, value: Any) -> Any:
        if not value:
            raise Undefined
        return self.mp.ln(value)

    def power(self, node: Any, base: Any, exponent: Any, names: Names) -> Any:
        if not base:
            if self.mp.re(exponent) < 0:
                raise Undefined
            return self.number(0 if exponent else 1)
        if exponent and (self.mp.mag(exponent) > 60 or abs(self.mp.mag(base) * exponent) > _LARGEST_EXPONENT):
            raise TooLarge
        if self.mp.im(base) == 0 and base < 0:
            try:
                exact = _Exact(self.work).walk(node, names)
            except NotExact:
                exact = Fraction(0)
            if exact.denominator % 2 and exact.denominator > 1:  # an odd root of a negative number: the real one
                return (-1) ** exact.numerator * self.mp.power(-base, self.fraction(exact))
        return self.mp.power(base, exponent)

    def function(self, kind: str, values: list[Any]) -> Any:
        if kind in ("floor", "ceiling"):
            return self.rounded(kind, values[0])
        if any(self.mp.mag(value) > (24 if kind in _STEEP else 1000) for value in values if value):
            raise TooLarge
        if kind not in _FUNCTIONS:
            raise Unknown
        return getattr(self.mp, _FUNCTIONS[kind])(*values)

    def rounded(self, kind: str, value: Any) -> Any:
        if self.mp.im(value):
            raise Undefined
        near = self.mp.nint(value)
        if abs(value - near) <= self.mp.mpf(10) ** (-self.digits // 2) * max(1, abs(value)):
            return near  # as log_2 8 is 3 but for its last digit
        return self.mp.floor(value) if kind == "floor" else self.mp.ceil(value)


_STEEP = frozenset(["factorial", "sinh", "cosh", "tanh"])
_FUNCTIONS = {
    **{
        name: name
        for name in ("sin", "cos", "tan", "csc", "sec", "cot", "asin", "acos", "atan", "acsc", "asec", "acot")
    },
    **{name: name for name in ("sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "factorial")},
    "Abs": "fabs",
}
