"""Expressions as sympy trees, by math-verify's grammar, with nothing in them worked out."""

from __future__ import annotations

import dataclasses
import functools
import logging
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from hdl_jax.domains import math_latex, math_number
from hdl_jax.domains.math_latex import EULER, IMAGINARY, Unreadable


@dataclasses.dataclass(frozen=True)
class Expression:
    """A tree with the names in it.

    Attributes:
        tree: of sympy. Names are symbols, and so are e and i.
        names: without e and i.
        whole: whether it is about whole numbers: has names in factorials, sums, (-1)^n, or n/2 rounded.
        imaginary: whether i is in it. endless: whether infinity is, as in infinite sums.
    """

    tree: Any
    names: frozenset[str]
    whole: bool
    imaginary: bool
    endless: bool


@functools.cache
def library() -> tuple[Any, Any]:
    """The modules math_verify and latex2sympy2. Raises ImportError, naming the extra, where they are not installed."""
    try:
        import math_verify
        from latex2sympy2_extended import latex2sympy2
    except ImportError as error:
        raise ImportError("comparing maths answers needs math-verify: pip install 'hdl_jax[math]'") from error
    logging.getLogger("math_verify").setLevel(logging.CRITICAL)  # it warns of every call without its own time limit
    return math_verify, latex2sympy2


@functools.lru_cache(maxsize=256)
def parse(text: str, log_base: str = "10") -> Expression | Fraction:
    r"""An expression, from its cleaned text; a plain number at once.

    Args:
        log_base: of a `\log` without one, `10` or `e`.

    Raises:
        Unreadable: it is no expression.
        ImportError: math-verify is not installed.
    """
    number = math_number.read(text)
    if number is not None:
        return number
    rewritten = math_latex.rewrite(text, log_base)
    _, latex2sympy2 = library()
    grammar = latex2sympy2._Latex2Sympy()
    try:
        # From `math`, its usual start, it tries sets and tuples first: exponential in the depth of brackets.
        parser = grammar.create_parser(rewritten)
        branch = parser.expr()
        rest = parser.getCurrentToken()
        tree = grammar.convert_expr(branch)
        # Not its free symbols: sympy leaves out those of a sum of zeros.
        names = {math_latex.name_of(node.name) for node in nodes(tree) if node.is_Symbol}
        found = Expression(
            tree,
            names=frozenset(name for name in names - {EULER, IMAGINARY} if not math_latex.is_index(name)),
            whole=_whole(tree),
            imaginary=IMAGINARY in names,
            endless=_endless(tree),
        )
    except RecursionError as error:
        raise Unreadable("nested too deeply") from error
    except Exception as error:  # whatever the library raises
        raise Unreadable(f"math-verify cannot read it: {error}".partition("\n")[0]) from error
    if rest.type != -1:  # the end of the text
        raise Unreadable(f"math-verify stops reading at {rest.text!r}")
    return found


def nodes(tree: Any) -> Iterator[Any]:
    """Every node of a tree."""
    stack = [tree]
    while stack:
        node = stack.pop()
        yield node
        stack += node.args


def _endless(tree: Any) -> bool:
    return any(node.is_infinite for node in nodes(tree) if node.is_Number)


def _whole(tree: Any) -> bool:
    for node in nodes(tree):
        kind = type(node).__name__
        if not node.free_symbols:
            continue
        if kind in ("factorial", "Sum", "Product"):
            return True
        if kind in ("floor", "ceiling") and not _stays_whole(node.args[0]):
            return True
        if kind == "Pow" and node.args[0].is_Number and node.args[0] < 0:
            return True
    return False


def _stays_whole(tree: Any) -> bool:
    """Whether whole numbers for the names make it whole, so that rounding it shows nothing there."""
    return all(
        type(node).__name__ in ("Symbol", "Add", "Mul", "Integer", "One", "Zero", "NegativeOne") for node in nodes(tree)
    )


def library_same(reference: Any, answer: Any) -> bool:
    """math-verify's own comparison of two sympy objects; may take any time at all."""
    import sympy

    math_verify, _ = library()
    constants = {
        sympy.Symbol(f"v{EULER.encode().hex()}"): sympy.E,
        sympy.Symbol(f"v{IMAGINARY.encode().hex()}"): sympy.I,
    }
    try:
        return bool(
            math_verify.verify(
                reference.xreplace(constants),
                answer.xreplace(constants),
                numeric_precision=50,
                allow_set_relation_comp=True,
                timeout_seconds=None,  # its own limit is a signal, which only a main thread can have
            )
        )
    except RecursionError:
        return False
