"""UCI handwritten digits (they ship with scikit-learn) as a small ImageNet: the same archives, names and devkit."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from mlscaling.datasets.imagenet import DEVKIT, GROUND_TRUTH, META, TRAIN, VAL
from mlscaling.spec import DatasetSpec

FIRST_WNID = 90_000_000
"""Of no ImageNet class."""


def generate(spec: DatasetSpec, *, out_dir: Path) -> list[str]:
    """Write the three archives and return their names; equal options and library versions give equal bytes.

    The split is random over writers, so the validation digits are easier than those of unseen writers.
    """
    from sklearn.datasets import load_digits

    digits = load_digits()
    order = np.random.default_rng(int(spec.options["seed"])).permutation(len(digits.target))
    num_train = int(spec.options["train_samples"])
    size, quality = int(spec.options["image_size"]), int(spec.options["jpeg_quality"])

    def jpeg(index: int) -> bytes:
        return encoded(digits.images[index] / 16 * 255, size=size, quality=quality)

    classes = {wnid(digit): [int(i) for i in order[:num_train] if digits.target[i] == digit] for digit in range(10)}
    _write(
        out_dir / TRAIN, tarred((f"{name}.tar", class_tar(name, jpeg, members)) for name, members in classes.items())
    )
    val = [int(index) for index in order[num_train:]]
    images = ((f"ILSVRC2012_val_{n:08d}.JPEG", jpeg(index)) for n, index in enumerate(val, start=1))
    _write(out_dir / VAL, tarred(images))
    _write(out_dir / DEVKIT, devkit([int(digits.target[index]) + 1 for index in val]))
    return [TRAIN, VAL, DEVKIT]


def wnid(digit: int) -> str:
    """Name of a digit's class, in the form of a WordNet identifier."""
    return f"n{FIRST_WNID + digit:08d}"


def encoded(pixels: np.ndarray, *, size: int, quality: int) -> bytes:
    """An 8×8 grey image, enlarged, as a JPEG with three channels."""
    from PIL import Image

    image = Image.fromarray(pixels.astype("uint8")).resize((size, size), Image.Resampling.BICUBIC).convert("RGB")
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=quality)
    return buffer.getvalue()


def class_tar(name: str, jpeg: object, members: list[int]) -> bytes:
    """The inner tar of one class."""
    assert callable(jpeg)
    return tarred((f"{name}_{index}.JPEG", jpeg(index)) for index in members)


def tarred(files: Iterable[tuple[str, bytes]]) -> bytes:
    """A tar of name–content pairs without times or owners."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, content in files:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def devkit(ground_truth: list[int]) -> bytes:
    """The development kit: classes by ILSVRC2012 identifier (from 1), and the class of each validation image."""
    from scipy.io import savemat

    fields = [("ILSVRC2012_ID", "O"), ("WNID", "O"), ("words", "O"), ("gloss", "O"), ("num_children", "O")]
    rows = [(digit + 1, wnid(digit), f"digit {digit}", f"the handwritten digit {digit}", 0) for digit in range(10)]
    meta = io.BytesIO()
    savemat(meta, {"synsets": np.array(rows, dtype=fields).reshape(-1, 1)})
    # The 116 bytes of text in a MAT-file's header hold the time of writing.
    content = b"MATLAB 5.0 MAT-file".ljust(116) + meta.getvalue()[116:]
    truth = "".join(f"{identifier}\n" for identifier in ground_truth).encode("ascii")
    folder = DEVKIT.removesuffix(".tar.gz")
    archive = tarred([(f"{folder}/{META}", content), (f"{folder}/{GROUND_TRUTH}", truth)])
    return gzip.compress(archive, mtime=0)


def _write(path: Path, content: bytes) -> None:
    partial = path.with_name(path.name + ".partial")
    partial.write_bytes(content)
    os.replace(partial, path)
