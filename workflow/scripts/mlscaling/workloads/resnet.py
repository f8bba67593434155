"""ResNet-50 v1.5 on ImageNet: torchvision's model, SGD or LARS, top-1 accuracy (MLPerf Training `resnet`).

Rules: MLCommons training_policies, `closed_resnet*.yaml` of mlperf_logging; reference hyper-parameters are the RCPs of
the round. The tiny scale narrows the model and its images; depth, layers, optimiser and schedule stay.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional
from torchvision.models.resnet import Bottleneck, ResNet

from mlscaling import schedules
from mlscaling.spec import RunSpec
from mlscaling.systems import Scalar
from mlscaling.workloads.base import Batch, Request, Workload

MEAN = (0.485, 0.456, 0.406)
STANDARD_DEVIATION = (0.229, 0.224, 0.225)


class ScaledResNet(ResNet):  # type: ignore[misc]
    """torchvision's ResNet with every layer's width scaled; scale 1 is ResNet itself.

    torchvision's `width_per_group` narrows only the middle of each block, which leaves most of the work.
    """

    def __init__(self, *, layers: list[int], num_classes: int, width: float) -> None:
        self._width = width
        super().__init__(Bottleneck, layers, num_classes=num_classes, zero_init_residual=True)
        if width != 1:
            stem = round(64 * width)
            self.conv1 = nn.Conv2d(3, stem, kernel_size=7, stride=2, padding=3, bias=False)
            nn.init.kaiming_normal_(self.conv1.weight, mode="fan_out", nonlinearity="relu")
            self.bn1 = nn.BatchNorm2d(stem)
            self.fc = nn.Linear(round(512 * width) * Bottleneck.expansion, num_classes)

    def _make_layer(self, block: Any, planes: int, *arguments: Any, **options: Any) -> nn.Sequential:
        if planes == 64:
            self.inplanes = round(64 * self._width)
        layers: nn.Sequential = super()._make_layer(block, round(planes * self._width), *arguments, **options)
        return layers


class ImageSamples:
    """JPEGs of one split, decoded anew for each use, as uint8 batches in channels-last memory."""

    def __init__(self, spec: RunSpec, *, split: str, sizes: Mapping[str, Any]) -> None:
        folder = Path(spec.data_dir)
        self._folder = folder / split
        names = (folder / f"{split}.txt").read_bytes().split()
        # Arrays, not lists: workers share their memory, as reading an element counts no references.
        self._names = np.array(names)
        self._labels = np.unique([name.partition(b"/")[0] for name in names], return_inverse=True)[1]
        self._augment = split == "train"
        self._seed = spec.seed
        self._size = int(sizes["image_size"])
        self._resize = int(sizes["eval_resize"])
        self._scale_min = float(sizes["crop_scale_min"])
        self._ratio_max = float(sizes["crop_ratio_max"])
        self._flip = bool(sizes["horizontal_flip"])

    def __len__(self) -> int:
        """Number of images."""
        return len(self._names)

    def __getitem__(self, request: Request) -> Batch:
        """Images, uint8 (samples, 3, height, width), and classes, int64 (samples,)."""
        pixels = np.empty((len(request.indices), self._size, self._size, 3), dtype=np.uint8)
        for row, index in enumerate(request.indices):
            image = opened_image(self._folder / os.fsdecode(self._names[index]))
            pixels[row] = self._cropped(image, epoch=request.epoch, index=int(index))
        images = torch.from_numpy(pixels).permute(0, 3, 1, 2)
        return images, torch.from_numpy(self._labels[request.indices])

    def _cropped(self, image: Image.Image, *, epoch: int, index: int) -> np.ndarray:
        size = (self._size, self._size)
        if not self._augment:
            box = centre_box(image.size, share=self._size / self._resize)
            return np.asarray(image.resize(size, Image.Resampling.BILINEAR, box=box))
        # Counter-based: the draws belong to (seed, epoch, sample), whatever rank or worker loads it.
        draws = np.random.Generator(np.random.Philox(key=[self._seed, epoch], counter=[0, 0, 0, index])).random(41)
        box = random_box(image.size, draws=draws[:40], scale_min=self._scale_min, ratio_max=self._ratio_max)
        array = np.asarray(image.resize(size, Image.Resampling.BILINEAR, box=box))
        return array[:, ::-1] if self._flip and draws[40] < 0.5 else array


def opened_image(path: Path) -> Image.Image:
    """A decoded image in RGB: ImageNet has some that are grey or CMYK.

    Raises:
        ValueError: for a file that is missing, cut off or no image, naming it.
    """
    try:
        with Image.open(path) as file:
            return file.convert("RGB")
    except OSError as error:
        raise ValueError(f"mlscaling data error: {path}: {error}; prepare the dataset anew") from error


def centre_box(size: tuple[int, int], *, share: float) -> tuple[float, float, float, float]:
    """Central square with `share` of the shorter side: `Resize(256)` and `CenterCrop(224)` at once for 224 ÷ 256."""
    side = min(size) * share
    left, top = (size[0] - side) / 2, (size[1] - side) / 2
    return left, top, left + side, top + side


def random_box(
    size: tuple[int, int], *, draws: np.ndarray, scale_min: float, ratio_max: float
) -> tuple[float, float, float, float]:
    """Box of a random area and aspect ratio (Inception, as torchvision's `RandomResizedCrop`), from uniform draws.

    torchvision's draws from the process's generator, so that a crop would depend on ranks and workers.

    Args:
        size: width and height.
        draws: four for each try; after the last try the central square is taken.
        scale_min: smallest share of the area.
        ratio_max: largest width ÷ height; the smallest is its inverse.
    """
    width, height = size
    for area, ratio, x, y in draws.reshape(-1, 4):
        pixels = (scale_min + (1 - scale_min) * area) * width * height
        aspect = ratio_max ** (2 * ratio - 1)
        w, h = round((pixels * aspect) ** 0.5), round((pixels / aspect) ** 0.5)
        if 0 < w <= width and 0 < h <= height:
            left, top = int(x * (width - w + 1)), int(y * (height - h + 1))
            return left, top, left + w, top + h
    return centre_box(size, share=1)


class ResNetWorkload(Workload):
    """ImageNet classification."""

    static_shapes = True
    full_scale: ClassVar[Mapping[str, Scalar]] = {
        "width": 1.0,
        "num_classes": 1000,
        "batch_norm_momentum": 0.1,
        "image_size": 224,
        "eval_resize": 256,
        "crop_scale_min": 0.08,
        "crop_ratio_max": 4 / 3,
        "horizontal_flip": True,
        "channels_last": True,
    }

    def __init__(self, spec: RunSpec) -> None:
        super().__init__(spec)
        self._label_smoothing = float(self.hyperparameter("label_smoothing", 0.1))
        self._channels: tuple[Tensor, Tensor] | None = None
        self._memory = torch.channels_last if self.sizes["channels_last"] else torch.contiguous_format

    def model(self) -> nn.Module:
        """ResNet-50 v1.5; the last scale of each block is zero as in the reference.

        Memory is channels-last, the layout of Tensor Cores and of oneDNN, unless the model says otherwise.
        """
        sizes = self.sizes
        model = ScaledResNet(
            layers=[3, 4, 6, 3],
            num_classes=int(sizes["num_classes"]),
            width=float(sizes["width"]),
        )
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.momentum = float(sizes["batch_norm_momentum"])
        return model.to(memory_format=self._memory)  # type: ignore[no-any-return]

    def synthetic_batch(self, num_samples: int) -> Batch:
        """Random pixels in the layout of `ImageSamples`."""
        size = int(self.sizes["image_size"])
        images = torch.randint(256, (num_samples, size, size, 3), dtype=torch.uint8).permute(0, 3, 1, 2)
        return images, torch.randint(int(self.sizes["num_classes"]), (num_samples,))

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """SGD or LARS with momentum; neither decays nor adapts biases and batch-norm parameters."""
        matrices = [value for value in model.parameters() if value.ndim > 1]
        vectors = [value for value in model.parameters() if value.ndim <= 1]
        groups = [
            {"params": matrices, "weight_decay": self.hyperparameter("opt_weight_decay")},
            {"params": vectors, "weight_decay": 0.0},
        ]
        common = {"lr": self.hyperparameter("opt_base_learning_rate"), "momentum": self.hyperparameter("opt_momentum")}
        name = self.hyperparameter("opt_name")
        if name == "sgd":
            return torch.optim.SGD(groups, foreach=True, **common)
        if name == "lars":
            from timm.optim import Lars  # type: ignore[attr-defined]

            return Lars(groups, trust_coeff=0.001, eps=float(self.hyperparameter("lars_epsilon", 0.0)), **common)
        raise ValueError(f"workload {self.spec.workload}: opt_name {name!r} is unknown; legal: sgd, lars")

    def schedule(self) -> Callable[[int], float]:
        """Linear warm-up, then polynomial decay to the end learning rate.

        Raises:
            ValueError: for a decay within an epoch: some RCPs of round 1.0 hold epochs where steps are meant.
        """
        decay_steps = int(self.hyperparameter("opt_learning_rate_decay_steps"))
        if decay_steps < self.steps_per_epoch:
            raise ValueError(
                f"mlscaling config error: opt_learning_rate_decay_steps {decay_steps} at global_batch_size "
                f"{self.spec.global_batch_size} is less than an epoch, which has {self.steps_per_epoch} steps"
            )
        return schedules.warmup_then_polynomial(
            warmup_steps=round(self.hyperparameter("opt_learning_rate_warmup_epochs") * self.steps_per_epoch),
            decay_steps=decay_steps,
            power=float(self.hyperparameter("opt_learning_rate_decay_poly_power", 2)),
            end_factor=self.hyperparameter("opt_end_learning_rate", 1e-4)
            / self.hyperparameter("opt_base_learning_rate"),
        )

    def log_values(self) -> Mapping[str, Scalar]:
        """Keys of `closed_resnet.yaml`, `closed_resnet_sgd.yaml` and `closed_resnet_lars.yaml`."""
        name = str(self.hyperparameter("opt_name"))
        warmup = self.hyperparameter("opt_learning_rate_warmup_epochs")
        values: dict[str, Scalar] = {
            "opt_name": name,
            f"{name}_opt_base_learning_rate": self.hyperparameter("opt_base_learning_rate"),
            f"{name}_opt_end_learning_rate": self.hyperparameter("opt_end_learning_rate", 1e-4),
            f"{name}_opt_learning_rate_decay_poly_power": self.hyperparameter("opt_learning_rate_decay_poly_power", 2),
            f"{name}_opt_learning_rate_decay_steps": self.hyperparameter("opt_learning_rate_decay_steps"),
            f"{name}_opt_momentum": self.hyperparameter("opt_momentum"),
            f"{name}_opt_weight_decay": self.hyperparameter("opt_weight_decay"),
            # Batch-norm statistics are those of one rank's forward pass.
            "model_bn_span": self.spec.local_batch_size,
        }
        if name == "lars":
            return values | {"lars_epsilon": self.hyperparameter("lars_epsilon", 0.0), f"{name}_{WARMUP}": warmup}
        return values | {WARMUP: warmup}

    def tensor_names(self, model: nn.Module) -> list[str]:
        """Names of the MXNet reference, which the closed rules list."""
        return [mxnet_name(name) for name, _ in model.named_parameters()]

    def samples(self, split: str) -> ImageSamples:
        """The split's JPEGs."""
        return ImageSamples(self.spec, split="val" if split == "eval" else split, sizes=self.sizes)

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """Cross-entropy with label smoothing."""
        images, classes = batch
        return functional.cross_entropy(model(self._normalized(images)), classes, label_smoothing=self._label_smoothing)

    def counts(self, model: nn.Module, batch: Batch) -> Tensor:
        """Images, and images whose likeliest class is right."""
        images, classes = batch
        hits = (model(self._normalized(images)).argmax(1) == classes).sum()
        return torch.stack([torch.tensor(len(classes), device=hits.device), hits]).double()

    def quality(self, totals: list[float]) -> float:
        """Top-1 accuracy."""
        return totals[1] / totals[0]

    def _normalized(self, images: Tensor) -> Tensor:
        """Float images on the model's device: bytes are copied there, a quarter of the traffic."""
        if self._channels is None:
            scale = 255 * torch.tensor(STANDARD_DEVIATION, device=images.device).view(3, 1, 1)
            self._channels = (255 * torch.tensor(MEAN, device=images.device).view(3, 1, 1), scale)
        mean, scale = self._channels
        return ((images - mean) / scale).contiguous(memory_format=self._memory)


WARMUP = "opt_learning_rate_warmup_epochs"
WORKLOAD = ResNetWorkload


def mxnet_name(name: str) -> str:
    """Name in the MXNet reference: `layer1.0.downsample.1.bias` → `stage1_unit1_bnsc_beta`."""
    kind = name.rpartition(".")[2]
    norm = {"weight": "gamma", "bias": "beta"}[kind]
    if name.startswith("fc."):
        return f"fc1_{kind}"
    found = re.fullmatch(r"layer(\d)\.(\d+)\.(?:(conv|bn)(\d)|downsample\.([01]))\.\w+", name)
    if found is None:
        return "conv0_weight" if name.startswith("conv1.") else f"bn0_{norm}"
    stage, unit, part, number, shortcut = found.groups()
    prefix = f"stage{stage}_unit{int(unit) + 1}"
    if shortcut is not None:
        return f"{prefix}_conv1sc_weight" if shortcut == "0" else f"{prefix}_bnsc_{norm}"
    return f"{prefix}_conv{number}_weight" if part == "conv" else f"{prefix}_bn{number}_{norm}"
