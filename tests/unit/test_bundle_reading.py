"""Archives from people who mean harm: refused with a reason, nothing written outside, nothing executed."""

from __future__ import annotations

import io
import json
import pickle
import stat
import struct
import tempfile
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from mlscaling.bundles import archives, documents
from mlscaling.bundles.archives import BundleError, check_name
from mlscaling.bundles.packing import pack
from mlscaling.bundles.reading import opened

STUDY = {"study.json": b"{}"}


class Marker:
    """Unpickled, it would write a file."""

    def __reduce__(self) -> tuple[Callable[..., object], tuple[str, str]]:
        return open, ("executed", "w")


def archive(
    *files: tuple[str | zipfile.ZipInfo, bytes], method: int = zipfile.ZIP_DEFLATED, comment: bytes = b""
) -> bytes:
    stream = io.BytesIO()
    with warnings.catch_warnings(action="ignore"), zipfile.ZipFile(stream, "w", method) as made:
        for name, content in (*STUDY.items(), *files):
            made.writestr(name, content)
        made.comment = comment
    return stream.getvalue()


def special(name: str, mode: int, target: bytes = b"/etc/passwd") -> bytes:
    info = zipfile.ZipInfo(name)
    info.create_system = 3
    info.external_attr = mode << 16
    return archive((info, target))


def patched(data: bytes, *, central: dict[int, bytes] | None = None, local: dict[int, bytes] | None = None) -> bytes:
    """Bytes overwritten in the headers of the last entry, by offset."""
    changed = bytearray(data)
    for mark, patches in ((b"PK\x01\x02", central or {}), (b"PK\x03\x04", local or {})):
        start = data.rindex(mark)
        for offset, value in patches.items():
            changed[start + offset : start + offset + len(value)] = value
    return bytes(changed)


def renamed(old: str, new: str, *, in_both: bool = True) -> bytes:
    """An archive in which a name is replaced byte by byte, in both headers or in the central one only."""
    data = archive((old, b"text"))
    wanted, other = old.encode(), new.encode("latin-1")
    assert len(wanted) == len(other)
    if not in_both:
        return patched(data, central={46: other})
    return patched(data, central={46: other}, local={30: other})


def overlapping() -> bytes:
    """An entry that is said to reach over the next one, too."""
    data = archive(("a.txt", b"x" * 100), ("b.txt", b"x" * 100), method=zipfile.ZIP_STORED)
    header = data.index(b"PK\x03\x04", 1)
    central = data.index(b"PK\x01\x02", data.index(b"PK\x01\x02") + 1)
    size = struct.pack("<L", 100 + 30 + 5 + 100)
    changed = bytearray(data)
    for at in (header + 18, header + 22, central + 20, central + 24):
        changed[at : at + 4] = size
    return bytes(changed)


def end(data: bytes, offset: int, value: bytes) -> bytes:
    """The end record with some bytes replaced."""
    start = len(data) - 22
    return data[: start + offset] + value + data[start + offset + len(value) :]


def json_file(text: bytes) -> bytes:
    return archive(("results/x.json", text))


def yaml_file(text: str) -> bytes:
    return archive(("config/x.yaml", text.encode()))


