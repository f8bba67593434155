"""Read YAML strictly and check it against the schemas, collecting problems instead of stopping at the first.

Defaults are applied here and nowhere else: Snakemake does not apply a schema's defaults inside remote jobs since
9.5.1, so an omitted key would behave differently there.
"""

from __future__ import annotations

import copy
import datetime
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

SCHEMAS = Path(__file__).resolve().parents[2] / "schemas"


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """One thing that is wrong, or that a user should know, about the configuration."""

    file: str
    """File that holds it."""
    key: str
    """Path of the key, e.g. `curves[0].nodes[1]`; empty for the file as a whole."""
    value: object
    """The offending value."""
    message: str
    """What is wrong, and what would be legal."""
    severity: str = "error"
    """`error`, or `warning` for what is allowed but labelled."""

    def __str__(self) -> str:
        where = f"{self.file}: {self.key}" if self.key else self.file
        shown = "" if self.value is None else f" = {_shorten(self.value)}"
        return f"{where}{shown}: {self.message}"


def _shorten(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


@cache
def load_schema(name: str) -> dict[str, Any]:
    """Schema `workflow/schemas/{name}.schema.yaml`."""
    import yaml

    with (SCHEMAS / f"{name}.schema.yaml").open(encoding="utf-8") as stream:
        schema: dict[str, Any] = yaml.safe_load(stream)
    return schema


def read_yaml(path: Path) -> tuple[dict[str, Any], list[Problem]]:
    """Mapping in a YAML file; a file that is missing, not YAML, not a mapping or repeats a key is a problem."""
    import yaml

    try:
        text = path.read_text(encoding="utf-8")
        value = yaml.load(text, Loader=_strict_loader())
    except FileNotFoundError:
        return {}, [Problem(file=str(path), key="", value=None, message="there is no such file")]
    except UnicodeDecodeError as error:
        return {}, [Problem(file=str(path), key="", value=None, message=f"is not UTF-8 text: {error}")]
    except yaml.YAMLError as error:
        return {}, [Problem(file=str(path), key="", value=None, message=f"is not valid YAML: {error}")]
    if not isinstance(value, dict):
        return {}, [Problem(file=str(path), key="", value=value, message="must be a mapping of keys to values")]
    return value, []


@cache
def _strict_loader() -> Any:
    import yaml

    class StrictLoader(yaml.SafeLoader):  # type: ignore[misc]
        """Refuses a key that is given twice; YAML itself would keep the last one silently."""

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            seen: set[object] = set()
            for key_node, _ in node.value:
                key = self.construct_object(key_node, deep=True)
                if key in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"key {key!r} is given twice", key_node.start_mark
                    )
                seen.add(key)
            mapping: dict[Any, Any] = super().construct_mapping(node, deep=deep)
            return mapping

    return StrictLoader


def check_schema(data: Mapping[str, Any], *, schema: str, file: str) -> tuple[dict[str, Any], list[Problem]]:
    """Data with defaults applied and empty (`null`) keys dropped, and every violation of the schema.

    Args:
        data: what the file or Snakemake's config holds.
        schema: name of the schema without suffix.
        file: for messages.
    """
    import jsonschema

    cleaned = _without_null(data)
    rules = load_schema(schema)
    validator = jsonschema.Draft202012Validator(rules)
    problems = [_problem_of(error, file=file) for error in _leaf_errors(validator.iter_errors(cleaned))]
    endless = {_key(path): value for path, value in _not_finite(cleaned)}
    problems = [problem for problem in problems if problem.key not in endless]
    problems += [Problem(file=file, key=key, value=value, message=NOT_FINITE) for key, value in endless.items()]
    problems = sorted({str(problem): problem for problem in problems}.values(), key=lambda problem: problem.key)
    _apply_defaults(cleaned, rules, root=rules)
    return cleaned, problems


def sound_part(data: Mapping[str, Any], problems: Iterable[Problem], *, schema: str) -> dict[str, Any]:
    """Data without what breaks the schema, so that the rest can be checked in the same go.

    A top-level key with a problem gets its default, or is absent; in a list of mappings None stands for an entry with a
    problem. Arguments as `check_schema` takes and returns them.
    """
    sound = dict(data)
    for problem in problems:
        found = re.match(r"([^.\[]*)(?:\[(\d+)\])?", problem.key)
        name, number = found.groups() if found else ("", None)
        entries = sound.get(name)
        if number is not None and isinstance(entries, list) and all(isinstance(e, Mapping | None) for e in entries):
            sound[name] = [None if index == int(number) else entry for index, entry in enumerate(entries)]
        else:
            sound.pop(name, None)
    _apply_defaults(sound, load_schema(schema), root=load_schema(schema))
    return sound


