"""Preparation of datasets: the tiny archives go through the real code, and every damage has a clear answer."""

from __future__ import annotations

import dataclasses
import gzip
import io
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest
import tiny_runs
from mlscaling.datasets import imagenet, preparation, raw, wikipedia
from mlscaling.datasets.pretraining import Example, Limits, Vocabulary, examples
from mlscaling.datasets.tiny import digits as tiny_digits
from mlscaling.spec import DatasetSpec
from PIL import Image

TINY = ("coco_shapes", "imagenet_digits", "wikipedia_closed_world")


def prepare(spec: DatasetSpec, folder: Path) -> dict:
    manifest = folder / "manifest.json"
    preparation.prepare_dataset(spec, raw_dir=folder / "raw", data_dir=folder / "data", manifest=manifest)
    return json.loads(manifest.read_text(encoding="utf-8"))


@pytest.fixture(scope="module", params=TINY)
def tiny(request, tmp_path_factory: pytest.TempPathFactory) -> tuple[DatasetSpec, Path, dict]:
    spec, folder = tiny_runs.dataset_spec(request.param), tmp_path_factory.mktemp(request.param)
    return spec, folder, prepare(spec, folder)


@pytest.mark.parametrize("path", sorted((tiny_runs.ROOT / "config" / "datasets").glob("*.yaml")), ids=lambda p: p.stem)
def test_every_configured_dataset_has_a_preparation_and_raw_files_or_their_maker(path: Path) -> None:
    spec = tiny_runs.dataset_spec(path.stem)
    assert (tiny_runs.SCRIPTS / "mlscaling" / "datasets" / f"{spec.format}.py").is_file()
    if spec.format != "external":
        assert bool(spec.raw) != bool(spec.generator), "raw files are brought by the user or generated, not both"
    if spec.generator:
        assert (tiny_runs.SCRIPTS / "mlscaling" / "datasets" / "tiny" / f"{spec.generator}.py").is_file()
    assert spec.source
    assert spec.counts


# --- a whole preparation ---------------------------------------------------------------------------------------------


def test_manifest_tells_everything_and_no_time(tiny) -> None:
    spec, folder, manifest = tiny
    assert manifest.keys() == {
        "schema_version", "dataset", "format", "splits", "bytes", "raw", "files_digest", "options", "made_by",
    }  # fmt: skip
    assert manifest["splits"] == dict(spec.counts)
    assert manifest["options"] == dict(spec.options)
    assert manifest["bytes"] > 100_000
    for name, known in manifest["raw"].items():
        path = folder / "raw" / name
        assert known == {
            "sha256": raw.digests(path, algorithms=["sha256"])["sha256"],
            "size_bytes": path.stat().st_size,
        }


def test_equal_requests_give_equal_bytes(tiny, tmp_path: Path) -> None:
    spec, _, manifest = tiny
    assert prepare(spec, tmp_path) == manifest


def test_several_processes_give_the_same_bytes(tmp_path: Path, articles: Path) -> None:
    spec = tiny_runs.dataset_spec("wikipedia_closed_world")
    names = {"raw_dir": tmp_path / "raw", "data_dir": tmp_path / "data", "manifest": tmp_path / "m.json"}
    preparation.prepare_dataset(spec, num_processes=2, **names)
    assert preparation.contents(tmp_path / "data") == preparation.contents(articles)


def test_a_finished_dataset_is_verified_and_not_made_again(tiny) -> None:
    spec, folder, manifest = tiny
    before = {path: path.stat().st_mtime_ns for path in (folder / "data").rglob("*")}
    (folder / "manifest.json").unlink()
    assert prepare(spec, folder) == manifest
    assert {path: path.stat().st_mtime_ns for path in (folder / "data").rglob("*")} == before


def test_changed_prepared_data_is_made_again(tiny, tmp_path: Path) -> None:
    spec, folder, manifest = tiny
    victim = max(
        (path for path in (folder / "data").rglob("*") if path.suffix in (".JPEG", ".hdf5", ".jpegs")), key=str
    )
    content = victim.read_bytes()
    victim.write_bytes(content[:-1] + b"?")
    assert prepare(spec, folder) == manifest
    assert victim.read_bytes() == content


