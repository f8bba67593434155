"""Spoken digits as a small LibriSpeech: the same archives, folders, FLAC and transcripts.

Two synthesisers, chosen by the dataset's `synthesiser`, never by what a machine happens to have: RCPs are comparable
within one of them only. `formant`, built in, shapes glottal pulses and noise by three formants that move through each
word's sounds; `espeak-ng` is the program of that name. Either way no speaker of the evaluation set speaks in a training
archive. Who spoke stands in each archive's SPEAKERS.TXT.
"""

from __future__ import annotations

import gzip
import io
import os
import shutil
import subprocess
import tarfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mlscaling.datasets.librispeech import PARTS, SAMPLE_RATE, archive_name
from mlscaling.spec import DatasetSpec

SOUNDS = {
    # First three formants (Hz), voicing, noise, centre of the noise (Hz), duration (ms); "-" is a stop or a pause.
    "-": (400, 1500, 2500, 0.0, 0.0, 1000, 45),
    "a": (730, 1090, 2440, 1.0, 0.0, 1000, 90),
    "ah": (640, 1190, 2390, 1.0, 0.0, 1000, 90),
    "aw": (590, 880, 2540, 1.0, 0.0, 1000, 110),
    "ee": (280, 2250, 2900, 1.0, 0.0, 1000, 110),
    "eh": (530, 1840, 2480, 1.0, 0.0, 1000, 80),
    "f": (300, 1100, 2300, 0.0, 0.15, 5200, 80),
    "ih": (400, 1920, 2560, 1.0, 0.0, 1000, 80),
    "k": (400, 1800, 2500, 0.0, 0.4, 2000, 35),
    "n": (250, 1300, 2500, 0.5, 0.0, 1000, 70),
    "oh": (500, 900, 2400, 1.0, 0.0, 1000, 80),
    "r": (350, 1100, 1600, 0.8, 0.0, 1000, 60),
    "s": (300, 1500, 2500, 0.0, 0.35, 6500, 85),
    "t": (400, 1700, 2600, 0.0, 0.4, 4500, 35),
    "th": (300, 1300, 2500, 0.0, 0.12, 6500, 80),
    "u": (320, 800, 2250, 0.8, 0.0, 1000, 70),
    "v": (250, 1100, 2300, 0.35, 0.08, 5200, 55),
    "w": (290, 650, 2200, 0.7, 0.0, 1000, 60),
    "z": (250, 1400, 2500, 0.3, 0.25, 6000, 70),
}
WORDS = {
    "zero": "z ih r oh u",
    "one": "w ah ah n",
    "two": "- t u u",
    "three": "th r ee",
    "four": "f aw r",
    "five": "f a ih v",
    "six": "s ih - k s",
    "seven": "s eh v ah n",
    "eight": "eh ih - t",
    "nine": "n a ih n",
}
"""The vocabulary, and the sounds of each word for the built-in synthesiser."""
BANDWIDTHS_HZ = (80.0, 110.0, 160.0)
"""Of the formants."""
HOP, WINDOW = 128, 256
"""Samples between two settings of the vocal tract, and of the window that each shapes."""
SLOPES = np.sin(np.pi * (np.arange(WINDOW) + 0.5) / WINDOW)
"""Weights of a window; their squares add up to one, as windows overlap by half."""
FREQUENCIES_HZ = np.fft.rfftfreq(WINDOW, 1 / SAMPLE_RATE)
"""Of a window's spectrum."""

ESPEAK_VOICES = {
    "train": "m1 m2 m3 m4 m5 m7 f1 f2 f3 f4 adam belinda david ed john linda paul steph robert victor",
    "eval": "m6 f5 m8 rob",
}
"""Variants of espeak-ng's American English."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Speaker:
    """One speaker."""

    identifier: int
    """LibriSpeech's number of a speaker."""
    part: str
    """Name of the archive without its suffix, e.g. `dev-clean`."""
    voice: str
    """Variant of espeak-ng, or `formant`."""
    num_utterances: int
    """Utterances that the speaker says."""


def generate(spec: DatasetSpec, *, out_dir: Path) -> list[str]:
    """Write LibriSpeech's archives and return their names; equal options and versions give equal bytes.

    Raises:
        ValueError: for an unknown synthesiser, or one that this machine or the number of speakers rules out.
    """
    speak, people = synthesiser(spec), speakers(spec)
    program = espeak_version() if speak is espeak_speech else "mlscaling"
    for part in PARTS:
        present = [speaker for speaker in people if speaker.part == part]
        files = {"SPEAKERS.TXT": speakers_table(present, program=program).encode()}
        for speaker in present:
            files |= recordings(speaker, speak=speak, options=spec.options)
        write_archive(out_dir / archive_name(part), files)
    return [archive_name(part) for part in PARTS]


