"""From evidence as it is to evidence that may be shared: no secrets, allowed variables only, pseudonyms for identities.

A log that is rewritten has another hash. The run records of a bundle name the hash of the log that is in it; the hash
before stays with the owner, as whoever has it could try names until it fits.
"""

from __future__ import annotations

import getpass
import hashlib
import json
import platform
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from mlscaling.bundles.collect import Collected
from mlscaling.bundles.identities import Identity, identities_in, identity
from mlscaling.bundles.pseudonyms import Pseudonyms, pseudonyms_for
from mlscaling.bundles.secrets import SecretError, secrets_in
from mlscaling.bundles.texts import decoded, encoded, encoding_of
from mlscaling.provenance import ENVIRONMENT
from mlscaling.study import Study

_KEYS: Final = re.compile(r"\"([A-Za-z_][\w.-]*)\":|\"key\": \"(\w+)\"|^\s*([A-Za-z_]\w*):", re.MULTILINE)
"""Keys of JSON and YAML, and MLPerf's."""


_PUBLIC: Final = (
    *("environment/packages.json", "environment/constraints.txt", "environment/workflow.txt", "environment/train.txt"),
    *("config/rcps/official/", "config/rounds/"),
)
"""Texts that name nobody, and are full of versions that look like addresses."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Cleaned:
    """Evidence that may be shared."""

    files: dict[str, bytes]
    """Name → content."""
    left_out: Mapping[str, str]
    """Name → why it stays behind."""
    names: Mapping[str, str]
    """Identity → pseudonym; empty where nothing is replaced."""
    logs: Mapping[str, tuple[str, str]]
    """Name of a log that was rewritten → its hash before and after."""
    notices: tuple[str, ...]
    """What the owner should know."""
    pseudonyms: Pseudonyms | None
    """What replaced them."""


def cleaned(collected: Collected, *, study: Study, anonymize: bool, no_secrets: Iterable[str] = ()) -> Cleaned:
    """Evidence without secrets, and without identities if these are to be replaced.

    Args:
        collected: evidence.
        study: its study.
        anonymize: replace identities.
        no_secrets: places `FILE:LINE` that look like secrets and are none.

    Raises:
        SecretError: a text holds what looks like a secret; names the places.
    """
    allowed = set(no_secrets)
    texts = ((collected.origins.get(name, name), _utf8(content)) for name, content in sorted(collected.files.items()))
    if found := [secret for secret in secrets_in(texts) if f"{secret.file}:{secret.line}" not in allowed]:
        raise SecretError(found)
    files = {name: _allowed_variables(name, content) for name, content in collected.files.items()}
    if not anonymize:
        return Cleaned(
            files=files, left_out=collected.left_out, names={}, logs={}, notices=(), pseudonyms=None
        )  # fmt: skip
    return _anonymized(files, study, left_out=collected.left_out)


def _utf8(content: bytes) -> bytes:
    encoding = encoding_of(content)
    return content if encoding in ("", "utf-8") else decoded(content, encoding).encode("utf-8", errors="replace")


def _allowed_variables(name: str, content: bytes) -> bytes:
    """A run record with those environment variables only that may be recorded today."""
    if not re.fullmatch(r"results/runs/.*/run_\d+\.json", name):
        return content
    try:
        record = json.loads(content)
    except ValueError as error:
        raise ValueError(f"{name}: not JSON: {error}") from None
    variables = record.get("environment")
    if not isinstance(variables, dict) or not variables.keys() - set(ENVIRONMENT):
        return content
    allowed = {key: value for key, value in variables.items() if key in ENVIRONMENT}
    return (json.dumps({**record, "environment": allowed}, indent=1) + "\n").encode()


def _anonymized(files: dict[str, bytes], study: Study, *, left_out: Mapping[str, str]) -> Cleaned:
    public = (*_PUBLIC, *(f"results/runs/{point.path}/" for point in study.points if point.published))
    private = {name: content for name, content in files.items() if not name.startswith(public)}
    encodings = {name: encoding_of(content) for name, content in private.items()}
    texts = {name: decoded(content, encodings[name]) for name, content in private.items() if encodings[name]}
    everything = [*texts.values(), "\n".join((*files, *left_out))]
    found = identities_in(everything, known=_of_this_process(everything))
    pseudonyms = pseudonyms_for(found, vocabulary=_vocabulary(study, texts))
    rewritten = {name: encoded(pseudonyms.replaced(text), encodings[name]) for name, text in texts.items()}
    result = {_renamed(name, pseudonyms): rewritten.get(name, content) for name, content in files.items()}
    hashes = {
        _renamed(name, pseudonyms): (_sha256(files[name]), _sha256(content))
        for name, content in rewritten.items()
        if name.startswith("results/") and name.endswith((".txt", ".log")) and content != files[name]
    }
    result = {
        name: _rehashed(content, hashes.values()) if name.endswith(".json") else content
        for name, content in result.items()
    }
    notices = [
        f"{kind} {text!r} is short, or a word of the study: replaced only where its place says what it is"
        for kind, names in pseudonyms.in_place.items()
        for text in sorted(names)
    ]
    return Cleaned(
        files=result,
        left_out={pseudonyms.replaced(name): pseudonyms.replaced(reason) for name, reason in left_out.items()},
        names=pseudonyms.names,
        logs=hashes,
        notices=tuple(notices),
        pseudonyms=pseudonyms,
    )


def _of_this_process(texts: Iterable[str]) -> Iterator[Identity]:
    """Who makes the bundle, and where, if the texts name them: a path may hold a user's name without `/home`."""
    for kind, name in (("user", _user()), ("host", platform.node())):
        word = re.compile(rf"(?<![A-Za-z0-9]){re.escape(name)}(?![A-Za-z0-9])", re.IGNORECASE)
        if name and any(word.search(text) for text in texts):
            yield identity(kind, name)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container may run under a number that nobody has given a name
        return ""


