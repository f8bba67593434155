"""COCO's instances JSON as arrays, read as a stream: the training annotations would fill gigabytes as Python objects.

Format: https://cocodataset.org/#format-data. Masks are kept as compressed run lengths, into which pycocotools turns
polygons before it evaluates, so that nothing is lost.
"""

from __future__ import annotations

import io
import json
import zipfile
import zlib
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np

CHUNK_CHARACTERS = 1 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class Image:
    """An image as annotated."""

    file_name: str
    """Inside its split's folder."""
    height: int
    """Pixels."""
    width: int
    """Pixels."""


@dataclass(kw_only=True, slots=True)
class Instances:
    """One split's annotations: an entry of each column is one object."""

    images: dict[int, Image] = field(default_factory=dict)
    """By identifier."""
    categories: dict[int, str] = field(default_factory=dict)
    """Name by identifier; COCO's 80 lie between 1 and 90."""
    image_ids: array[int] = field(default_factory=lambda: array("q"))
    """Image of each object."""
    category_ids: array[int] = field(default_factory=lambda: array("q"))
    """Category of each object."""
    boxes: array[float] = field(default_factory=lambda: array("d"))
    """Four of each object: left, top, width, height, pixels."""
    areas: array[float] = field(default_factory=lambda: array("d"))
    """Area of each object's mask, square pixels, as annotated."""
    crowds: array[int] = field(default_factory=lambda: array("b"))
    """1 where the annotation is of a group of objects."""
    masks: list[bytes] = field(default_factory=list)
    """Compressed run lengths of each object."""

    def usable(self) -> np.ndarray:
        """Objects that can be trained on, bool: no crowd and more than a pixel wide and high, as in the reference
        (maskrcnn-benchmark, `COCODataset` and `has_valid_annotation`)."""
        sizes = np.array(self.boxes).reshape(-1, 4)[:, 2:]
        usable: np.ndarray = (np.array(self.crowds, dtype=bool) == 0) & (sizes > 1).all(axis=1)
        return usable


def read_instances(archive: Path, member: str) -> Instances:
    """Annotations of one split.

    Raises:
        ValueError: for a truncated archive, a missing member, a broken JSON, an annotation without a box or a mask, or
            of an image or a category that is not listed; names the archive, the member and the annotation.
    """
    found, early = Instances(), []
    try:
        with zipfile.ZipFile(archive) as files, files.open(member) as stream:
            for key, value in members(stream):
                if key == "images":
                    identifier, file_name, height, width = _entries(value, "id", "file_name", "height", "width")
                    found.images[identifier] = Image(file_name=file_name, height=height, width=width)
                elif key == "categories":
                    identifier, name = _entries(value, "id", "name")
                    found.categories[identifier] = name
                elif key == "annotations" and value.get("image_id") in found.images:
                    _add(found, value)
                elif key == "annotations":
                    early.append(value)
        for value in early:
            _add(found, value)
    except (_EntryError, KeyError) as error:  # zipfile answers a missing member with a KeyError
        raise ValueError(f"{archive}, {member}: {error.args[0]}") from None
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError) as error:
        raise ValueError(f"{archive}, {member} is no whole archive of annotations: {error}") from None
    unknown = sorted(set(found.category_ids) - found.categories.keys())
    if unknown:
        raise ValueError(f"{archive}, {member}: categories {unknown[:10]} have annotations but are not listed")
    return found


class _EntryError(ValueError):
    """An entry that cannot be used, as a whole sentence."""


def _entries(value: Mapping[str, Any], *names: str) -> tuple[Any, ...]:
    missing = [name for name in names if name not in value or value[name] in ([], {}, None)]
    if missing:
        raise _EntryError(f"entry {value.get('id', value)!r} has no {', '.join(missing)}")
    return tuple(value[name] for name in names)


def _add(found: Instances, annotation: Mapping[str, Any]) -> None:
    image_id, category, box, segmentation, area = _entries(
        annotation, "image_id", "category_id", "bbox", "segmentation", "area"
    )
    image = found.images.get(image_id)
    if image is None:
        raise _EntryError(f"annotation {annotation.get('id')} is of image {image_id}, which is not listed")
    found.masks.append(run_lengths(segmentation, image=image))
    found.image_ids.append(image_id)
    found.category_ids.append(category)
    found.boxes.extend(box)
    found.areas.append(area)
    found.crowds.append(annotation.get("iscrowd", 0))


def run_lengths(segmentation: Any, *, image: Image) -> bytes:
    """Compressed run lengths of polygons, or of a crowd's run lengths, as `COCO.annToRLE` of pycocotools makes them."""
    from pycocotools import mask

    if isinstance(segmentation, list):
        segmentation = mask.merge(mask.frPyObjects(segmentation, image.height, image.width))
    elif isinstance(segmentation["counts"], list):
        segmentation = mask.frPyObjects(segmentation, image.height, image.width)
    counts = segmentation["counts"]
    return counts.encode("ascii") if isinstance(counts, str) else bytes(counts)


def members(stream: IO[bytes]) -> Iterator[tuple[str, Any]]:
    """Key and value of each member of a JSON object; the elements of an array come one by one, under its key.

    Raises:
        ValueError: where the stream is no such object, or ends within it.
    """
    text = _Text(stream)
    text.take("{")
    while True:
        key = text.value()
        text.take(":")
        if text.next() != "[":
            yield key, text.value()
        elif text.take("[") and text.next() == "]":
            text.take("]")
        else:
            yield key, text.value()
            while text.take(",", "]") == ",":
                yield key, text.value()
        if text.take(",", "}") == "}":
            return


class _Text:
    """The part of a JSON text that was read and not yet taken."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = io.TextIOWrapper(stream, encoding="utf-8")
        self._text = ""
        self._position = 0
        self._decode = json.JSONDecoder().raw_decode

    def next(self) -> str:
        """The next character that is no space; empty at the end."""
        while True:
            rest = len(self._text)
            while self._position < rest and self._text[self._position].isspace():
                self._position += 1
            if self._position < rest:
                return self._text[self._position]
            if not self._more():
                return ""

    def take(self, *wanted: str) -> str:
        """Pass over one of these characters."""
        found = self.next()
        if found not in wanted or not found:
            raise ValueError(f"expected {' or '.join(wanted)}, found {found or 'the end'!r}")
        self._position += 1
        return found

    def value(self) -> Any:
        """Pass over a whole value; more is read until it is whole."""
        self.next()
        while True:
            try:
                value, end = self._decode(self._text, self._position)
            except json.JSONDecodeError:
                if self._more():
                    continue
                raise
            if end == len(self._text) and self._more():
                continue  # a number may go on
            self._position = end
            return value

    def _more(self) -> bool:
        chunk = self._stream.read(CHUNK_CHARACTERS)
        self._text = self._text[self._position :] + chunk
        self._position = 0
        return bool(chunk)
