"""LibriSpeech: archives of FLAC and transcripts → 16-bit samples that a training maps into memory, and their tokens.

Raw layout (https://www.openslr.org/12): a gzipped tar of `LibriSpeech/<part>/<speaker>/<chapter>/`, with a FLAC file
for each utterance and `<speaker>-<chapter>.trans.txt`, a line for each. Prepared: `<part>.pcm`, one utterance after the
other (int16, 16 kHz, as MLPerf's reference keeps them in WAV files); `<part>.tsv`, which says where each one lies and
what it says; `tokenizer.json`; and `train.hdf5` and `eval.hdf5` with places and tokens.

As in MLPerf's reference, training utterances longer than a limit are left out, transcripts are lower-case, and silence
60 dB below an utterance's loudest moment is cut off at both ends, here before and not after the speed perturbation.
Departures: the vocabulary is trained by byte-pair encoding, where the reference trains SentencePiece's unigram model,
as the tokenizers library's trainer of that gives another vocabulary each time; and what the reference drops anew in
each epoch, the utterances beyond whole batches, is left out once, by a hash of their names.
"""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import tarfile
from collections import deque
from collections.abc import Iterator, Set
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np

from mlscaling.datasets import tars
from mlscaling.spec import DatasetSpec

SAMPLE_RATE = 16_000
"""Hz."""
PARTS = {"train-clean-100": "train", "train-clean-360": "train", "train-other-500": "train", "dev-clean": "eval"}
"""Archive without its suffix → split."""
PACKAGES = ("h5py", "soundfile", "tokenizers")
TOKENIZER = "tokenizer.json"
PCM_BYTES_PER_RAW_BYTE = 1.85
"""Of LibriSpeech's archives: 111 GB of samples from 60 GB."""
POWER_WINDOW = 2048
"""Samples over which the power of a sound is taken, as in the reference's `NonsilentRegion`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Utterance:
    """One prepared utterance."""

    name: str
    """`<speaker>-<chapter>-<number>`."""
    part: str
    """Archive without its suffix."""
    start: int
    """First sample in the part's file."""
    num_samples: int
    """Length."""
    text: str
    """Transcript, lower-case."""


def archive_name(part: str) -> str:
    """Raw file of a part."""
    return f"{part}.tar.gz"


def prepare(spec: DatasetSpec, *, raw_dir: Path, out_dir: Path, num_processes: int = 1) -> dict[str, int]:
    """Unpack one archive after the other, then train the tokenizer and write the splits; what is there is skipped.

    An archive is read by one thread, from front to back, and its FLAC decoded by `num_processes` threads.

    Returns:
        Number of utterances by split.
    Raises:
        ValueError: for a truncated archive, a FLAC that is damaged or of another sample rate, an empty or a missing
            transcript, too little space or too few utterances, naming the place.
    """
    require_space(spec, raw_dir=raw_dir, out_dir=out_dir)
    for part in PARTS:
        if not table_path(out_dir, part).exists():
            unpack(raw_dir / archive_name(part), spec=spec, part=part, out_dir=out_dir, num_threads=num_processes)
    splits = {split: utterances(spec, split=split, folder=out_dir) for split in ("train", "eval")}
    make_tokenizer(spec, texts=[utterance.text for utterance in splits["train"]], target=out_dir / TOKENIZER)
    for split, found in splits.items():
        write_split(found, split=split, folder=out_dir)
    return {split: len(found) for split, found in splits.items()}


def require_space(spec: DatasetSpec, *, raw_dir: Path, out_dir: Path) -> None:
    """Raise ValueError where the disk has no room for the parts that are still to be unpacked."""
    missing = [part for part in PARTS if not table_path(out_dir, part).exists()]
    needed = round(PCM_BYTES_PER_RAW_BYTE * sum((raw_dir / archive_name(part)).stat().st_size for part in missing))
    free = shutil.disk_usage(out_dir).free
    if free < needed:
        raise ValueError(
            f"dataset {spec.name}: {out_dir} has {free / 1e9:.1f} GB free; "
            f"{', '.join(missing)} need about {needed / 1e9:.1f} GB"
        )


