"""COCO's mean average precision, exact over any number of ranks, by pycocotools.

Each rank matches the detections of its own images with their objects, the costly part; all ranks then gather the
matches, bring them into the order of the images and accumulate them. That order decides between equal scores, so the
result does not depend on how images are spread over ranks.
"""

from __future__ import annotations

import contextlib
import copy
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlscaling.detection.index import Index
from mlscaling.distributed import gather_over_ranks

MAX_DETECTIONS = 100
ALL_AREAS = (0.0, 1e10)


@dataclass(frozen=True, kw_only=True, slots=True)
class Detections:
    """What a model found in one image."""

    boxes: np.ndarray
    """Left, top, right, bottom in pixels of the image as annotated, float64 (objects, 4)."""
    scores: np.ndarray
    """float64 (objects,)."""
    labels: np.ndarray
    """Of the index, int64 (objects,)."""
    masks: Sequence[Mapping[str, Any]] = ()
    """Compressed run lengths of each object; empty where only boxes are wanted."""


def average_precision(index: Index, found: Mapping[int, Detections], *, kind: str) -> float:
    """Mean over IoU 0.50 … 0.95, recall and categories (COCO's `AP`), the same on every rank; NaN without objects.

    Args:
        index: the split.
        found: row of the index → detections; every rank has other rows.
        kind: `bbox` or `segm`.
    """
    parts = gather_over_ranks(matches(index, found, kind=kind))
    by_row = {row: columns for part in parts for row, columns in part.items()}
    evaluation = _evaluation(kind, rows=sorted(by_row), num_categories=len(index.categories))
    evaluation.evalImgs = [by_row[row][c] for c in range(len(index.categories)) for row in sorted(by_row)]
    evaluation._paramsEval = copy.deepcopy(evaluation.params)
    with contextlib.redirect_stdout(io.StringIO()):
        evaluation.accumulate()
    precision = evaluation.eval["precision"]
    known = precision[precision > -1]
    return float(known.mean()) if known.size else float("nan")


def matches(index: Index, found: Mapping[int, Detections], *, kind: str) -> dict[int, list[dict[str, Any] | None]]:
    """Row → what `COCOeval` keeps of each category, without what accumulating does not read."""
    from pycocotools.cocoeval import COCOeval

    rows = sorted(found)
    if not rows:
        return {}
    with contextlib.redirect_stdout(io.StringIO()):
        truth = ground_truth(index, rows)
        evaluation = COCOeval(truth, results(truth, found, kind=kind), kind)
        evaluation.params = _evaluation(kind, rows=rows, num_categories=len(index.categories)).params
        evaluation.evaluate()
    images = np.array(evaluation.evalImgs, dtype=object).reshape(len(index.categories), len(rows))
    return {row: [_compact(entry) for entry in images[:, number]] for number, row in enumerate(rows)}


def _evaluation(kind: str, *, rows: Sequence[int], num_categories: int) -> Any:
    """An evaluation of objects of all sizes only: COCO's `AP` needs no others, which would take three times as long."""
    from pycocotools.cocoeval import COCOeval

    evaluation = COCOeval(iouType=kind)
    evaluation.params.imgIds = list(rows)
    evaluation.params.catIds = list(range(1, num_categories + 1))
    evaluation.params.areaRng, evaluation.params.areaRngLbl = [list(ALL_AREAS)], ["all"]
    evaluation.params.maxDets = [MAX_DETECTIONS]
    return evaluation


def _compact(entry: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if entry is None:
        return None
    matched = {name: np.asarray(entry[name]).astype(bool) for name in ("dtMatches", "dtIgnore", "gtIgnore")}
    return {"dtScores": entry["dtScores"], **matched}


def ground_truth(index: Index, rows: Sequence[int]) -> Any:
    """COCO's own object with the annotations of some rows, whose identifiers are the rows."""
    annotations = []
    for row in rows:
        objects = index.objects(row)
        columns = (index.boxes, index.labels, index.areas, index.crowds)
        values = zip(*(column[objects].tolist() for column in columns), index.run_lengths(row), strict=True)
        annotations += [
            {"image_id": row, "bbox": box, "category_id": label, "area": area, "iscrowd": int(crowd), "segmentation": m}
            for box, label, area, crowd, m in values
        ]
    sizes = zip(rows, index.sizes[list(rows)].tolist(), strict=True)
    images = [{"id": row, "height": height, "width": width} for row, (height, width) in sizes]
    return _coco(images, annotations, num_categories=len(index.categories))


def results(truth: Any, found: Mapping[int, Detections], *, kind: str) -> Any:
    """Detections as `COCO.loadRes` makes them; it fails where there are none."""
    entries = []
    for row, detections in found.items():
        left_top = detections.boxes[:, :2]
        boxes = np.concatenate([left_top, detections.boxes[:, 2:] - left_top], axis=1).tolist()
        forms = [{"bbox": box} for box in boxes] if kind == "bbox" else [{"segmentation": m} for m in detections.masks]
        pairs = zip(detections.labels.tolist(), detections.scores.tolist(), forms, strict=True)
        entries += [{"image_id": row, "category_id": label, "score": score, **form} for label, score, form in pairs]
    if entries:
        return truth.loadRes(entries)
    return _coco(truth.dataset["images"], [], num_categories=len(truth.getCatIds()))


def _coco(images: Sequence[Mapping[str, Any]], annotations: Sequence[Mapping[str, Any]], *, num_categories: int) -> Any:
    from pycocotools.coco import COCO

    coco = COCO()
    coco.dataset = {
        "images": images,
        # A match is told by the identifier of the object, so none may be 0.
        "annotations": [{"id": number, **entry} for number, entry in enumerate(annotations, start=1)],
        "categories": [{"id": label} for label in range(1, num_categories + 1)],
    }
    coco.createIndex()
    return coco
