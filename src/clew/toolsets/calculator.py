"""Built-in tools that need no network: a calculator, and search in given texts."""

import ast
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

from langchain_core.tools import ToolException

from clew.graph.tools import LedgerTool, tool

_LONGEST = 500
_DEEPEST = 50
# The result of a power may not be longer than a page.
_BITS = 4096

_BINARY: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_UNARY: Mapping[type[ast.unaryop], Callable[[Any], Any]] = {ast.UAdd: operator.pos, ast.USub: operator.neg}
_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "abs": abs,
    "round": round,
    "min": min,
    "max": max,
    "sum": lambda *values: math.fsum(values),
    "sqrt": math.sqrt,
    "log": math.log,
    "log10": math.log10,
    "exp": math.exp,
    "sin": math.sin,
    "cos": math.cos,
    "tan": math.tan,
    "floor": math.floor,
    "ceil": math.ceil,
}
_NAMES: Mapping[str, float] = {"pi": math.pi, "e": math.e}


def compute(expression: str) -> int | float:
    """The value of an arithmetic expression. Nothing is evaluated as Python. Raises ValueError in words."""
    if len(expression) > _LONGEST:
        raise ValueError(f"expected at most {_LONGEST} characters")
    try:
        parsed = ast.parse(
            expression.strip().replace("^", "**").replace("\u00d7", "*").replace("\u00f7", "/"), mode="eval"
        )
        value = _value(parsed.body, 0)
    except (SyntaxError, RecursionError, MemoryError):
        raise ValueError("expected an arithmetic expression like (3 + 4) * 2") from None
    except ZeroDivisionError:
        raise ValueError("division by zero") from None
    except OverflowError:
        raise ValueError("the result is too large") from None
    except TypeError:
        raise ValueError("a function has the wrong number of arguments") from None
    if isinstance(value, complex) or (isinstance(value, float) and not math.isfinite(value)):
        raise ValueError("the result is no real number")
    return value


def _value(node: ast.expr, depth: int) -> int | float:
    if depth > _DEEPEST:
        raise ValueError("too many brackets")
    match node:
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            return value
        case ast.Name(id=name) if name in _NAMES:
            return _NAMES[name]
        case ast.UnaryOp(op=sign, operand=operand) if type(sign) in _UNARY:
            return _number(_UNARY[type(sign)](_value(operand, depth + 1)))
        case ast.BinOp(left=left, op=sign, right=right) if type(sign) in _BINARY:
            one, other = _value(left, depth + 1), _value(right, depth + 1)
            if isinstance(sign, ast.Pow):
                _require_small(one, other)
            return _number(_BINARY[type(sign)](one, other))
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _FUNCTIONS:
            return _number(_FUNCTIONS[name](*(_value(one, depth + 1) for one in args)))
        case _:
            raise ValueError(f"expected numbers, + - * / // % **, brackets, and {', '.join(_FUNCTIONS)}")


def _require_small(base: float, exponent: float) -> None:
    if isinstance(base, int) and isinstance(exponent, int) and abs(exponent) * base.bit_length() > _BITS:
        raise ValueError("the result is too large")


def _number(value: Any) -> int | float:
    if isinstance(value, complex):
        raise ValueError("the result is no real number")  # noqa: TRY004 - it is about the value
    if isinstance(value, int) and value.bit_length() > 2 * _BITS:
        raise ValueError("the result is too large")
    number: int | float = value
    return number


def calculator() -> LedgerTool:
    @tool(name="calculator", description="Computes an arithmetic expression exactly, like (1234.5 * 12) / 7.")
    def calculate(expression: str) -> str:
        try:
            return str(compute(expression))
        except ValueError as exc:
            raise ToolException(str(exc)) from exc

    calculate.handle_tool_error = True
    return calculate
