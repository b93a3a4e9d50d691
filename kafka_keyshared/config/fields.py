"""Facts about each setting, derived from its type in :mod:`.options`.

They serve every source: the file, the environment, flags and programs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple, get_type_hints

import msgspec
from msgspec import inspect

from kafka_keyshared.config.file import FileConfig
from kafka_keyshared.config.renamed_settings import FILE, PREFIX, PROGRAM, RENAMED, renaming
from kafka_keyshared.config.setting_faults import Fault, guess

NOTHING = "none"
"""The text for no value, for settings that may be left out."""

_VALUE_TEXT_MAX = 80


class Field(NamedTuple):
    """A setting. ``name`` has a dot if it is in a table; ``client`` is its name in the client.

    ``allowed`` completes "give …". ``env`` and ``flag`` are None where there is none. ``meant``
    maps lower-case words that fit the type but are not valid values to the remedy.
    """

    name: str
    type: Any
    info: inspect.Type
    default: Any
    meaning: str
    unit: str | None
    allowed: str
    env: str | None
    flag: str | None
    client: str | None
    meant: Mapping[str, str]


@cache
def fields(struct: type[msgspec.Struct] = FileConfig) -> Mapping[str, Field]:
    """Return every setting of a structure by its name, those of tables included."""
    return {field.name: field for field in _fields(struct, "")}


def _fields(struct: type[msgspec.Struct], before: str) -> Iterator[Field]:
    hints = get_type_hints(struct, include_extras=True)
    info = inspect.type_info(struct)
    if not isinstance(info, inspect.StructType):
        raise TypeError(f"{struct} is not a structure")
    for each in info.fields:
        own, extra, meaning = _unwrapped(each.type)
        name = before + each.name
        if isinstance(own, inspect.StructType):
            yield from _fields(own.cls, f"{name}.")
            continue
        given_by_name = not isinstance(own, inspect.DictType)
        yield Field(
            name=name,
            type=hints[each.name],
            info=own,
            default=each.default_factory() if each.default is msgspec.NODEFAULT else each.default,
            meaning=meaning,
            unit=extra.get("unit"),
            allowed=extra.get("allowed") or allowed(own, _UNITS.get(extra.get("unit", ""), "")),
            env=PREFIX + name.upper().replace(".", "_") if given_by_name else None,
            flag=extra.get("flag"),
            client=extra.get("client"),
            meant=extra.get("meant", {}),
        )


def _unwrapped(info: inspect.Type) -> tuple[inspect.Type, dict[str, Any], str]:
    if not isinstance(info, inspect.Metadata):
        return info, {}, ""
    return info.type, info.extra or {}, (info.extra_json_schema or {}).get("description", "")


_UNITS = {"s": ", in seconds", "bytes": ", in bytes"}


def allowed(info: inspect.Type, unit: str = "") -> str:
    """Return the allowed values of a type, as a continuation of "give …"."""
    info, _, _ = _unwrapped(info)
    if isinstance(info, inspect.UnionType):
        kinds = [allowed(each) for each in info.types if not isinstance(each, inspect.NoneType)]
        left_out = [", or leave it out"] if len(kinds) < len(info.types) else []
        return "".join([" or ".join(kinds), unit, *left_out])
    if isinstance(info, inspect.LiteralType):
        return " or ".join(repr(value) for value in info.values if value is not None)
    if isinstance(info, inspect.ListType):
        return f"a list, each {allowed(info.item_type)}"
    if isinstance(info, inspect.IntType | inspect.FloatType):
        kind = "a whole number" if isinstance(info, inspect.IntType) else "a number"
        return " ".join([kind, *_bounds(info)]) + unit
    if isinstance(info, inspect.StrType):
        return "text" if not info.min_length else "text that is not empty"
    return "true or false" if isinstance(info, inspect.BoolType) else "a table"


def _bounds(info: inspect.IntType | inspect.FloatType) -> Iterator[str]:
    if info.ge is not None and info.le is not None:
        yield f"from {info.ge:.15g} to {info.le:.15g}"
        return
    for word, bound in (("of at least", info.ge), ("above", info.gt), ("up to", info.le)):
        if bound is not None:
            yield f"{word} {bound:.15g}"
    if info.lt is not None:
        yield f"below {info.lt:.15g}"


# --- values ---


def from_text(text: str, info: inspect.Type) -> Any:
    """Return the value of a text for a type, or the text itself if it has no other value.

    >>> from_text("16", inspect.type_info(int | str))
    16
    """
    info, _, _ = _unwrapped(info)
    if isinstance(info, inspect.ListType):
        return [from_text(part.strip(), info.item_type) for part in text.split(",")]
    kinds = info.types if isinstance(info, inspect.UnionType) else (info,)
    possible = {_kind(kind) for kind in kinds}
    if bool in possible and text.lower() in ("true", "false"):
        return text.lower() == "true"
    # A group may be called "none".
    if type(None) in possible and str not in possible and text == NOTHING:
        return None
    for kind in (int, float):
        if kind in possible and _NUMBERS[kind].fullmatch(text):
            return kind(text)
    return text


_NUMBERS: Mapping[type, re.Pattern[str]] = {
    int: re.compile(r"[+-]?[0-9]{1,18}"),
    float: re.compile(r"[+-]?(?:[0-9]+\.?|[0-9]*\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?"),
}


def _kind(info: inspect.Type) -> type | None:
    info, _, _ = _unwrapped(info)
    if isinstance(info, inspect.LiteralType):
        return type(info.values[0])
    kinds: dict[type[inspect.Type], type] = {
        inspect.NoneType: type(None),
        inspect.BoolType: bool,
        inspect.IntType: int,
        inspect.FloatType: float,
        inspect.StrType: str,
    }
    return kinds.get(type(info))


def convert_value(field: Field, value: Any, faults: list[Fault], origin: str = "") -> Any:
    """Return the value converted to the field's type.

    Return UNSET and add a fault if it does not fit.
    """
    give = field.meant.get(value.lower()) if isinstance(value, str) else None
    try:
        if give is None:
            return msgspec.convert(value, field.type)
    except msgspec.ValidationError:
        give = f"give {field.allowed}"
    text = f"{field.name}={value_text(value)}: {give}"
    faults.append(Fault((field.name,), text, {field.name: origin} if origin else {}))
    return msgspec.UNSET


def value_text(value: Any) -> str:
    """Return a value for an error message, at most one line long."""
    text = repr(value)
    return text if len(text) <= _VALUE_TEXT_MAX else f"{text[:_VALUE_TEXT_MAX]}…"


def flatten(
    values: Mapping[str, Any],
    struct: type[msgspec.Struct],
    faults: list[Fault],
    origin: str = "",
    before: str = "",
) -> Iterator[tuple[Field, Any]]:
    """Yield each given field with its value. An unknown name becomes a fault."""
    known = fields(struct)
    for name, given in values.items():
        full = before + str(name)
        value = msgspec.structs.asdict(given) if isinstance(given, msgspec.Struct) else given
        inner = [each for each in known if each.startswith(f"{full}.")]
        if full in known:
            yield known[full], value
        elif inner and isinstance(value, Mapping):
            yield from flatten(value, struct, faults, origin, f"{full}.")
        else:
            origins = {full: origin} if origin else {}
            if inner:
                text, note = f"{full}={value_text(value)}: give a table with {_listed(inner)}", ""
            else:
                text, note = _unknown(known, str(name), before, in_file=bool(origin))
            faults.append(Fault((full,), text, origins, note))


def _unknown(known: Iterable[str], name: str, before: str, *, in_file: bool) -> tuple[str, str]:
    """Return the fault text of an unknown name, and a note with the known names."""
    full, table = before + name, _table(before, in_file=in_file)
    if full in RENAMED:
        return renaming(full, FILE if in_file else PROGRAM), ""
    elsewhere = [each for each in known if each != full and each.rpartition(".")[2] == name]
    if elsewhere:
        inside = _table(elsewhere[0].rpartition(".")[0], in_file=in_file)
        where = f"into {inside}" if inside else f"out of {table}, above it"
        return f"{full!r} is not a setting here: move {name!r} {where}", ""
    siblings = [each for each in known if each.startswith(before)]
    short = list(dict.fromkeys(_last(each, before) for each in siblings))
    of_table = f" in {table}" if table else ""
    near = guess(name, short)
    return f"{full!r} is not a setting{near}", f"the settings{of_table} are {', '.join(short)}"


def _table(name: str, *, in_file: bool) -> str:
    """Return a table's notation in a file or in a program; empty for no table."""
    name = name.rstrip(".")
    return name and (f"[{name}]" if in_file else f"{name}={{…}}")


def _listed(names: list[str]) -> str:
    return ", ".join(name.rpartition(".")[2] for name in names)


def _last(name: str, before: str) -> str:
    return name.removeprefix(before).partition(".")[0]


def nest(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return dotted names as tables: ``retry.attempts`` as ``attempts`` in ``retry``."""
    result: dict[str, Any] = {}
    for name, value in values.items():
        table, dot, last = name.rpartition(".")
        (result.setdefault(table, {}) if dot else result)[last] = value
    return result
