"""Rendered shapes as a small COCO: circles, squares and triangles of any colour on noise, annotated by polygons.

Like COCO it has grey images, images without an object, and crowds: groups of one kind, annotated as run lengths.
"""

from __future__ import annotations

import io
import json
import math
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from mlscaling.datasets.coco import ANNOTATIONS, SPLITS, archive_name
from mlscaling.spec import DatasetSpec

CATEGORIES = {1: "circle", 3: "square", 4: "triangle"}
"""By identifier; like COCO's, they have a gap."""
CORNERS = {1: 20, 3: 4, 4: 3}
RENDERED = 4
"""Pixels of the drawing for one of the image, in each direction."""
EVERY = {"grey": 50, "empty": 40, "crowd": 30}
"""One of so many images has it."""

Polygon = list[tuple[float, float]]


def generate(spec: DatasetSpec, *, out_dir: Path) -> list[str]:
    """Write the three archives and return their names; equal options and library versions give equal bytes."""
    annotations = {}
    for split in SPLITS:
        draw = Random(f"{spec.options['seed']} {split}")
        pictures = [
            Picture(draw, spec.options, number) for number in range(1, 1 + int(spec.options[f"{split}_images"]))
        ]
        quality = int(spec.options["jpeg_quality"])
        files = {f"{split}2017/{picture.file_name}": picture.jpeg(quality=quality) for picture in pictures}
        _write(out_dir / archive_name(split), files)
        content = json.dumps(instances(pictures)).encode("ascii")
        annotations[f"annotations/instances_{split}2017.json"] = content
    _write(out_dir / ANNOTATIONS, annotations, compression=zipfile.ZIP_DEFLATED)
    return [archive_name(split) for split in SPLITS] + [ANNOTATIONS]


class Picture:
    """One image and its objects."""

    def __init__(self, draw: Random, options: Mapping[str, Any], number: int) -> None:
        self.number = number
        self.file_name = f"{number:012d}.jpg"
        self.size = int(options["image_size"])
        self.is_grey = number % EVERY["grey"] == 0
        self.shapes: list[tuple[int, Polygon]] = []
        self.crowd: tuple[int, list[Polygon]] | None = None
        self._draw = draw
        self._noise = np.random.default_rng(draw.getrandbits(64))
        self._base = self._noise.integers(60, 180, 3)
        self._colours: list[tuple[int, ...]] = []
        if number % EVERY["empty"] == 0:
            return
        if number % EVERY["crowd"] == 0:
            self._place_crowd()
        for _ in range(draw.randint(1, int(options["max_objects"]))):
            self._place_shape()

    def _place_shape(self) -> None:
        """Try to place one shape clear of the others."""
        for _ in range(20):
            category = self._draw.choice(list(CATEGORIES))
            radius = self._draw.uniform(0.10, 0.24) * self.size
            polygon = self._polygon(category, radius, margin=radius)
            taken = [shape for _, shape in self.shapes] + (self.crowd[1] if self.crowd else [])
            if all(overlap(box(polygon), box(other)) < 0.05 for other in taken):
                self.shapes.append((category, polygon))
                self._colours.append(self._colour())
                return

    def _place_crowd(self) -> None:
        """Several small shapes of one kind in a corner."""
        category, radius = self._draw.choice(list(CATEGORIES)), 0.05 * self.size
        polygons = [self._polygon(category, radius, margin=radius, limit=0.35) for _ in range(5)]
        self.crowd = (category, polygons)

    def _polygon(self, category: int, radius: float, *, margin: float, limit: float = 1.0) -> Polygon:
        x, y = (self._draw.uniform(margin, limit * self.size - margin) for _ in range(2))
        corners = CORNERS[category]
        begin = self._draw.uniform(0, 2 * math.pi)
        angles = (begin + 2 * math.pi * corner / corners for corner in range(corners))
        return [(x + radius * math.cos(angle), y + radius * math.sin(angle)) for angle in angles]

    def _colour(self) -> tuple[int, ...]:
        signs = self._noise.choice([-1, 1]) * self._noise.integers(60, 100, 3)
        return tuple(int(value) for value in (self._base + signs + self._noise.integers(-20, 20, 3)).clip(0, 255))

    def jpeg(self, *, quality: int) -> bytes:
        """The image, drawn at four times its size."""
        from PIL import Image, ImageDraw

        noise = self._noise.normal(0, 12, (self.size, self.size, 3))
        background = Image.fromarray((self._base + noise).clip(0, 255).astype(np.uint8))
        image = background.resize((self.size * RENDERED,) * 2)
        pen = ImageDraw.Draw(image)
        crowd = [(polygon, self._colour()) for polygon in self.crowd[1]] if self.crowd else []
        for polygon, colour in [*crowd, *zip((shape for _, shape in self.shapes), self._colours, strict=True)]:
            pen.polygon([(x * RENDERED, y * RENDERED) for x, y in polygon], fill=colour)
        image = image.resize((self.size, self.size), Image.Resampling.BOX)
        buffer = io.BytesIO()
        (image.convert("L") if self.is_grey else image).save(buffer, "JPEG", quality=quality)
        return buffer.getvalue()

    def annotations(self) -> list[dict[str, Any]]:
        """COCO's annotations, without identifiers."""
        found = [self._annotation(category, [polygon]) for category, polygon in self.shapes]
        if self.crowd is None:
            return found
        crowd = self._annotation(self.crowd[0], self.crowd[1]) | {"iscrowd": 1}
        counts = run_lengths(crowd["segmentation"], size=self.size)
        return [*found, crowd | {"segmentation": {"size": [self.size] * 2, "counts": counts}}]

    def _annotation(self, category: int, polygons: list[Polygon]) -> dict[str, Any]:
        left, top, right, bottom = box([corner for polygon in polygons for corner in polygon])
        return {
            "image_id": self.number,
            "category_id": category,
            "bbox": [round(value, 2) for value in (left, top, right - left, bottom - top)],
            "area": round(sum(area(polygon) for polygon in polygons), 4),
            "iscrowd": 0,
            "segmentation": [[round(value, 2) for corner in polygon for value in corner] for polygon in polygons],
        }


