"""ResNets of any width as the trunk of a detector, and their weights from image classification."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torchvision.models.resnet import ResNet


class TrunkResNet(ResNet):  # type: ignore[misc]
    """torchvision's ResNet with every layer's width scaled; scale 1 is ResNet itself.

    torchvision's `width_per_group` narrows only the middle of each block, and no basic block.
    """

    def __init__(
        self, block: Any, blocks: Sequence[int], *, width: float, norm_layer: Callable[[int], nn.Module]
    ) -> None:
        self._width = width
        super().__init__(block, list(blocks), norm_layer=norm_layer)
        if width != 1:
            stem = round(64 * width)
            self.conv1 = nn.Conv2d(3, stem, kernel_size=7, stride=2, padding=3, bias=False)
            nn.init.kaiming_normal_(self.conv1.weight, mode="fan_out", nonlinearity="relu")
            self.bn1 = norm_layer(stem)

    def _make_layer(self, block: Any, planes: int, *arguments: Any, **options: Any) -> nn.Sequential:
        if planes == 64:
            self.inplanes = round(64 * self._width)
        layers: nn.Sequential = super()._make_layer(block, round(planes * self._width), *arguments, **options)
        return layers


def load_trunk(trunk: nn.Module, file: Path) -> None:
    """Take the weights of a classifier's checkpoint, as torchvision publishes them.

    Raises:
        FileNotFoundError: where the dataset was prepared without it.
        ValueError: where it lacks a weight of the trunk, naming it.
    """
    if not file.is_file():
        raise FileNotFoundError(f"{file}: no such weights of a backbone; the dataset's YAML says who gives them out")
    weights = torch.load(file, map_location="cpu", weights_only=True)
    own = trunk.state_dict()
    missing = sorted(own.keys() - weights.keys())
    missing = [name for name in missing if not name.endswith("num_batches_tracked")]
    if missing:
        raise ValueError(f"{file} lacks {len(missing)} weights of the backbone: {', '.join(missing[:5])}")
    trunk.load_state_dict({name: weights[name] for name in own.keys() & weights.keys()}, strict=False)
