"""LibriSpeech's preparation on miniature archives of its layout, and the synthesisers that speak them."""

from __future__ import annotations

import dataclasses
import io
import json
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
import soundfile
import tiny_runs
from mlscaling.datasets import librispeech, preparation, raw, tars
from mlscaling.datasets.tiny import speech
from mlscaling.spec import DatasetSpec

MINIATURE = {"train_samples": 24, "eval_samples": 6, "train_speakers": 6, "eval_speakers": 2}


def miniature(**changes) -> DatasetSpec:
    """Few utterances in all four archives."""
    options = {**MINIATURE, **changes.pop("options", {})}
    return tiny_runs.dataset_spec("librispeech_digits", counts={"train": 24, "eval": 6}, options=options, **changes)


def prepare(spec: DatasetSpec, folder: Path, **options) -> dict:
    names = {"raw_dir": folder / "raw", "data_dir": folder / "data", "manifest": folder / "manifest.json"}
    preparation.prepare_dataset(spec, **names, **options)
    return json.loads((folder / "manifest.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict]:
    folder = tmp_path_factory.mktemp("miniature")
    return folder, prepare(miniature(), folder)


@pytest.fixture
def brought(made, tmp_path: Path) -> DatasetSpec:
    """The same archives, without checksums, as if a user had brought them; they may be damaged."""
    shutil.copytree(made[0] / "raw", tmp_path / "raw")
    (tmp_path / "raw" / raw.CHECKSUMS).unlink()
    names = [librispeech.archive_name(part) for part in librispeech.PARTS]
    return dataclasses.replace(miniature(), generator="", raw={name: {} for name in names}, source="openslr.org")


Files = dict[str, bytes]


def rewrite(folder: Path, part: str, change: Callable[[Files], None]) -> None:
    """Change the members of an archive."""
    archive = folder / "raw" / librispeech.archive_name(part)
    with tars.opened(archive) as members:
        files = {
            member.name.removeprefix("LibriSpeech/"): tars.content(members, member).read()
            for member in tars.files(members)
        }
    change(files)
    speech.write_archive(archive, files)


def first(files: Files, suffix: str) -> str:
    return next(name for name in files if name.endswith(suffix))


def flac(*, rate: int = 16_000, channels: int = 1, seconds: float = 0.5) -> bytes:
    buffer = io.BytesIO()
    sound = np.random.default_rng(0).normal(0, 0.1, (round(rate * seconds), channels))
    soundfile.write(buffer, sound, rate, format="FLAC")
    return buffer.getvalue()


# --- what is prepared ------------------------------------------------------------------------------------------------


def test_each_utterance_has_the_samples_and_words_of_its_archive(made) -> None:
    from tokenizers import Tokenizer

    folder, manifest = made
    assert manifest["splits"] == {"train": 24, "eval": 6}
    assert manifest["options"]["synthesiser"] == "formant"
    tokenizer = Tokenizer.from_file(str(folder / "data" / librispeech.TOKENIZER))
    parts = list(librispeech.PARTS)
    said = {}
    for split in ("train", "eval"):
        with h5py.File(folder / "data" / f"{split}.hdf5") as file:
            starts = [0, *file["token_ends"][:-1]]
            for row, (part, start, length) in enumerate(
                zip(file["part"], file["start"], file["num_samples"], strict=True)
            ):
                sound = np.fromfile(folder / "data" / f"{parts[part]}.pcm", "<i2")[start : start + length]
                said[sound.tobytes()] = tokenizer.decode(file["tokens"][starts[row] : file["token_ends"][row]].tolist())
    found = 0
    for part in parts:
        with tarfile.open(folder / "raw" / f"{part}.tar.gz") as archive:
            files = {member.name: archive.extractfile(member).read() for member in archive}
        texts = {}
        for name, content in files.items():
            if name.endswith(".trans.txt"):
                texts |= dict(line.split(" ", 1) for line in content.decode().splitlines())
        for name, content in files.items():
            if name.endswith(".flac"):
                sound, rate = soundfile.read(io.BytesIO(content), dtype="int16")
                key = librispeech.trimmed(sound, cutoff_db=60).tobytes()
                assert rate == librispeech.SAMPLE_RATE
                assert said[key] == texts[Path(name).stem].lower()
                found += 1
    assert found == len(said) == 30


def test_equal_requests_give_equal_bytes_with_any_number_of_threads(made, tmp_path: Path) -> None:
    assert prepare(miniature(), tmp_path, num_processes=3) == made[1]


def test_an_interrupted_preparation_continues_with_the_next_archive(brought, tmp_path: Path, monkeypatch) -> None:
    real, begun = librispeech.unpack, []

    def interrupted(archive: Path, **options) -> None:
        begun.append(options["part"])
        if len(begun) == 3:
            (options["out_dir"] / f"{options['part']}.pcm.partial").write_bytes(b"half")
            raise KeyboardInterrupt
        real(archive, **options)

    monkeypatch.setattr(librispeech, "unpack", interrupted)
    with pytest.raises(KeyboardInterrupt):
        prepare(brought, tmp_path)
    prepare(brought, tmp_path)
    assert begun == [*librispeech.PARTS][:3] + [*librispeech.PARTS][2:]
    assert not list((tmp_path / "data").glob("*.partial"))


@pytest.mark.parametrize(("cutoff_db", "kept"), [(60, 2_047), (20, 2_027)])
def test_silence_is_cut_off_at_both_ends(cutoff_db: float, kept: int) -> None:
    """A window of 2048 samples is loud with one loud sample at 60 dB, with one in a hundred at 20 dB."""
    sound = np.zeros(20_000, dtype=np.int16)
    sound[8_000:12_000] = 8_000
    assert librispeech.trimmed(sound, cutoff_db=cutoff_db).tolist() == sound[8_000 - kept : 12_000 + kept].tolist()


@pytest.mark.parametrize("length", [1, 2_048, 5_000])
def test_what_is_nowhere_silent_stays(length: int) -> None:
    noise = np.random.default_rng(0).integers(-9, 10, length).astype(np.int16)
    assert librispeech.trimmed(noise, cutoff_db=60).tolist() == noise.tolist()


def test_training_utterances_may_not_be_long_those_to_evaluate_may(brought, tmp_path: Path) -> None:
    def longer(files: Files) -> None:
        files[first(files, ".flac")] = flac(seconds=17)

    for part in ("train-clean-100", "dev-clean"):
        rewrite(tmp_path, part, longer)
    counts = {"train": 23, "eval": 6}
    spec = dataclasses.replace(brought, counts=counts, options={**brought.options, "train_samples": 0})
    assert prepare(spec, tmp_path)["splits"] == counts


def test_utterances_beyond_the_wanted_number_are_left_out_evenly(brought, tmp_path: Path) -> None:
    spec = dataclasses.replace(brought, counts={"train": 12}, options={**brought.options, "train_samples": 12})
    prepare(spec, tmp_path)
    with h5py.File(tmp_path / "data" / "train.hdf5") as file:
        assert len(file["start"]) == 12
        assert len(set(file["part"][:])) == 3


# --- what is refused -------------------------------------------------------------------------------------------------


def half(files: Files) -> None:
    name = first(files, ".flac")
    files[name] = files[name][: len(files[name]) // 2]


def another_rate(files: Files) -> None:
    files[first(files, ".flac")] = flac(rate=8_000)


def two_channels(files: Files) -> None:
    files[first(files, ".flac")] = flac(channels=2)


def no_flac(files: Files) -> None:
    files[first(files, ".flac")] = b"RIFF"


def empty_transcript(files: Files) -> None:
    name = first(files, ".trans.txt")
    lines = files[name].decode().splitlines()
    files[name] = "\n".join([lines[0], lines[1].split(" ")[0] + "  "]).encode()


def missing_transcript(files: Files) -> None:
    files[first(files, ".trans.txt")] = b""


def missing_flac(files: Files) -> None:
    del files[first(files, ".flac")]


def other_letters(files: Files) -> None:
    name = first(files, ".trans.txt")
    files[name] = files[name].replace(b"\n", b" ZEBRA\n")


@pytest.mark.parametrize(
    ("part", "change", "message"),
    [
        ("train-clean-360", half, r"train-clean-360.tar.gz, member LibriSpeech/.*\.flac cannot be decoded"),
        ("train-clean-100", another_rate, r"member .*\.flac has 1 channel\(s\) at 8000 Hz; LibriSpeech has one at 16000 Hz"),
        ("dev-clean", two_channels, r"dev-clean.tar.gz, member .*\.flac has 2 channel\(s\) at 16000 Hz"),
        ("dev-clean", no_flac, r"\.flac cannot be decoded"),
        ("train-other-500", empty_transcript, r"\.trans\.txt:2: utterance '.*-.*-.*' has an empty transcript"),
        ("dev-clean", missing_transcript, r"dev-clean.tar.gz: \d utterances have no transcript: \d+-\d+-\d+"),
        ("dev-clean", missing_flac, r"dev-clean.tar.gz: 1 utterances have no FLAC file: \d+-\d+-\d+"),
        ("dev-clean", other_letters, r"dev-clean.tar.gz, utterance .*zebra' cannot be spelt in the training vocabulary"),
        ("train-clean-100", missing_transcript, r"train-clean-100.tar.gz: \d utterances have no transcript"),
    ],
)  # fmt: skip
def test_damage_is_named_with_archive_and_member(brought, tmp_path: Path, part: str, change, message: str) -> None:
    rewrite(tmp_path, part, change)
    with pytest.raises(ValueError, match=message):
        prepare(brought, tmp_path)
    assert not (tmp_path / "manifest.json").exists()


@pytest.mark.parametrize("kept", [0.3, 0.999])
def test_a_truncated_archive_is_named(brought, tmp_path: Path, kept: float) -> None:
    path = tmp_path / "raw" / "train-clean-360.tar.gz"
    path.write_bytes(path.read_bytes()[: round(kept * path.stat().st_size)])
    with pytest.raises(ValueError, match=f"{path} is no whole tar archive"):
        prepare(brought, tmp_path)


def test_a_wrong_checksum_is_named_with_expected_and_found(brought, tmp_path: Path) -> None:
    name = "dev-clean.tar.gz"
    known = tiny_runs.dataset_spec("librispeech").raw[name]["md5"]
    found = raw.digests(tmp_path / "raw" / name, algorithms=["md5"])["md5"]
    spec = dataclasses.replace(brought, raw={**brought.raw, name: {"md5": known}})
    with pytest.raises(
        ValueError, match=f"{name} is damaged.*expected md5 {known}, found {found}. Given out by: openslr.org"
    ):
        prepare(spec, tmp_path)


def test_too_few_utterances_and_too_little_space_are_said(brought, tmp_path: Path, monkeypatch) -> None:
    spec = dataclasses.replace(brought, options={**brought.options, "train_samples": 25})
    with pytest.raises(ValueError, match=r"give 24 utterances for split 'train', but options\.train_samples is 25"):
        prepare(spec, tmp_path)
    monkeypatch.setattr(librispeech.shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10, 9, 1))
    with pytest.raises(ValueError, match=r"has 0.0 GB free; train-clean-100, .*dev-clean need about 0.0 GB"):
        prepare(brought, tmp_path)


# --- synthesisers ----------------------------------------------------------------------------------------------------


def test_no_speaker_of_the_evaluation_set_speaks_in_training(made) -> None:
    speakers = {}
    for part in librispeech.PARTS:
        with tarfile.open(made[0] / "raw" / f"{part}.tar.gz") as archive:
            names = [member.name.split("/") for member in archive]
        speakers[part] = {name[2] for name in names if len(name) == 5}
        assert {tuple(name[:2]) for name in names if len(name) == 5} == {("LibriSpeech", part)}
    assert [len(found) for found in speakers.values()] == [2, 2, 2, 2]
    assert len(set.union(*speakers.values())) == 8


def test_windows_of_the_built_in_synthesiser_add_up() -> None:
    sound = np.random.default_rng(0).normal(size=1000)
    count = -(-(len(sound) + 2 * speech.WINDOW) // speech.HOP)
    assert np.allclose(speech.sound_of(speech.spectra(sound, count))[:1000], sound)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"synthesiser": "festival"}, "options.synthesiser 'festival' is unknown; legal: formant, espeak-ng"),
        ({"synthesiser": "espeak-ng"}, "'espeak-ng', but that program is not installed"),
        ({"synthesiser": "espeak-ng", "eval_speakers": 5}, "eval_speakers 5; espeak-ng has at most 4 voices"),
    ],
)
def test_synthesisers_that_cannot_speak(tmp_path: Path, monkeypatch, options, message: str) -> None:
    monkeypatch.setattr(speech.shutil, "which", lambda name: None if "not installed" in message else "/bin/espeak-ng")
    with pytest.raises(ValueError, match=message):
        prepare(miniature(options=options), tmp_path)


def test_espeak_speaks_where_it_is_installed(tmp_path: Path) -> None:
    if shutil.which("espeak-ng") is None:
        pytest.skip("espeak-ng is not installed")
    options = {
        "synthesiser": "espeak-ng",
        "train_samples": 12,
        "eval_samples": 1,
        "train_speakers": 3,
        "eval_speakers": 1,
    }
    spec = dataclasses.replace(miniature(options=options), counts={"train": 12, "eval": 1})
    assert prepare(spec, tmp_path)["options"]["synthesiser"] == "espeak-ng"
    with tarfile.open(tmp_path / "raw" / "dev-clean.tar.gz") as archive:
        assert b": m6\n" in archive.extractfile("LibriSpeech/SPEAKERS.TXT").read()