BOMB = "\n".join(["a0: &a0 [lol]", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 10))])
CASES: dict[str, tuple[bytes, str]] = {
    "path_traversal": (archive(("../outside.txt", b"x")), "leads out of the folder"),
    "traversal_inside": (archive(("results/../../outside.txt", b"x")), "leads out of the folder"),
    "absolute_path": (archive(("/tmp/outside.txt", b"x")), "its path is absolute"),
    "drive_letter": (archive(("C:/outside.txt", b"x")), "its path is absolute"),
    "backslashes": (archive(("..\\outside.txt", b"x")), "no plain name"),
    "dot": (archive(("./results/x.txt", b"x")), "no plain name"),
    "reserved_name": (archive(("results/CON.txt", b"x")), "Windows reserves"),
    "control_character": (archive(("results/\x1b[2Jx.txt", b"x")), "no plain name"),
    "nul_in_name": (renamed("results/x.txt", "results/x\0txt"), "NUL"),
    "long_name": (archive((f"results/{'x' * 300}.txt", b"x")), "longer than"),
    "deep_folders": (archive(("a/" * 20 + "x.txt", b"x")), "deeper than"),
    "symbolic_link": (special("results/link.txt", stat.S_IFLNK | 0o777), "a link, a device"),
    "device": (special("results/sda.txt", stat.S_IFBLK | 0o666), "a link, a device"),
    "fifo": (special("results/pipe.txt", stat.S_IFIFO | 0o666), "a link, a device"),
    "setuid": (special("results/run.txt", stat.S_IFREG | 0o4755), "special file"),
    "zip_bomb": (archive(("results/x.txt", b"\0" * (300 << 20 >> 6))), "more than 200 times its size"),
    "declared_bomb": (patched(archive(("x.txt", b"x")), central={24: b"\xf0\xff\xff\xff"}), "times its size"),
    "declared_too_small": (
        patched(archive(("x.txt", b"x" * 999)), central={24: b"\x05\0\0\0"}),
        "not a sound zip archive",
    ),
    "too_many_entries": (end(archive(("x.txt", b"x")), 8, struct.pack("<HH", 65000, 65000)), "65000 entries"),
    "duplicate": (archive(("x.txt", b"a"), ("x.txt", b"b")), "has the same name"),
    "duplicate_but_for_case": (archive(("x.txt", b"a"), ("X.TXT", b"b")), "has the same name"),
    "unicode_twins": (archive(("caf\u00e9.txt", b"a"), ("cafe\u0301.txt", b"b")), "no plain name"),
    "right_to_left": (archive(("results/x\u202etxt.exe", b"a")), "no plain name"),
    "file_and_folder": (archive(("x.txt", b"a"), ("x.txt/y.txt", b"b")), "is a file, too"),
    "overlapping_entries": (overlapping(), "overlap"),
    "encrypted": (patched(archive(("x.txt", b"x")), central={8: b"\1\0"}, local={6: b"\1\0"}), "encrypted"),
    "unknown_compression": (archive(("x.txt", b"x"), method=zipfile.ZIP_BZIP2), "compression method 12 is unknown"),
    "two_names": (renamed("x.txt", "y.txt", in_both=False), "not a sound zip archive"),
    "comment": (archive(("x.txt", b"x"), comment=b"hello"), "without comment"),
    "data_before": (b"#!/bin/sh\n" + archive(("x.txt", b"x")), "data before"),
    "zip64": (end(archive(("x.txt", b"x")), 16, b"\xff\xff\xff\xff"), "ZIP64"),
    "several_disks": (end(archive(("x.txt", b"x")), 4, b"\1\0"), "several disks"),
    "cut_off": (archive(("x.txt", b"x"))[:-9], "does not end as a zip archive"),
    "wrong_crc": (patched(archive(("x.txt", b"x" * 99)), central={16: b"\1\2\3\4"}), "not a sound zip archive"),
    "no_archive": (b"PK but no archive at all, only text", "does not end as a zip archive"),
    "empty": (b"", "not a zip archive"),
    "folder_with_content": (archive(("results/", b"content")), "folder with content"),
    "pickle": (archive(("results/x.pkl", pickle.dumps(Marker()))), "no file of this kind"),
    "executable": (archive(("results/x.so", b"\x7fELF")), "no file of this kind"),
    "deep_json": (json_file(b"[" * 100_000 + b"]" * 100_000), "nested deeper than"),
    "long_number": (json_file(b"[" + b"9" * 9_999 + b"]"), "not JSON"),
    "repeated_key": (json_file(b'{"passed": false, "passed": true}'), "key 'passed' is given twice"),
    "not_a_number": (json_file(b'{"x": NaN}'), "NaN is no JSON number"),
    "utf16_json": (json_file('{"x": 1}'.encode("utf-16")), "not UTF-8"),
    "yaml_tag": (yaml_file("!!python/object/apply:builtins.open [executed, w]"), "YAML with the tag"),
    "yaml_aliases": (yaml_file(BOMB), "anchor or alias"),
    "deep_yaml": (yaml_file("[" * 60 + "]" * 60), "nested deeper than"),
    "broken_yaml": (yaml_file("a: [1"), "not YAML"),
    "latin1_table": (archive(("results/x.csv", "größe\n".encode("latin-1"))), "not UTF-8"),
    "nul_in_table": (archive(("results/x.csv", b"a,b\0\n")), "NUL"),
    "false_png": (archive(("results/x.png", b"\x7fELF")), "not the PNG"),
}


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose sub-folder is where archives are unpacked, and the current one."""
    (tmp_path / "temporary").mkdir()
    (tmp_path / "outside.txt").write_text("untouched")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def state(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else b"" for path in folder.rglob("*")}


@pytest.mark.parametrize("name", CASES)
def test_a_malicious_archive_is_refused_and_changes_nothing(name: str, watched: Path) -> None:
    data, reason = CASES[name]
    bundle = watched / "bundle.zip"
    bundle.write_bytes(data)
    before = state(watched)
    with pytest.raises(BundleError, match=r"bundle\.zip: ") as refused, opened(bundle):
        pytest.fail("it was opened")
    assert reason in str(refused.value)
    assert state(watched) == before, "something was written and stayed"


@pytest.mark.parametrize(
    ("limit", "name", "reason"),
    [
        ("MAX_JSON_BYTES", "x.json", "JSON of 100 bytes"),
        ("MAX_YAML_BYTES", "x.yaml", "YAML of 100 bytes"),
        ("MAX_TABLE_BYTES", "x.csv", "a table of 100 bytes"),
    ],
)
def test_large_documents(limit: str, name: str, reason: str, watched: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, limit, 99)
    (watched / "bundle.zip").write_bytes(archive((name, b" " * 100)))
    with pytest.raises(BundleError, match=reason), opened(watched / "bundle.zip"):
        pass


def test_the_sum_of_all_files_is_limited(watched: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "MAX_TOTAL_BYTES", 150)
    (watched / "bundle.zip").write_bytes(archive(("x.txt", b"x" * 100), ("y.txt", b"y" * 100)))
    with pytest.raises(BundleError, match="unpacks to 202 bytes, more than 150"), opened(watched / "bundle.zip"):
        pass


def test_an_archive_without_a_study_is_none(watched: Path) -> None:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as made:
        made.writestr("README.md", "nothing")
    (watched / "bundle.zip").write_bytes(stream.getvalue())
    with pytest.raises(BundleError, match=r"has no study\.json"), opened(watched / "bundle.zip"):
        pass


def test_what_the_writer_packs_is_read_and_then_gone(watched: Path) -> None:
    files = {**STUDY, "results/a b.txt": b"\0any bytes\xff", "results/dense.log": b"the same line\n" * 400_000}
    pack(files, watched / "bundle.zip")
    with opened(watched / "bundle.zip") as root:
        assert {
            path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()
        } == files
    assert not list((watched / "temporary").iterdir())


def test_archives_of_other_programs_are_read(watched: Path) -> None:
    """With entries for folders, other dates and other levels of compression."""
    with zipfile.ZipFile(watched / "bundle.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=9) as made:
        made.mkdir("results")
        made.writestr("results/x.json", json.dumps({"x": [1, 2]}))
        made.writestr("study.json", "{}")
    with opened(watched / "bundle.zip") as root:
        assert (root / "results/x.json").read_text() == '{"x": [1, 2]}'


@pytest.mark.parametrize("name", ["results/runs/a/b/n1/result_0.txt", "config/rounds/1.1.0.yaml", "a b/c (2)~.txt"])
def test_plain_names(name: str) -> None:
    assert check_name(name) == ""