# --- archives ---------------------------------------------------------------------------------------------------------


def unpack(archive: Path, *, spec: DatasetSpec, part: str, out_dir: Path, num_threads: int) -> None:
    """Write a part's samples and then its table."""
    is_limited = PARTS[part] == "train"
    limit = float(spec.options["max_duration_s"]) * SAMPLE_RATE if is_limited else float("inf")
    places: dict[str, tuple[int, int]] = {}
    too_long: set[str] = set()
    texts: dict[str, str] = {}
    position = 0
    with whole(out_dir / f"{part}.pcm") as partial, partial.open("wb") as file, tars.opened(archive) as members:
        for name, sound in sounds(members, archive=archive, texts=texts, num_threads=num_threads):
            if len(sound) > limit:
                too_long.add(name)
                continue
            kept = trimmed(sound, cutoff_db=float(spec.options["silence_db"]))
            file.write(kept.astype("<i2").tobytes())
            places[name] = (position, len(kept))
            position += len(kept)
    check_names(archive, spoken=places.keys() | too_long, written=texts.keys())
    rows = (f"{name}\t{start}\t{length}\t{texts[name]}\n" for name, (start, length) in places.items())
    with whole(table_path(out_dir, part)) as partial:
        partial.write_text("utterance\tstart\tnum_samples\ttranscript\n" + "".join(rows), encoding="utf-8")


@contextmanager
def whole(target: Path) -> Iterator[Path]:
    """Path beside the target to write to, always the same one, so that an interruption leaves no second file."""
    partial = target.with_name(f"{target.name}.partial")
    yield partial
    os.replace(partial, target)


def sounds(
    members: tarfile.TarFile, *, archive: Path, texts: dict[str, str], num_threads: int
) -> Iterator[tuple[str, np.ndarray]]:
    """Name and samples of each FLAC in the archive's order; transcripts that are met on the way go into `texts`."""
    waiting: deque[tuple[str, Future[np.ndarray]]] = deque()
    with ThreadPoolExecutor(num_threads) as pool:
        for member in tars.files(members):
            path = PurePosixPath(member.name)
            if path.name.endswith(".trans.txt"):
                texts |= transcripts(tars.content(members, member).read(), place=f"{archive}, member {member.name}")
            elif path.suffix == ".flac":
                content = tars.content(members, member).read()
                waiting.append((path.stem, pool.submit(decoded, content, place=f"{archive}, member {member.name}")))
            if len(waiting) > 4 * num_threads:
                name, sound = waiting.popleft()
                yield name, sound.result()
        for name, sound in waiting:
            yield name, sound.result()


def decoded(content: bytes, *, place: str) -> np.ndarray:
    """Samples of a FLAC file, int16.

    Another sample rate is refused rather than resampled: LibriSpeech has none, so the file is of something else.

    Raises:
        ValueError: for what is no FLAC, or not one channel at LibriSpeech's rate.
    """
    import soundfile

    try:
        sound, rate = soundfile.read(io.BytesIO(content), dtype="int16", always_2d=True)
    except soundfile.LibsndfileError as error:
        raise ValueError(f"{place} cannot be decoded: {error}") from None
    if (rate, sound.shape[1]) != (SAMPLE_RATE, 1):
        raise ValueError(
            f"{place} has {sound.shape[1]} channel(s) at {rate} Hz; LibriSpeech has one at {SAMPLE_RATE} Hz"
        )
    samples: np.ndarray = sound[:, 0]
    return samples


def transcripts(content: bytes, *, place: str) -> dict[str, str]:
    """Utterance → lower-case text of a `.trans.txt` file.

    Raises:
        ValueError: for a line without text.
    """
    found = {}
    for number, line in enumerate(content.decode("utf-8").splitlines(), start=1):
        name, _, text = line.partition(" ")
        if not text.strip():
            raise ValueError(f"{place}:{number}: utterance {name!r} has an empty transcript")
        found[name] = " ".join(text.lower().split())
    return found