def instances(pictures: list[Picture]) -> dict[str, Any]:
    """COCO's file of a split, its members in COCO's order."""
    found = [annotation for picture in pictures for annotation in picture.annotations()]
    return {
        "info": {"description": "rendered shapes"},
        "licenses": [],
        "images": [{"id": p.number, "file_name": p.file_name, "height": p.size, "width": p.size} for p in pictures],
        "annotations": [annotation | {"id": number} for number, annotation in enumerate(found, start=1)],
        "categories": [{"id": key, "name": name, "supercategory": "shape"} for key, name in CATEGORIES.items()],
    }


def run_lengths(polygons: list[list[float]], *, size: int) -> list[int]:
    """Uncompressed run lengths of a mask, column by column, beginning with zeros, as COCO has them for crowds."""
    from pycocotools import mask

    pixels = mask.decode(mask.merge(mask.frPyObjects(polygons, size, size))).flatten(order="F")
    changes = np.flatnonzero(np.diff(pixels, prepend=0, append=1 - pixels[-1]))
    counts: list[int] = np.diff(changes, prepend=0).tolist()
    return counts


def box(corners: Polygon) -> tuple[float, float, float, float]:
    """Left, top, right and bottom."""
    xs, ys = zip(*corners, strict=True)
    return min(xs), min(ys), max(xs), max(ys)


def overlap(one: tuple[float, ...], other: tuple[float, ...]) -> float:
    """Intersection over union of two boxes."""
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    common = max(0.0, width) * max(0.0, height)
    both = sum((b[2] - b[0]) * (b[3] - b[1]) for b in (one, other))
    return common / (both - common)


def area(polygon: Polygon) -> float:
    """Area of a simple polygon (shoelace formula)."""
    following = polygon[1:] + polygon[:1]
    return abs(sum(x * v - u * y for (x, y), (u, v) in zip(polygon, following, strict=True))) / 2


def _write(path: Path, files: Mapping[str, bytes], *, compression: int = zipfile.ZIP_STORED) -> None:
    partial = path.with_name(path.name + ".partial")
    with zipfile.ZipFile(partial, "w", compression) as archive:
        for name, content in files.items():
            # Without a time of its own a member has the oldest that a zip can hold.
            archive.writestr(zipfile.ZipInfo(name), content, compress_type=compression)
    os.replace(partial, path)
