"""config/README.md: every parameter of every schema, generated so that it cannot drift."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from mlscaling.configuration import load_schema

KINDS = {
    "study": "The study: `config/config.yaml`, `config/studies/*.yaml`",
    "system": "Systems: `config/systems/*.yaml`",
    "workload": "Workloads: `config/workloads/*.yaml`",
    "dataset": "Datasets: `config/datasets/*.yaml`",
    "round": "Rounds: `config/rounds/*.yaml`",
}

INTRODUCTION = """\
# Configuration

`config/config.yaml` is the default study. Another study is a file in `config/studies/`, chosen by
`--configfile config/studies/<name>.yaml`. It stands alone: what it does not set has the default named here, not the
value in `config/config.yaml`. Single keys can be set on the command line, e.g. `--config precision=bfloat16`.

All problems of a study are reported at once, before anything runs. A key without a value (`null`) counts as omitted; an
unknown key is an error. Names of systems, workloads, datasets and rounds are those of the files in their folders.

This page is generated from `workflow/schemas/`; `make config-reference` writes it anew.
"""


def config_reference() -> str:
    """Text of `config/README.md`."""
    sections = [INTRODUCTION]
    for kind, title in KINDS.items():
        schema = load_schema(kind)
        rows = "\n".join(_rows(schema, root=schema, prefix=""))
        sections.append(
            f"## {title}\n\n{schema['description']}\n\n| key | type | default | meaning |\n|---|---|---|---|\n{rows}\n"
        )
    return "\n".join(sections)


def _rows(schema: Mapping[str, Any], *, root: Mapping[str, Any], prefix: str) -> Iterator[str]:
    required = schema.get("required", [])
    for name, raw in schema.get("properties", {}).items():
        rule = _resolved(raw, root=root)
        key = f"{prefix}{name}"
        default = "required" if name in required else _default(rule)
        meaning = " ".join(str(rule.get("description", "")).split())
        yield f"| `{key}` | {_type(rule)} | {default} | {meaning} |"
        if rule.get("type") == "object":
            yield from _rows(rule, root=root, prefix=f"{key}.")
            extra = rule.get("additionalProperties")
            if isinstance(extra, Mapping) and "properties" in extra:
                yield from _rows(extra, root=root, prefix=f"{key}.*.")
        if rule.get("type") == "array" and isinstance(rule.get("items"), Mapping):
            yield from _rows(_resolved(rule["items"], root=root), root=root, prefix=f"{key}[].")


def _resolved(rule: Mapping[str, Any], *, root: Mapping[str, Any]) -> Mapping[str, Any]:
    if "$ref" in rule:
        resolved: Mapping[str, Any] = root["$defs"][rule["$ref"].rsplit("/", 1)[-1]]
        return resolved
    return rule


def _default(rule: Mapping[str, Any]) -> str:
    if "default" not in rule:
        return "–"
    value = rule["default"]
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return f"`{text}`" if text else "empty"


def _type(rule: Mapping[str, Any]) -> str:
    if "enum" in rule:
        return ", ".join(f"`{value}`" for value in rule["enum"])
    kind = rule.get("type", "")
    if kind == "array":
        items = rule.get("items", {})
        return f"list of {items.get('type', 'values')}s"
    text = kind if isinstance(kind, str) else " or ".join(kind)
    bounds = {"minimum": "≥", "exclusiveMinimum": ">"}
    limits = [f"{sign} {rule[name]}" for name, sign in bounds.items() if name in rule]
    return " ".join([text, *limits])
