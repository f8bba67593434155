"""Weights that a benchmark starts from: an HDF5 file of arrays under the reference's names, made by a preparation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from torch import nn


def write_weights(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays beside, then rename; `a/b` is an array `b` in a group `a`."""
    import h5py

    partial = path.with_name(f"{path.name}.partial")
    with h5py.File(partial, "w") as file:
        for name, array in arrays.items():
            file.create_dataset(name, data=array)
    partial.replace(path)


def load_weights(model: nn.Module, path: Path, *, names: Callable[[str], Sequence[str]]) -> None:
    """Copy the arrays into a model.

    Args:
        model: every parameter is replaced.
        path: HDF5 file.
        names: a parameter's name → those of the arrays that are put together for it, one below the other.
            TensorFlow's `kernel` has inputs as rows and is transposed.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file lacks an array, or one has another shape; names file and array.
    """
    import h5py
    import torch

    if not path.is_file():
        raise FileNotFoundError(f"mlscaling data error: {path}: no weights to start from; prepare the dataset anew")
    with h5py.File(path) as file, torch.no_grad():
        for name, value in model.named_parameters():
            value.copy_(torch.from_numpy(_joined(file, names(name), shape=tuple(value.shape), path=path)))


def _joined(file: Any, names: Sequence[str], *, shape: tuple[int, ...], path: Path) -> np.ndarray:
    parts = []
    for name in names:
        if name not in file:
            raise ValueError(f"mlscaling data error: {path}: holds no {name}")
        part = file[name][:]
        parts.append(part.T if name.endswith("/kernel") else part)
    found = np.concatenate(parts)
    if found.shape != shape:
        raise ValueError(
            f"mlscaling data error: {path}: {' and '.join(names)} make an array of shape {found.shape}, the model has "
            f"{shape}"
        )
    return found
