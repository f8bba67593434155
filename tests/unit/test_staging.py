"""Data staged to a node: copied once, verified each time; what is damaged is named with whose fault it is."""

from __future__ import annotations

import hashlib
import json
import resource
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from mlscaling.datasets.preparation import contents
from mlscaling.staging import StagingError, have_copy, staged_folder

TRAIN = Path(__file__).resolve().parents[2] / "workflow" / "scripts" / "train.py"
FILES = {"train/a.bin": b"a" * 5000, "train/deep/b c.bin": b"b" * 70_000, "val.txt": b"", "é.txt": b"x"}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "data" / "imagenet"
    for name, content in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    lines = [f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in sorted(FILES.items())]
    (folder / "SHA256SUMS").write_text("".join(lines))
    (folder / "prepared.json").write_text("{}")
    (tmp_path / "manifest.json").write_text(json.dumps(contents(folder)))
    return folder


def digest_of(source: Path) -> str:
    return json.loads((source.parents[1] / "manifest.json").read_text())["files_digest"]


def target_of(source: Path) -> Path:
    return staged_folder(
        str(source.parents[1] / "local"), data_dir=source, manifest=source.parents[1] / "manifest.json"
    )  # fmt: skip


def stage(source: Path) -> dict[str, int]:
    return have_copy(source, target_of(source), files_digest=digest_of(source))


def assert_whole(source: Path) -> None:
    target = target_of(source)
    found = {path.relative_to(target).as_posix() for path in target.rglob("*") if path.is_file()}
    assert found == {*FILES, "SHA256SUMS", "prepared.json"}
    assert all((target / name).read_bytes() == content for name, content in FILES.items())
    assert [path.name for path in target.parent.iterdir() if not path.name.startswith(".")] == [target.name]


def test_without_a_folder_to_stage_to_ranks_read_where_the_data_lie(source: Path) -> None:
    assert staged_folder("", data_dir=source, manifest=None) == source
    with pytest.raises(ValueError, match="needs the manifest"):
        staged_folder("/local", data_dir=source, manifest=None)
    assert target_of(source).name == f"imagenet-{digest_of(source)[:16]}"


def test_everything_is_copied_once_and_then_verified(source: Path) -> None:
    assert stage(source) == {"files": 4, "copied": 4}
    assert stage(source) == {"files": 4, "copied": 0}
    assert_whole(source)


def damaged_there(source: Path) -> None:
    path = target_of(source) / "train/a.bin"
    path.write_bytes(b"A" + path.read_bytes()[1:])


def lost_there(source: Path) -> None:
    (target_of(source) / "val.txt").unlink()


def interrupted(source: Path) -> None:
    """As a copy that was killed leaves it: whole files, half a file, and the one that was being written."""
    partial = target_of(source).with_name(f"{target_of(source).name}.partial")
    target_of(source).rename(partial)
    (partial / "train/a.bin").write_bytes(b"a" * 100)
    (partial / "train/deep/.b c.bin.7.tmp").write_bytes(b"b" * 100)


@pytest.mark.parametrize("harm", [damaged_there, lost_there, interrupted])
def test_only_what_is_not_whole_is_copied_again(source: Path, harm: Callable[[Path], None]) -> None:
    stage(source)
    harm(source)
    assert stage(source) == {"files": 4, "copied": 1}
    assert_whole(source)


def test_a_lost_source_does_not_matter_to_a_whole_copy_but_its_list_does(source: Path) -> None:
    stage(source)
    (source / "train/a.bin").unlink()
    assert stage(source)["copied"] == 0
    (source / "SHA256SUMS").unlink()
    with pytest.raises(StagingError, match="SHA256SUMS: No such file"):
        stage(source)


def changed_source(source: Path) -> None:
    (source / "train/a.bin").write_bytes(b"c" * 5000)


def lost_source(source: Path) -> None:
    (source / "train/a.bin").unlink()


def prepared_anew(source: Path) -> None:
    (source / "SHA256SUMS").write_text("")


def no_folder(source: Path) -> None:
    (source.parents[1] / "local").write_text("a file stands in the way")


@pytest.mark.parametrize(
    ("harm", "failure_class", "message"),
    [
        (changed_source, "data", r"imagenet/train/a\.bin has another checksum than in the manifest"),
        (lost_source, "data", r"imagenet/train/a\.bin: No such file"),
        (prepared_anew, "data", r"SHA256SUMS is not the list of the manifest's files; prepare .*--forcerun"),
        (no_folder, "node", r"local/imagenet-\w{16}: (Not a directory|File exists)"),
    ],
)
def test_whose_fault_it_is_and_the_file(
    source: Path, harm: Callable[[Path], None], failure_class: str, message: str
) -> None:
    harm(source)
    with pytest.raises(StagingError, match=message) as error:
        stage(source)
    assert error.value.failure_class == failure_class
    assert not target_of(source).is_dir()


# --- as processes on nodes --------------------------------------------------------------------------------------------


def started(source: Path, *, limit_bytes: int = resource.RLIM_INFINITY) -> subprocess.Popen[str]:
    paths = [f"--source={source}", f"--target={target_of(source)}", f"--files-digest={digest_of(source)}"]
    return subprocess.Popen(
        [sys.executable, str(TRAIN), "stage", *paths],
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, limit_bytes)),
    )


def said(process: subprocess.Popen[str]) -> dict[str, object]:
    output, _ = process.communicate(timeout=60)
    return json.loads(output.removeprefix("mlscaling staging "))


def test_two_jobs_on_a_node_share_one_copy(source: Path) -> None:
    both = [said(process) for process in [started(source), started(source)]]
    assert sorted(node["copied"] for node in both) == [0, 4]
    assert {node["host"] for node in both} == {socket.gethostname()}
    assert all(node["seconds"] >= 0 for node in both)
    assert_whole(source)


def test_a_node_that_cannot_write_says_which_node_and_file(source: Path) -> None:
    process = started(source, limit_bytes=10_000)
    node = said(process)
    assert process.returncode == 1
    assert node["failure_class"] == "node"
    assert node["message"].startswith(f"{socket.gethostname()}: ")
    assert node["message"].endswith("train/deep/b c.bin: File too large")