def _not_finite(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], float]]:
    """YAML's `.nan` and `.inf`, which pass for numbers in JSON Schema, by their path."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _not_finite(item, (*path, str(key)))
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from _not_finite(item, (*path, number))
    elif isinstance(value, float) and not math.isfinite(value):
        yield path, value


def _without_null(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_null(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_null(item) for item in value]
    return value


def _leaf_errors(errors: Any) -> Iterator[Any]:
    for error in errors:
        if error.context:
            yield from _leaf_errors(error.context)
        else:
            yield error


def _problem_of(error: Any, *, file: str) -> Problem:
    key = _key(error.absolute_path)
    rule, legal, value = error.validator, error.validator_value, error.instance
    if rule == "additionalProperties":
        known = sorted(error.schema.get("properties", {}))
        unknown = sorted(str(name) for name in value if name not in known)
        inside = f"{key}." if key else ""
        if known:
            message = f"is not a known key{_others(unknown)}; legal keys: {', '.join(known)}"
            return Problem(file=file, key=inside + unknown[0], value=value.get(unknown[0]), message=message)
    if rule == "required":
        missing = [name for name in legal if name not in value]
        message = f"misses the key{'s' * (len(missing) > 1)} {', '.join(missing)}"
        return Problem(file=file, key=key, value=None, message=message)
    if rule == "type":
        return Problem(file=file, key=key, value=value, message=_wrong_type(legal, value, schema=error.schema))
    explain = _LEGAL.get(rule)
    return Problem(file=file, key=key, value=value, message=explain(legal) if explain else error.message)


def _key(path: Iterable[str | int]) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).lstrip(".")


def _wrong_type(legal: str | list[str], value: object, *, schema: Mapping[str, Any]) -> str:
    """What a value of another type should be, in YAML's words rather than JSON's."""
    types = [legal] if isinstance(legal, str) else legal
    message = f"must be {' or '.join(_TYPES[name] for name in types)}"
    if "string" in types and isinstance(value, bool | int | float | datetime.date):
        return f'{message}; YAML reads it as something else unless it stands in quotes: "{value}"'
    if "array" in types and not isinstance(value, Mapping):
        return f"{message}, in brackets: [{value}]"
    if types == ["boolean"]:
        return f"{message} (on the command line, True or False)"
    means = str(schema.get("description", "")).split(". ")[0].rstrip(".")
    return f"{message}: {means}" if means else message


NOT_FINITE = "must be a finite number"
_TYPES = {
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "a mapping of keys to values",
    "null": "empty",
}
"""Type of JSON Schema → what a writer of YAML calls it."""
_LEGAL: dict[str, Callable[[Any], str]] = {
    "enum": lambda legal: f"legal values: {legal}",
    "minimum": lambda legal: f"must be at least {legal}",
    "maximum": lambda legal: f"must be at most {legal}",
    "exclusiveMinimum": lambda legal: f"must be greater than {legal}",
    "minItems": lambda legal: f"needs at least {legal} entry",
    "minLength": lambda _: "must not be empty",
    "uniqueItems": lambda _: "has the same entry twice",
    "pattern": lambda legal: f"must match {legal}",
}
"""Rule of JSON Schema → what to tell a person, given the rule's value."""


def _others(unknown: list[str]) -> str:
    return "" if len(unknown) < 2 else f" (nor {'is' if len(unknown) == 2 else 'are'} {', '.join(unknown[1:])})"


def _apply_defaults(value: Any, rules: Mapping[str, Any], *, root: Mapping[str, Any]) -> None:
    if "$ref" in rules:
        rules = root["$defs"][rules["$ref"].rsplit("/", 1)[-1]]
    if isinstance(value, dict):
        for name, rule in rules.get("properties", {}).items():
            if "default" in rule and name not in value:
                value[name] = copy.deepcopy(rule["default"])  # its own keys get their defaults, the schema keeps its
            if rule.get("type") == "integer" and name in value:
                value[name] = _whole(value[name])
            if name in value:
                _apply_defaults(value[name], rule, root=root)
    elif isinstance(value, list) and isinstance(rules.get("items"), Mapping):
        if rules["items"].get("type") == "integer":
            value[:] = [_whole(item) for item in value]
        for item in value:
            _apply_defaults(item, rules["items"], root=root)


def _whole(value: Any) -> Any:
    """2.0 is an integer to JSON Schema."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def names_in(folder: Path, suffix: str = ".yaml") -> list[str]:
    """Names that a folder of one-file-each offers, sorted."""
    return sorted(path.name.removesuffix(suffix) for path in folder.glob(f"*{suffix}") if not path.name.startswith("_"))
