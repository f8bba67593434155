"""Who and where, found in the texts of a study: users, hosts, addresses, e-mail, accounts, folders.

Each kind has places that say what stands there: a key of a record, a variable of Slurm, the shape of an address. A name
once found is replaced wherever it stands, by `pseudonyms.py`, unless it is also a word of the study.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

KINDS: Final = ("user", "host", "account", "email", "mac", "ipv4", "ipv6", "device", "folder")
_HOST: Final = r"[A-Za-z][A-Za-z0-9-]*(?:\.[A-Za-z0-9-]+)*"
_USER: Final = r"[A-Za-z_][A-Za-z0-9._-]*[A-Za-z0-9]"
_PATH: Final = r"(?<![\w.~/-])(?P<name>/[^\s\"'`:,;=()\[\]<>|]*?)"
_PLACES: Final[Mapping[str, tuple[str, ...]]] = {
    "user": (
        rf"(?:/home[\w.-]*|/Users|[A-Za-z]:[\\/]+Users)[\\/]+(?P<name>{_USER})",
        rf"\b(?:USER|LOGNAME|USERNAME|SLURM_JOB_USER)=(?P<name>{_USER})",
        rf"\bUserId=(?P<name>{_USER})\(",
        rf"(?<![\w@.-])(?P<name>{_USER})@{_HOST}(?::/|:~|\s*[$#] )",
        rf"\b(?:ssh|scp|sftp|rsync) (?:[^\n]*\s)?(?P<name>{_USER})@",
        rf"\"(?:user|username)\": \"(?P<name>{_USER})\"",
        r"\"submission_poc_name\", \"value\": \"(?P<name>[^\"\\]+)\"",
    ),
    "host": (
        rf"\"(?:hostname|host)\": \"(?P<name>{_HOST})\"",
        rf"\"name\": \"(?P<name>{_HOST})\",\s*\"address\": ",
        rf"\b(?:HOSTNAME|SLURMD_NODENAME|BatchHost|MASTER_ADDR)=(?P<name>{_HOST})(?![\w.])",
        r"\b(?:SLURM_(?:JOB_|STEP_)?NODELIST|NodeList)=(?P<name>[A-Za-z][\w.,-]*(?:\[[\d,-]+\][\w.,-]*)?)",
        rf"\brank \d+ of \d+ is on (?P<name>{_HOST}) ",
        rf"(?m)^(?:\d+: )?(?P<name>{_HOST}):\d+:\d+ \[\d+\] NCCL ",
        rf"\b(?:slurmstepd|srun): (?:error|warning|info): (?:Node )?(?P<name>{_HOST}): ",
        rf" ON (?P<name>{_HOST}) CANCELLED",
        rf"\b[Nn]ode failure on (?P<name>{_HOST})",
        rf"(?<![\w@.-]){_USER}@(?P<name>{_HOST})(?::/|:~|\s*[$#] )",
    ),
    "account": (
        r"--account[= ](?P<name>[\w.-]+)",
        r"\b(?:SLURM_(?:JOB_)?ACCOUNT|SBATCH_ACCOUNT|Account)=(?P<name>[\w.-]+)",
        r"\bslurm_account[\"']?\s*[:=]\s*[\"']?(?P<name>[\w.-]+)",
    ),
    "email": (
        r"(?<![\w.+-])(?P<name>(?!git@)[A-Za-z0-9][\w.%+-]*@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*\.[A-Za-z]{2,})(?![\w-])",
    ),
    "mac": (r"(?<![\w:-])(?P<name>[0-9A-Fa-f]{2}(?P<by>[:-])[0-9A-Fa-f]{2}(?:(?P=by)[0-9A-Fa-f]{2}){4})(?![\w:-])",),
    "device": (r"\b(?P<name>(?:GPU|MIG)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\b",),
    "folder": (
        rf"{_PATH}/workflow/scripts/",
        rf"{_PATH}/results/[^\s/\"']+/(?:runs|attempts)/",
        rf"{_PATH}/bin/python\d?(?:\.\d+)?(?![\w./])",
        r"\"(?:data_dir|data_root|raw_root|published_root)\": ?\"(?P<name>/[^\"]*[^\"/])/?\"",
    ),
}
PLACES: Final = {kind: [re.compile(pattern) for pattern in patterns] for kind, patterns in _PLACES.items()}
"""Kind → where a text says that its group `name` is one."""
_IPV4: Final = re.compile(r"(?<![\w.-])\d{1,3}(?:\.\d{1,3}){3}(?![\w-]|\.\d)")
_IPV6: Final = re.compile(r"(?<![\w:.])(?=[0-9A-Fa-f]*:[0-9A-Fa-f]*:)[0-9A-Fa-f:]{4,39}(?![\w:])")
_VERSION: Final = re.compile(
    r"(?i)version|release|driver|firmware|cuda|cudnn|cublas|nccl|trt|ofed|python|kernel|==|ucx|mpi"
)
"""Before a dotted quad: a version (cublas 11.6.1.51), no address."""
_KEY: Final = re.compile(r"\"([^\"\n]*)\":\s*\"?$")
_ADDRESS_KEY: Final = re.compile(r"(?i)addr|host|node|master|peer|\bip\b|_ip|ip_|gateway|listen|server")
"""Keys of JSON whose value may be an address; that of a package is its version."""
_LOCAL: Final = ("127.", "0.0.0.0", "255.")
GENERIC: Final = frozenset({
    "root", "user", "users", "admin", "administrator", "ubuntu", "debian", "centos", "ec2-user", "runner",
    "jenkins", "nobody", "guest", "test", "tester", "build", "git", "docker", "slurm", "daemon", "app", "home",
    "shared", "public", "data", "work", "student", "localhost", "localhost.localdomain",
})  # fmt: skip
"""Names that say nobody, and are words elsewhere."""
_PUBLIC_FOLDERS: Final = ("", "/usr", "/usr/local", "/opt", "/opt/conda", "/opt/venv", "/tmp", "/var", "/workspace")
_MIN_STEM: Final = 3
"""Letters of `node07` before its number, from which on `node08` is its sibling."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Identity:
    """Something that says who or where."""

    kind: str
    """One of `KINDS`."""
    text: str
    """As found; in lower case, but for folders."""