def trimmed(sound: np.ndarray, *, cutoff_db: float) -> np.ndarray:
    """A sound from the first to the last window whose power is at most `cutoff_db` below that of the loudest."""
    if len(sound) <= POWER_WINDOW:
        return sound
    energy = np.cumsum(np.square(sound, dtype=np.int64))
    power = np.append(energy[POWER_WINDOW - 1], energy[POWER_WINDOW:] - energy[:-POWER_WINDOW])
    loud = np.flatnonzero(power >= power.max() * 10 ** (-cutoff_db / 10))
    return sound[loud[0] : loud[-1] + POWER_WINDOW]


def check_names(archive: Path, *, spoken: Set[str], written: Set[str]) -> None:
    """Raise ValueError unless each utterance has a transcript and each transcript an utterance."""
    for names, problem in ((spoken - written, "no transcript"), (written - spoken, "no FLAC file")):
        if names:
            raise ValueError(f"{archive}: {len(names)} utterances have {problem}: {', '.join(sorted(names)[:5])}")


# --- splits -----------------------------------------------------------------------------------------------------------


def table_path(folder: Path, part: str) -> Path:
    """Table of a part; written when the part is whole."""
    return folder / f"{part}.tsv"


def utterances(spec: DatasetSpec, *, split: str, folder: Path) -> list[Utterance]:
    """Utterances of a split in their archives' order: `<split>_samples` of them, or all where that is 0.

    Raises:
        ValueError: if there are fewer.
    """
    found = []
    for part in (part for part, of in PARTS.items() if of == split):
        for line in table_path(folder, part).read_text(encoding="utf-8").splitlines()[1:]:
            name, start, num_samples, text = line.split("\t")
            found.append(Utterance(name=name, part=part, start=int(start), num_samples=int(num_samples), text=text))
    wanted = int(spec.options[f"{split}_samples"]) or len(found)
    if len(found) < wanted:
        raise ValueError(
            f"dataset {spec.name}: the archives give {len(found)} utterances for split {split!r}, "
            f"but options.{split}_samples is {wanted}"
        )
    kept = {utterance.name for utterance in sorted(found, key=hashed_name)[:wanted]}
    return [utterance for utterance in found if utterance.name in kept]


def hashed_name(utterance: Utterance) -> str:
    """A stable, arbitrary order."""
    return hashlib.md5(utterance.name.encode(), usedforsecurity=False).hexdigest()


def make_tokenizer(spec: DatasetSpec, *, texts: list[str], target: Path) -> None:
    """Train the pieces of words on the training transcripts; equal texts give equal bytes."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    if target.exists():
        return
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.BpeTrainer(vocab_size=int(spec.options["vocab_size"]), show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    with whole(target) as partial:
        tokenizer.save(str(partial))


def write_split(found: list[Utterance], *, split: str, folder: Path) -> None:
    """Write places and tokens of a split.

    Raises:
        ValueError: for a transcript that the vocabulary cannot spell.
    """
    import h5py
    from tokenizers import Tokenizer

    target = folder / f"{split}.hdf5"
    if target.exists():
        return
    tokenizer = Tokenizer.from_file(str(folder / TOKENIZER))
    tokens = [encoding.ids for encoding in tokenizer.encode_batch([utterance.text for utterance in found])]
    for utterance, text in zip(found, tokenizer.decode_batch(tokens), strict=True):
        if text != utterance.text:
            message = f"{utterance.text!r} cannot be spelt in the training vocabulary: {text!r}"
            raise ValueError(f"{archive_name(utterance.part)}, utterance {utterance.name}: {message}")
    parts = list(PARTS)
    with whole(target) as partial, h5py.File(partial, "w") as file:
        file["part"] = np.array([parts.index(utterance.part) for utterance in found], dtype="i1")
        file["start"] = np.array([utterance.start for utterance in found], dtype="i8")
        file["num_samples"] = np.array([utterance.num_samples for utterance in found], dtype="i4")
        file["token_ends"] = np.cumsum([len(row) for row in tokens], dtype="i8")
        file["tokens"] = np.concatenate([np.array(row, dtype="u2") for row in tokens])