def synthesiser(spec: DatasetSpec) -> Callable[..., np.ndarray]:
    """Voice, words and random numbers → samples at LibriSpeech's rate."""
    known = {"formant": formant_speech, "espeak-ng": espeak_speech}
    name = spec.options["synthesiser"]
    if name not in known:
        raise ValueError(f"dataset {spec.name}: options.synthesiser {name!r} is unknown; legal: {', '.join(known)}")
    if name == "espeak-ng" and shutil.which("espeak-ng") is None:
        raise ValueError(
            f"dataset {spec.name}: options.synthesiser is 'espeak-ng', but that program is not installed; "
            "'formant' is built in, but other data: its RCPs are others"
        )
    return known[str(name)]


def speakers(spec: DatasetSpec) -> list[Speaker]:
    """Speakers of all archives; those of a split share its utterances evenly and take turns in its archives."""
    found: list[Speaker] = []
    for split in ("train", "eval"):
        count = int(spec.options[f"{split}_speakers"])
        voices = ["formant"] * count
        if spec.options["synthesiser"] == "espeak-ng":
            voices = ESPEAK_VOICES[split].split()[:count]
            if len(voices) < count:
                message = f"options.{split}_speakers {count}; espeak-ng has at most {len(voices)} voices for them"
                raise ValueError(f"dataset {spec.name}: {message}")
        parts = [part for part, of in PARTS.items() if of == split]
        whole, rest = divmod(int(spec.options[f"{split}_samples"]), count)
        first = 100 + len(found)
        found += [
            Speaker(
                identifier=first + turn,
                part=parts[turn % len(parts)],
                voice=voice,
                num_utterances=whole + (turn < rest),
            )
            for turn, voice in enumerate(voices)
        ]
    return found


def speakers_table(people: Iterable[Speaker], *, program: str) -> str:
    """LibriSpeech's table of speakers; program and voice stand in the last column."""
    rows = [f"{person.identifier} | - | {person.part} | - | {program}: {person.voice}\n" for person in people]
    return ";ID  |SEX| SUBSET           |MINUTES| NAME\n" + "".join(rows)


def espeak_version() -> str:
    """Name and version of the program, without its folders."""
    said = subprocess.run(["espeak-ng", "--version"], capture_output=True, text=True, check=True).stdout
    return said.partition("  Data at:")[0].strip()


def recordings(speaker: Speaker, *, speak: Callable[..., np.ndarray], options: Any) -> dict[str, bytes]:
    """Path → content of a speaker's FLAC files and of the transcripts of its two chapters."""
    files: dict[str, bytes] = {}
    lines: dict[str, list[str]] = {}
    for number in range(speaker.num_utterances):
        draw = np.random.default_rng([int(options["seed"]), speaker.identifier, number])
        words = [str(word) for word in draw.choice(list(WORDS), draw.integers(1, int(options["max_words"]) + 1))]
        chapter = f"{speaker.identifier}-{1000 + 2 * speaker.identifier + number % 2}"
        folder = f"{speaker.part}/{chapter.replace('-', '/')}"
        name = f"{chapter}-{number:04d}"
        files[f"{folder}/{name}.flac"] = flac(recorded(speak(speaker, words, draw), draw))
        lines.setdefault(f"{folder}/{chapter}.trans.txt", []).append(f"{name} {' '.join(words).upper()}\n")
    return files | {path: "".join(found).encode() for path, found in lines.items()}