def identities_in(texts: Iterable[str], *, known: Iterable[Identity] = ()) -> set[Identity]:
    """All identities in these texts; `known` ones count where they occur."""
    texts = list(texts)
    found: set[Identity] = set(known)
    for text in texts:
        for kind, patterns in PLACES.items():
            found |= {identity(kind, match["name"]) for pattern in patterns for match in pattern.finditer(text)}
        found |= set(_addresses(text))
    found |= _siblings({item.text for item in found if item.kind == "host"}, texts)
    return {item for item in found if _says_something(item)}


def identity(kind: str, text: str) -> Identity:
    """Folders keep their case; everything else is one whatever its case."""
    return Identity(kind=kind, text=text.rstrip("/.,") if kind == "folder" else text.rstrip(".,").lower())


def _says_something(item: Identity) -> bool:
    if item.kind == "folder":
        return item.text not in _PUBLIC_FOLDERS
    return bool(item.text) and item.text not in GENERIC


def _addresses(text: str) -> Iterator[Identity]:
    for match in _IPV4.finditer(text):
        quad = match[0]
        if quad.startswith(_LOCAL) or any(int(part) > 255 for part in quad.split(".")):
            continue
        before = text[max(text.rfind("\n", 0, match.start()) + 1, match.start() - 40) : match.start()]
        key = _KEY.search(before)
        if _ADDRESS_KEY.search(key[1]) if key else not _VERSION.search(before):
            yield Identity(kind="ipv4", text=quad)
    for match in _IPV6.finditer(text):
        try:
            address = ipaddress.IPv6Address(match[0])
        except ValueError:
            continue
        if not address.is_loopback and sum(bool(part) for part in match[0].split(":")) > 1:
            yield Identity(kind="ipv6", text=match[0].lower())


def _siblings(hosts: set[str], texts: Iterable[str]) -> set[Identity]:
    """Other hosts of a numbered row: a message may name `node08` where records name only `node07`."""
    rows = {row for host in hosts if (row := _row(host))}
    if not rows:
        return set()
    pattern = re.compile(rf"(?<![A-Za-z0-9])(?:{'|'.join(sorted(rows))})(?![A-Za-z0-9])", re.IGNORECASE)
    return {identity("host", match[0]) for text in texts for match in pattern.finditer(text)}


def _row(host: str) -> str:
    """Pattern of the row that a host stands in; empty where its name could be a word with a number (`rank3`)."""
    match = re.fullmatch(r"([a-z][a-z-]*)(\d+)", host.partition(".")[0])
    if not match or len(match[1]) < _MIN_STEM:
        return ""
    if len(match[2]) > 1:
        return f"{re.escape(match[1])}\\d{{{len(match[2])}}}"
    return "" if match[1] in ("node", "rank", "gpu", "cpu", "run", "host") else f"{re.escape(match[1])}\\d+"