def test_an_interrupted_preparation_continues(tmp_path: Path, monkeypatch) -> None:
    spec, made = tiny_runs.dataset_spec("wikipedia_closed_world"), []
    real = wikipedia.make_shard

    def dies_at_second(shard: wikipedia.Shard) -> None:
        if shard.number == 1 and len(made) == 1:
            made.append("died")
            raise KeyboardInterrupt
        made.append(shard.number)
        real(shard)

    monkeypatch.setattr(wikipedia, "make_shard", dies_at_second)
    with pytest.raises(KeyboardInterrupt):
        prepare(spec, tmp_path)
    assert not (tmp_path / "manifest.json").exists()
    assert not (tmp_path / "data").exists()
    prepare(spec, tmp_path)
    assert made == [0, "died", 1], "the first shard is kept"


def test_classes_already_unpacked_are_kept(tmp_path: Path) -> None:
    spec = tiny_runs.dataset_spec("imagenet_digits")
    preparation.generate_raw(spec, raw_dir=tmp_path)
    archive = tmp_path / imagenet.TRAIN
    imagenet.extract_train(archive, out_dir=tmp_path / "train")
    kept = tmp_path / "train" / "n90000003"
    (kept / "mark").touch()
    (tmp_path / "train" / "n90000004").rename(tmp_path / "train" / "n90000004.partial")
    imagenet.extract_train(archive, out_dir=tmp_path / "train")
    assert (kept / "mark").exists()
    assert len(list((tmp_path / "train").iterdir())) == 10


# --- raw files -------------------------------------------------------------------------------------------------------


def published(tmp_path: Path) -> DatasetSpec:
    """A dataset whose raw files are brought by the user, as at full scale."""
    tiny = tiny_runs.dataset_spec("imagenet_digits")
    preparation.generate_raw(tiny, raw_dir=tmp_path / "raw")
    known = {
        name: {
            "md5": raw.digests(tmp_path / "raw" / name, algorithms=["md5"])["md5"],
            "size_bytes": (tmp_path / "raw" / name).stat().st_size,
        }
        for name in (imagenet.TRAIN, imagenet.VAL, imagenet.DEVKIT)
    }
    (tmp_path / "raw" / raw.CHECKSUMS).unlink()
    return dataclasses.replace(tiny, generator="", raw=known, source="https://example.org/imagenet")


def test_raw_files_with_published_md5_are_accepted(tmp_path: Path) -> None:
    assert prepare(published(tmp_path), tmp_path)["splits"] == {"train": 1536, "val": 261}


def test_missing_raw_files_are_all_named_with_checksum_and_source(tmp_path: Path) -> None:
    spec = published(tmp_path)
    for name in (imagenet.TRAIN, imagenet.VAL):
        (tmp_path / "raw" / name).unlink()
    with pytest.raises(FileNotFoundError) as found:
        prepare(spec, tmp_path)
    for name in (imagenet.TRAIN, imagenet.VAL):
        assert f"{name} (md5 {spec.raw[name]['md5']}, size_bytes {spec.raw[name]['size_bytes']})" in str(found.value)
    assert "Given out by: https://example.org/imagenet" in str(found.value)


@pytest.mark.parametrize(("what", "damage"), [("md5", lambda b: b[:-1] + b"x"), ("size", lambda b: b[:-512])])
def test_damaged_raw_file_is_named_with_expected_and_found(tmp_path: Path, what: str, damage) -> None:
    spec = published(tmp_path)
    path = tmp_path / "raw" / imagenet.VAL
    path.write_bytes(damage(path.read_bytes()))
    expected = spec.raw[imagenet.VAL]["md5" if what == "md5" else "size_bytes"]
    found = raw.digests(path, algorithms=["md5"])["md5"] if what == "md5" else path.stat().st_size
    with pytest.raises(ValueError, match=f"{path} is damaged.*expected {what} {expected}, found {found}.*example.org"):
        prepare(spec, tmp_path)
    assert not (tmp_path / "manifest.json").exists()


def test_damaged_generated_archive_says_how_to_get_it_again(tmp_path: Path) -> None:
    spec = tiny_runs.dataset_spec("wikipedia_closed_world")
    preparation.generate_raw(spec, raw_dir=tmp_path / "raw")
    with (tmp_path / "raw" / wikipedia.TEXT).open("ab") as file:
        file.write(b"x")
    with pytest.raises(ValueError, match=r"text.tar is damaged.*expected sha256 .*delete its folder and run again"):
        prepare(spec, tmp_path)