def _vocabulary(study: Study, texts: Mapping[str, str]) -> set[str]:
    """Words that a name must not take away from the study: its keys, names and paths."""
    words = {study.name, study.scale, *study.datasets, *study.plots}
    for point in study.points:
        words |= {point.system.name, point.workload.name, point.workload.mlperf_benchmark, f"n{point.nodes}"}
    for name, text in texts.items():
        if name.endswith((".json", ".yaml", ".txt")):
            words.update(word for match in _KEYS.finditer(text) for word in match.groups() if word)
    return {part for word in words for part in (word, *re.split(r"[^A-Za-z0-9]+", word)) if part}


def _renamed(name: str, pseudonyms: Pseudonyms) -> str:
    """Evidence of a node may be named after it."""
    return pseudonyms.replaced(name) if name.startswith(("results/attempts/", "results/systems/")) else name


def _rehashed(content: bytes, hashes: Iterable[tuple[str, str]]) -> bytes:
    for before, after in hashes:
        content = content.replace(before.encode(), after.encode())
    return content


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def remaining(files: Mapping[str, bytes], cleaned: Cleaned) -> list[str]:
    """Files that hold an identity that should have been replaced wherever it stands."""
    pattern = cleaned.pseudonyms.everywhere if cleaned.pseudonyms else None
    if pattern is None:
        return []
    given = {pseudonym.lower() for pseudonym in cleaned.names.values()}
    kept = []
    for name, content in files.items():
        encoding = encoding_of(content)
        found = pattern.finditer(decoded(content, encoding)) if encoding else iter(())
        if any(match[0].lower() not in given for match in found):
            kept.append(name)
    return kept


def private_record(cleaned: Cleaned) -> dict[str, Any]:
    """Which pseudonym is whose, and the hashes of rewritten logs: what stays beside the results of the owner."""
    return {
        "schema_version": 1,
        "private": "which pseudonym of the bundle is whose; keep it to yourself",
        "pseudonyms": dict(sorted(cleaned.names.items())),
        "logs": {
            name: {"sha256_before": before, "sha256": after} for name, (before, after) in sorted(cleaned.logs.items())
        },
    }
