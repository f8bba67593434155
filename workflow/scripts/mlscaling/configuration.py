"""Read YAML strictly and check it against the schemas, collecting problems instead of stopping at the first.

Defaults are applied here and nowhere else: Snakemake does not apply a schema's defaults inside remote jobs since
9.5.1, so an omitted key would behave differently there.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
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
    problems = sorted({str(problem): problem for problem in problems}.values(), key=lambda problem: problem.key)
    _apply_defaults(cleaned, rules, root=rules)
    return cleaned, problems


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
    key = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.absolute_path).lstrip(".")
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
    explain = _LEGAL.get(rule)
    return Problem(file=file, key=key, value=value, message=explain(legal) if explain else error.message)


_LEGAL: dict[str, Callable[[Any], str]] = {
    "enum": lambda legal: f"legal values: {legal}",
    "type": lambda legal: (
        f"must be of type {legal if isinstance(legal, str) else ' or '.join(legal)}"
        + (" (on the command line, True or False)" if legal == "boolean" else "")
    ),
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
            if rule.get("type") == "integer" and isinstance(value.get(name), float):
                value[name] = int(value[name])  # 2.0 is an integer to JSON Schema
            if name in value:
                _apply_defaults(value[name], rule, root=root)
    elif isinstance(value, list) and isinstance(rules.get("items"), Mapping):
        if rules["items"].get("type") == "integer":
            value[:] = [int(item) if isinstance(item, float) else item for item in value]
        for item in value:
            _apply_defaults(item, rules["items"], root=root)


def names_in(folder: Path, suffix: str = ".yaml") -> list[str]:
    """Names that a folder of one-file-each offers, sorted."""
    return sorted(path.name.removesuffix(suffix) for path in folder.glob(f"*{suffix}") if not path.name.startswith("_"))
