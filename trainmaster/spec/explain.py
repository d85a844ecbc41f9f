"""Why do plain values not fit the spec? Asked only after they did not, so a good job never pays for it."""

from __future__ import annotations

import re

from msgspec import inspect as shapes

from .problems import Problem, join, nearest, quoted, shown


def explain(value: object, shape: shapes.Type, path: str = "") -> list[Problem]:
    """Everything in `value` that does not fit `shape`, in the order of the fields."""
    shape, wanted = _opened(shape)
    if isinstance(shape, shapes.UnionType):
        fitting = next((one for one in shape.types if _is_kind(value, _opened(one)[0])), None)
        return [_mismatch(value, wanted, path)] if fitting is None else explain(value, fitting, path)
    if not _is_kind(value, shape):
        return [_mismatch(value, wanted, path)]
    match shape, value:
        case shapes.StructType(), dict():
            return _explain_struct(value, shape, path)
        case shapes.DictType(), dict():
            return _explain_mapping(value, shape, path)
        case shapes.ListType(), list():
            return [problem for index, item in enumerate(value) for problem in explain(item, shape.item_type, f"{path}[{index}]")]
        case ((shapes.IntType() | shapes.FloatType()), int() | float()):
            return [] if _is_within(value, shape) else [_mismatch(value, wanted, path)]
        case shapes.StrType(), str():
            return _explain_text(value, shape, wanted, path)
        case shapes.LiteralType(), str() if value not in shape.values:
            return [Problem(path, f"found {shown(value)}, wanted {wanted}{nearest(value, [str(one) for one in shape.values])}")]
        case _:
            return []


def wanted_words(shape: shapes.Type) -> str:
    """What a shape allows, in words: ``a whole number, 0 or more``."""
    return _opened(shape)[1]


def _opened(shape: shapes.Type) -> tuple[shapes.Type, str]:
    """The shape without its description, and what it wants in words."""
    if isinstance(shape, shapes.Metadata):
        return shape.type, str((shape.extra_json_schema or {}).get("description") or _words(shape.type))
    return shape, _words(shape)


def _words(shape: shapes.Type) -> str:
    match shape:
        case shapes.IntType():
            return f"a whole number{_range_words(shape)}"
        case shapes.FloatType():
            return f"a number{_range_words(shape)}"
        case shapes.StrType():
            return _text_words(shape)
        case shapes.BoolType():
            return "true or false"
        case shapes.LiteralType():
            return f"one of {', '.join(str(value) for value in shape.values)}"
        case shapes.ListType():
            return f"a list{_each_words(shape.item_type)}"
        case shapes.DictType():
            return f"a mapping{_each_words(shape.value_type)}"
        case shapes.StructType():
            return f"a mapping with the fields {', '.join(field.name for field in shape.fields)}"
        case shapes.UnionType():
            # A whole number is a number: naming both would only make the sentence longer.
            is_any_number = any(isinstance(one, shapes.FloatType) for one in shape.types)
            hidden = (shapes.NoneType, shapes.IntType) if is_any_number else shapes.NoneType
            return " or ".join(wanted_words(one) for one in shape.types if not isinstance(one, hidden))
        case _:
            return "nothing"


def _each_words(shape: shapes.Type) -> str:
    return "" if isinstance(shape, shapes.UnionType) else f" (each: {wanted_words(shape)})"


def _range_words(shape: shapes.IntType | shapes.FloatType) -> str:
    bounds = (
        ("" if shape.ge is None else f", {shape.ge} or more"),
        ("" if shape.gt is None else f", more than {shape.gt}"),
        ("" if shape.le is None else f", at most {shape.le}"),
    )
    return "".join(bounds)


def _text_words(shape: shapes.StrType) -> str:
    if shape.max_length is None:
        return "text"
    return f"text of {shape.min_length or 0} to {shape.max_length} characters"


def _is_kind(value: object, shape: shapes.Type) -> bool:
    match value:
        case None:
            return isinstance(shape, shapes.NoneType)
        case bool():
            return isinstance(shape, shapes.BoolType)
        case int():
            return isinstance(shape, shapes.IntType | shapes.FloatType)
        case float():
            return isinstance(shape, shapes.FloatType)
        case str():
            return isinstance(shape, shapes.StrType | shapes.LiteralType)
        case list():
            return isinstance(shape, shapes.ListType)
        case _:
            return isinstance(shape, shapes.DictType | shapes.StructType)


def _mismatch(value: object, wanted: str, path: str) -> Problem:
    return Problem(path, f"found {shown(value)}, wanted {wanted}")


def _is_within(value: float, shape: shapes.IntType | shapes.FloatType) -> bool:
    return (
        (shape.ge is None or value >= shape.ge)
        and (shape.gt is None or value > shape.gt)
        and (shape.le is None or value <= shape.le)
    )


def _explain_text(value: str, shape: shapes.StrType, wanted: str, path: str) -> list[Problem]:
    length_max = shape.max_length
    if length_max is not None and len(value) > length_max:
        return [Problem(path, f"found {len(value)} characters, wanted {wanted}")]
    if len(value) < (shape.min_length or 0):
        return [Problem(path, f"found empty text, wanted {wanted}")]
    if shape.pattern is None or re.search(shape.pattern, value):
        return []
    odd = next((character for character in value if not re.fullmatch(r"[A-Za-z0-9._-]", character)), None)
    which = f", which contains {quoted(odd)}" if odd else ""
    return [Problem(path, f"found {shown(value)}{which}; wanted {wanted}")]


def _explain_struct(value: dict[str, object], shape: shapes.StructType, path: str) -> list[Problem]:
    names = [field.name for field in shape.fields]
    problems = [
        Problem(join(path, key), f"unknown field{nearest(key, names)}", f"{path or 'A job'} may have: {', '.join(names)}.")
        for key in value
        if key not in names
    ]
    for field in shape.fields:
        if field.name in value:
            problems += explain(value[field.name], field.type, join(path, field.name))
        elif field.required:
            problems.append(Problem(join(path, field.name), f"is missing; wanted {wanted_words(field.type)}"))
    return problems


def _explain_mapping(value: dict[str, object], shape: shapes.DictType, path: str) -> list[Problem]:
    problems = []
    for key, item in value.items():
        problems += [
            Problem(problem.path, f"as a name: {problem.sentence}") for problem in explain(key, shape.key_type, join(path, key))
        ]
        problems += explain(item, shape.value_type, join(path, key))
    return problems