@pytest.mark.parametrize("name", [imagenet.TRAIN, imagenet.VAL, imagenet.DEVKIT])
def test_truncated_archive_without_a_checksum_is_named(tmp_path: Path, name: str) -> None:
    spec = published(tmp_path)
    spec = dataclasses.replace(spec, raw={file: {} for file in spec.raw})
    path = tmp_path / "raw" / name
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(ValueError, match=f"{name}"):
        prepare(spec, tmp_path)


def test_other_counts_than_expected_are_an_error(tmp_path: Path) -> None:
    spec = tiny_runs.dataset_spec("imagenet_digits", counts={"train": 1537, "val": 261})
    with pytest.raises(ValueError, match="split 'train': expected 1537 samples, found 1536"):
        prepare(spec, tmp_path)
    assert not (tmp_path / "manifest.json").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": "imagnet"}, "dataset format 'imagnet' is unknown; known: .*imagenet.*wikipedia"),
        ({"generator": "digit"}, "generator 'digit' is unknown; known: closed_world, digits.*speech"),
    ],
)
def test_unknown_names_list_what_exists(tmp_path: Path, changes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        prepare(dataclasses.replace(tiny_runs.dataset_spec("imagenet_digits"), **changes), tmp_path)


def test_too_little_text_is_an_error(tmp_path: Path) -> None:
    spec = tiny_runs.dataset_spec("wikipedia_closed_world", options={"articles": 64})
    with pytest.raises(ValueError, match=r"text.tar gives \d+ examples for shard 0 .*train_samples 3072 needs 1536"):
        prepare(spec, tmp_path)


# --- ImageNet --------------------------------------------------------------------------------------------------------


def test_images_are_in_the_folder_of_their_class(digits: Path) -> None:
    from sklearn.datasets import load_digits

    spec = tiny_runs.dataset_spec("imagenet_digits")
    order = np.random.default_rng(spec.options["seed"]).permutation(1797)
    targets = load_digits().target
    for path in (digits / "train").glob("*/*.JPEG"):
        number = int(path.stem.partition("_")[2])
        assert path.parent.name == f"n9000000{targets[number]}"
        assert path.stem.startswith(path.parent.name)
    for path in (digits / "val").glob("*/*.JPEG"):
        number = int(path.stem.rpartition("_")[2])
        assert path.parent.name == f"n9000000{targets[order[1536 + number - 1]]}"


def test_cmyk_and_grey_images_are_prepared_as_they_are_and_read_as_rgb(tmp_path: Path) -> None:
    """ImageNet holds both; the loader converts."""
    from mlscaling.workloads import workload_by_name
    from mlscaling.workloads.base import Request

    files = {}
    for mode in ("L", "CMYK", "RGB"):
        buffer = io.BytesIO()
        Image.new(mode, (50, 40), 128 if mode == "L" else (128,) * len(mode)).save(buffer, "JPEG")
        files[f"n90000000_{mode}.JPEG"] = buffer.getvalue()
    archive = tmp_path / imagenet.TRAIN
    archive.write_bytes(tiny_digits.tarred([("n90000000.tar", tiny_digits.tarred(files.items()))]))
    imagenet.extract_train(archive, out_dir=tmp_path / "train")
    assert imagenet.write_list(tmp_path, split="train") == 3
    samples = workload_by_name("resnet", tiny_runs.run_spec("resnet", data_dir=tmp_path)).samples("train")
    images, _ = samples[Request(0, np.arange(3))]
    assert images.shape == (3, 3, 48, 48)


def test_devkit_without_ground_truth_is_named(tmp_path: Path) -> None:
    path = tmp_path / imagenet.DEVKIT
    path.write_bytes(gzip.compress(tiny_digits.tarred([(f"kit/{imagenet.META}", b"")])))
    with pytest.raises(ValueError, match=f"{path}: {imagenet.GROUND_TRUTH} is missing"):
        imagenet.validation_classes(path)


def test_image_without_a_line_in_the_ground_truth_is_named(tmp_path: Path) -> None:
    (tmp_path / imagenet.DEVKIT).write_bytes(tiny_digits.devkit([1, 2]))
    (tmp_path / imagenet.VAL).write_bytes(tiny_digits.tarred([("ILSVRC2012_val_00000003.JPEG", b"x")]))
    with pytest.raises(ValueError, match=r"ILSVRC2012_val_00000003.JPEG has no line in the ground truth"):
        imagenet.extract_val(tmp_path / imagenet.VAL, devkit=tmp_path / imagenet.DEVKIT, out_dir=tmp_path / "val")


def test_a_class_of_only_one_split_is_an_error(tmp_path: Path) -> None:
    (tmp_path / imagenet.DEVKIT).write_bytes(tiny_digits.devkit([1]))
    (tmp_path / imagenet.VAL).write_bytes(tiny_digits.tarred([("ILSVRC2012_val_00000001.JPEG", b"x")]))
    inner = [(f"n9000000{n}.tar", tiny_digits.tarred([(f"n9000000{n}_1.JPEG", b"x")])) for n in (0, 1)]
    (tmp_path / imagenet.TRAIN).write_bytes(tiny_digits.tarred(inner))
    spec = tiny_runs.dataset_spec("imagenet_digits")
    with pytest.raises(ValueError, match="classes of only one split: n90000001"):
        imagenet.prepare(spec, raw_dir=tmp_path, out_dir=tmp_path / "out")


# --- Wikipedia -------------------------------------------------------------------------------------------------------


def test_articles_are_read_as_wikiextractor_writes_them() -> None:
    text = (
        '<doc id="12" url="https://en.wikipedia.org/wiki?curid=12" title="Anarchism">\nAnarchism\n\n'
        "Anarchism is old. It has 3 parts! Is it?\n\nDr. Who\n\n</doc>\n"
        '<doc id="39" url="https://en.wikipedia.org/wiki?curid=39" title="Albedo">\nAlbedo\n\n\n\n</doc>\n'
    )
    found = [(article.identifier, article.sentences) for article in wikipedia.parsed(text)]
    sentences = ("Anarchism is old.", "It has 3 parts!", "Is it?", "Dr.", "Who")
    assert found == [("12", sentences)], "an article without text is none"


def test_vocabulary_begins_with_the_special_tokens_and_has_no_unknown_words(articles: Path) -> None:
    import h5py

    words = (articles / wikipedia.VOCABULARY).read_text().split()
    assert words[:5] == list(wikipedia.SPECIAL_TOKENS)
    assert len(words) == tiny_runs.configuration("workloads", "bert")["scales"]["tiny"]["model"]["vocab_size"]
    for path in articles.glob("*.hdf5"):
        with h5py.File(path) as file:
            tokens = file["input_ids"][:]
            assert tokens.max() < len(words)
            assert (tokens != words.index("[UNK]")).all()


def test_a_vocabulary_among_the_raw_files_is_taken(tmp_path: Path) -> None:
    (tmp_path / wikipedia.VOCABULARY).write_text("[PAD]\n[UNK]\n")
    out = tmp_path / "out"
    out.mkdir()
    spec = tiny_runs.dataset_spec("wikipedia")
    wikipedia.make_vocabulary(spec, raw_dir=tmp_path, out_dir=out)
    assert (out / wikipedia.VOCABULARY).read_text() == "[PAD]\n[UNK]\n"


def test_held_out_articles_are_the_wanted_share() -> None:
    held = sum(wikipedia.is_held_out(str(number), share=0.1) for number in range(20_000))
    assert 0.09 < held / 20_000 < 0.11


LIMITS = Limits(max_seq_length=32, max_predictions=5)
VOCABULARY = Vocabulary(size=1000, cls=2, sep=3, mask=4, first_word=5)


def made(num_articles: int = 60, *, seed: int = 0, limits: Limits = LIMITS) -> tuple[list, list[Example]]:
    """Articles in which a token tells its article and its place, and their examples."""
    from random import Random

    draw = Random(seed)
    texts = []
    for number in range(num_articles):
        first = 5 + 16 * number
        texts.append(
            [[first + draw.randrange(16) for _ in range(draw.randint(3, 9))] for _ in range(draw.randint(1, 12))]
        )
    return texts, list(examples(texts, limits=limits, vocabulary=VOCABULARY, draw=draw))


def test_examples_have_the_references_shape() -> None:
    _, found = made()
    assert len(found) > 100
    for row in found:
        length = sum(row.input_mask)
        assert row.input_mask == [1] * length + [0] * (32 - length)
        assert row.input_ids[0] == VOCABULARY.cls
        assert row.input_ids[length - 1] == VOCABULARY.sep
        assert row.input_ids.count(VOCABULARY.sep) == 2
        assert row.input_ids[length:] == [0] * (32 - length)
        first = row.segment_ids.index(1)
        assert row.input_ids[first - 1] == VOCABULARY.sep
        assert row.segment_ids == [0] * first + [1] * (length - first) + [0] * (32 - length)
        masked = sum(label != 0 for label in row.masked_lm_ids)
        assert masked == min(5, max(1, round(0.15 * length)))
        assert len(row.masked_lm_ids) == len(row.masked_lm_positions) == 5
        positions = row.masked_lm_positions[:masked]
        assert positions == sorted(set(positions))
        assert not {0, first - 1, length - 1} & set(positions), "special tokens are never masked"


def test_next_sentences_are_of_the_same_article_if_the_label_says_so() -> None:
    _, found = made()
    restored = []
    for row in found:
        tokens = list(row.input_ids)
        for position, label in zip(row.masked_lm_positions, row.masked_lm_ids, strict=True):
            if label:
                tokens[position] = label
        parts = [
            {(token - 5) // 16 for token, segment, used in zip(tokens, row.segment_ids, row.input_mask, strict=True)
             if used and segment == part and token > 4}
            for part in (0, 1)
        ]  # fmt: skip
        assert len(parts[0]) == len(parts[1]) == 1
        assert (parts[0] != parts[1]) == bool(row.next_sentence_labels)
        restored.append(row.next_sentence_labels)
    assert 0.4 < sum(restored) / len(restored) < 0.75, "half, and all pairs of a single sentence"


def test_masked_tokens_are_mostly_hidden() -> None:
    _, found = made(num_articles=62, limits=Limits(max_seq_length=64, max_predictions=10))
    shown = [
        (row.input_ids[position], label)
        for row in found
        for position, label in zip(row.masked_lm_positions, row.masked_lm_ids, strict=True)
        if label
    ]
    hidden = sum(token == VOCABULARY.mask for token, _ in shown) / len(shown)
    kept = sum(token == label for token, label in shown) / len(shown)
    assert 0.75 < hidden < 0.85
    assert 0.06 < kept < 0.14


# --- command line ----------------------------------------------------------------------------------------------------


def command(spec: DatasetSpec | str, folder: Path) -> subprocess.CompletedProcess[str]:
    text = spec if isinstance(spec, str) else json.dumps(dataclasses.asdict(spec))
    arguments = ["--dataset-spec", text, "--raw-dir", str(folder / "raw"), "--data-dir", str(folder / "data")]
    arguments += ["--manifest", str(folder / "manifest.json")]
    script = [sys.executable, str(tiny_runs.SCRIPTS / "prepare_dataset.py")]
    environment = {**os.environ, "PYTHONPATH": ""}
    return subprocess.run(script + arguments, capture_output=True, text=True, check=False, env=environment)


def test_command_line_prepares(tmp_path: Path) -> None:
    result = command(tiny_runs.dataset_spec("wikipedia_closed_world"), tmp_path)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    assert json.loads((tmp_path / "manifest.json").read_text())["splits"] == {"train": 3072, "eval": 320}


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (tiny_runs.dataset_spec("imagenet"), "raw files are missing"),
        (tiny_runs.dataset_spec("wikipedia"), "no checksum is published"),
        ('{"name": "x"}', "missing"),
        ("{", "Expecting"),
    ],
)
def test_command_line_answers_with_one_message_and_no_traceback(tmp_path: Path, spec, message: str) -> None:
    result = command(spec, tmp_path)
    assert result.returncode == 1
    assert result.stderr.startswith("prepare_dataset: ")
    assert message in result.stderr
    assert "Traceback" not in result.stderr


def test_members_are_named_as_wikiextractor_does() -> None:
    from mlscaling.datasets.tiny.closed_world import member_name

    names = [member_name(number) for number in (0, 99, 100, 2600)]
    assert names == ["text/AA/wiki_00", "text/AA/wiki_99", "text/AB/wiki_00", "text/BA/wiki_00"]


def test_archives_hold_neither_times_nor_owners(tmp_path: Path) -> None:
    spec = tiny_runs.dataset_spec("wikipedia_closed_world")
    preparation.generate_raw(spec, raw_dir=tmp_path)
    with tarfile.open(tmp_path / wikipedia.TEXT) as archive:
        assert {(member.mtime, member.uid, member.uname) for member in archive} == {(0, 0, "")}