def recorded(sound: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    """A voice at some loudness in a room with some noise."""
    loudness = draw.uniform(0.2, 0.5) / max(1e-3, float(np.abs(sound).max()))
    return np.clip(sound * loudness + draw.normal(0, draw.uniform(0.001, 0.005), len(sound)), -1, 1)


def formant_speech(speaker: Speaker, words: list[str], draw: np.random.Generator) -> np.ndarray:
    """Words by the built-in synthesiser; a speaker has a pitch, a length of the vocal tract, a tempo and breath."""
    person = np.random.default_rng([speaker.identifier])
    pitch, tract = 90 * 2 ** person.uniform(0, 1.4), person.uniform(0.85, 1.2)
    tempo, breath = person.uniform(0.8, 1.25) * draw.uniform(0.9, 1.1), person.uniform(0.0, 0.06)
    sounds = ["-", *" - ".join(WORDS[word] for word in words).split(), "-"]
    table = np.array([SOUNDS[sound] for sound in sounds], dtype=float)
    table[:, :3] *= tract * draw.normal(1, 0.05, (len(sounds), 3))
    ends = np.cumsum(table[:, 6] * draw.uniform(0.8, 1.25, len(sounds)) / tempo) * SAMPLE_RATE / 1000
    length = int(ends[-1])
    middles = ends - np.diff(ends, prepend=0) / 2
    settings = np.arange(-WINDOW, length + WINDOW, HOP) + WINDOW / 2
    course = np.stack([np.interp(settings, middles, column) for column in table.T[:6]], axis=1)
    voice = course[:, 3:4] * resonances(course[:, :3])
    hiss = (course[:, 4:5] + breath * course[:, 3:4]) * noise_shape(course[:, 5])
    glottis = spectra(pulses(pitch * draw.uniform(0.9, 1.1), length, draw), len(settings))
    return sound_of(glottis * voice + spectra(draw.normal(0, 0.3, length), len(settings)) * hiss)[:length]


def spectra(source: np.ndarray, count: int) -> np.ndarray:
    """Spectra of overlapping windows, the first of which begins a window before the sound."""
    padded = np.pad(source, (WINDOW, 2 * WINDOW))
    windows = np.lib.stride_tricks.sliding_window_view(padded, WINDOW)[::HOP][:count]
    return np.fft.rfft(windows * SLOPES)


def sound_of(found: np.ndarray) -> np.ndarray:
    """Inverse of `spectra`, without its first window."""
    pieces = np.fft.irfft(found) * SLOPES
    return (pieces[1:, :HOP] + pieces[:-1, HOP:]).ravel()[HOP:]


def pulses(pitch: float, length: int, draw: np.random.Generator) -> np.ndarray:
    """Glottal pulses whose pitch (Hz) falls by a fifth from first to last, with a little jitter."""
    course = pitch * np.linspace(1.1, 0.88, length)
    phase = np.cumsum(course / SAMPLE_RATE) + draw.uniform(0, 1)
    beats = np.flatnonzero(np.diff(np.floor(phase)))
    beats = np.clip(beats + draw.integers(-1, 2, len(beats)), 0, length - 1)
    found = np.zeros(length)
    found[beats] = 1.0
    return found


def resonances(formants: np.ndarray) -> np.ndarray:
    """Amplitude of the vocal tract, lips and source at each frequency; (settings, 3) → (settings, frequencies)."""
    gain = 1 / (1 + FREQUENCIES_HZ / 500)
    for column, bandwidth in zip(formants.T, BANDWIDTHS_HZ, strict=True):
        ratio = FREQUENCIES_HZ / column[:, None]
        gain = gain / np.sqrt((1 - ratio**2) ** 2 + (ratio * bandwidth / column[:, None]) ** 2)
    return np.asarray(gain)


def noise_shape(centres: np.ndarray) -> np.ndarray:
    """Amplitude of a hiss around its centre (Hz), an octave wide; (settings,) → (settings, frequencies)."""
    octaves = np.log2(np.maximum(FREQUENCIES_HZ, 50.0) / np.maximum(centres, 50.0)[:, None])
    return np.asarray(np.exp(-2 * octaves**2))


def espeak_speech(speaker: Speaker, words: list[str], draw: np.random.Generator) -> np.ndarray:
    """Words by espeak-ng, at some tempo and pitch."""
    import soundfile
    from scipy.signal import resample_poly

    command = ["espeak-ng", "-v", f"en-us+{speaker.voice}", "-s", str(draw.integers(190, 241))]
    command += ["-p", str(draw.integers(35, 66)), "--stdout", " ".join(words)]
    written = subprocess.run(command, capture_output=True, check=True).stdout
    sound, rate = soundfile.read(io.BytesIO(written))
    resampled: np.ndarray = resample_poly(sound, SAMPLE_RATE, rate)
    return resampled


def flac(sound: np.ndarray) -> bytes:
    """16-bit FLAC at LibriSpeech's rate."""
    import soundfile

    buffer = io.BytesIO()
    soundfile.write(buffer, sound, SAMPLE_RATE, format="FLAC", subtype="PCM_16")
    return buffer.getvalue()


def write_archive(path: Path, files: dict[str, bytes]) -> None:
    """Write `LibriSpeech/…` as a gzipped tar without times or owners, beside and renamed."""
    partial = path.with_name(f"{path.name}.partial")
    with (
        partial.open("wb") as raw,
        gzip.GzipFile("", "wb", compresslevel=1, fileobj=raw, mtime=0) as stream,
        tarfile.open(fileobj=stream, mode="w", format=tarfile.USTAR_FORMAT) as archive,
    ):
        for name, content in files.items():
            member = tarfile.TarInfo(f"LibriSpeech/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    os.replace(partial, path)
