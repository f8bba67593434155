"""SSD on COCO: torchvision's SSD over a ResNet, SGD, box mAP (MLPerf Training `ssd`, rounds 0.5 to 1.1).

Rules: `closed_ssd.yaml` of mlperf_logging and the reference (mlcommons/training, single_stage_detector): ResNet-34 up
to its third stage, which does not stride, five further blocks, six maps with 8732 anchors. Departures: the loss is
averaged over the objects of a batch, not of each image, and a crop must overlap its best object, not every one, as
torchvision has both; batch-norm statistics are a rank's own.
"""

from __future__ import annotations

import functools
import re
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torchvision import tv_tensors
from torchvision.models._utils import IntermediateLayerGetter
from torchvision.models.detection.anchor_utils import DefaultBoxGenerator
from torchvision.models.detection.image_list import ImageList
from torchvision.models.detection.ssd import SSD, SSDHead
from torchvision.models.detection.transform import GeneralizedRCNNTransform
from torchvision.models.resnet import BasicBlock
from torchvision.transforms import v2

from mlscaling import schedules
from mlscaling.detection.backbone import TrunkResNet
from mlscaling.detection.samples import Change, Sample, flipped_by_chance
from mlscaling.detection.workload import DetectionWorkload
from mlscaling.spec import Value


class Maps(nn.Module):
    """Feature maps of a ResNet's third stage and of further blocks behind it."""

    def __init__(self, trunk: TrunkResNet, *, extra_channels: Sequence[int], first_map: int) -> None:
        super().__init__()
        channels, size = trunk.layer3[-1].bn2.num_features, first_map
        for convolution in (trunk.layer3[0].conv1, trunk.layer3[0].downsample[0]):
            convolution.stride = (1, 1)
        self.body = IntermediateLayerGetter(trunk, return_layers={"layer3": "0"})
        self.out_channels = [channels, *extra_channels]
        self.extra = nn.ModuleList()
        for out_channels in extra_channels:
            # Small maps lose their border instead of every second place.
            options: dict[str, Any] = {"stride": 2, "padding": 1} if size > 5 else {}
            size = (size + 1) // 2 if size > 5 else size - 2
            self.extra.append(
                nn.Sequential(
                    nn.Conv2d(channels, out_channels // 2, kernel_size=1),
                    nn.ReLU(inplace=True),
                    nn.Conv2d(out_channels // 2, out_channels, kernel_size=3, **options),
                    nn.ReLU(inplace=True),
                )
            )
            channels = out_channels
        for value in self.extra.parameters():
            if value.ndim > 1:
                nn.init.xavier_uniform_(value)

    def forward(self, images: Tensor) -> OrderedDict[str, Tensor]:
        """Maps from the largest to the smallest."""
        maps = OrderedDict(self.body(images))
        for number, block in enumerate(self.extra, start=1):
            maps[str(number)] = block(maps[str(number - 1)])
        return maps


class FloatHead(SSDHead):  # type: ignore[misc]
    """Results in float32: coordinates of hundreds of pixels do not fit into bfloat16."""

    def forward(self, x: list[Tensor]) -> dict[str, Tensor]:
        """Box regression and class scores of all anchors."""
        return {name: value.float() for name, value in super().forward(x).items()}


class Normalized(GeneralizedRCNNTransform):  # type: ignore[misc]
    """Images that already have the model's size: only their colours change, of the whole batch at once."""

    def forward(
        self, images: list[Tensor], targets: list[dict[str, Tensor]] | None = None
    ) -> tuple[ImageList, list[dict[str, Tensor]] | None]:
        """The batch as one tensor; targets as they are."""
        batch = self.normalize(torch.stack(list(images)))
        return ImageList(batch, [(batch.shape[2], batch.shape[3])] * len(batch)), targets

    def postprocess(self, result: list[dict[str, Tensor]], *_: Any) -> list[dict[str, Tensor]]:
        """Detections as they are."""
        return result


class Augmented:
    """Crops, colours and flips as in the reference, by torchvision's transforms, and the model's size."""

    def __init__(self, *, size: int, crop_attempts: int, jitter: bool) -> None:
        """Crop not at all where `crop_attempts` is 0."""
        transforms: list[nn.Module] = []
        if crop_attempts:
            transforms += [v2.RandomIoUCrop(trials=crop_attempts), v2.SanitizeBoundingBoxes()]
        if jitter:
            transforms.append(v2.ColorJitter(brightness=0.125, contrast=0.5, saturation=0.5, hue=0.05))
        self._size = size
        self._transforms = transforms

    def __call__(self, sample: Sample, draw: np.random.Generator) -> Sample:
        """A changed image of the model's size."""
        if self._transforms:
            # torchvision draws from PyTorch's own generator: seeded by the sample here, and put back as it was.
            with torch.random.fork_rng(devices=[]):
                torch.default_generator.manual_seed(int(draw.integers(2**63)))
                sample = transformed(sample, self._transforms)
        return flipped_by_chance(resized(sample, size=self._size), draw)


def transformed(sample: Sample, transforms: Sequence[nn.Module]) -> Sample:
    """The image and its boxes after some of torchvision's transforms; boxes may be gone."""
    image = tv_tensors.Image(torch.from_numpy(np.ascontiguousarray(sample.image)).permute(2, 0, 1))
    boxes = tv_tensors.BoundingBoxes(sample.boxes, format="XYXY", canvas_size=image.shape[1:])
    objects: dict[str, Any] = {"boxes": boxes, "labels": torch.from_numpy(sample.labels)}
    for transform in transforms:
        image, objects = transform(image, objects)
    return Sample(
        image=image.permute(1, 2, 0).numpy(),
        boxes=objects["boxes"].numpy(),
        labels=objects["labels"].numpy(),
        masks=sample.masks,
    )


def resized(sample: Sample, *, size: int) -> Sample:
    """The image as a square of the model's size, and its boxes with it."""
    height, width = sample.image.shape[:2]
    if (height, width) == (size, size):
        return sample
    image = torch.from_numpy(np.ascontiguousarray(sample.image)).permute(2, 0, 1)
    scale = np.array([size / width, size / height] * 2, dtype=np.float32)
    pixels = v2.functional.resize(image, [size, size], antialias=True).permute(1, 2, 0).numpy()
    return Sample(image=pixels, boxes=sample.boxes * scale, labels=sample.labels, masks=sample.masks)


class SSDWorkload(DetectionWorkload):
    """Light-weight object detection."""

    metrics: ClassVar[Mapping[str, str]] = {"": "bbox"}

    full_scale: ClassVar[Mapping[str, Value]] = {
        "image_size": 300,
        "num_classes": 81,
        "width": 1.0,
        "blocks": (3, 4, 6),
        "batch_norm_momentum": 0.1,
        "extra_channels": (512, 512, 256, 256, 256),
        "anchor_scales": (0.07, 0.15, 0.33, 0.51, 0.69, 0.87, 1.05),
        "anchor_steps": (8, 16, 32, 64, 100, 300),
        "anchor_ratios": (1, 2, 2, 2, 1, 1),
        "detections": 200,
        "random_crop": True,
        "colour_jitter": True,
        "backbone_weights": "",
    }

    def model(self) -> nn.Module:
        """torchvision's SSD."""
        sizes = self.sizes
        blocks = [*sizes["blocks"], 1]  # the last stage is left out
        norm_layer = functools.partial(nn.BatchNorm2d, momentum=float(sizes["batch_norm_momentum"]))
        trunk = TrunkResNet(BasicBlock, blocks, width=float(sizes["width"]), norm_layer=norm_layer)
        size = int(sizes["image_size"])
        maps = Maps(trunk, extra_channels=sizes["extra_channels"], first_map=-(-size // 8))
        anchors = DefaultBoxGenerator(
            [[2, 3][:count] for count in sizes["anchor_ratios"]],
            scales=list(sizes["anchor_scales"]),
            steps=list(sizes["anchor_steps"]),
        )
        model = SSD(
            maps,
            anchors,
            (size, size),
            int(sizes["num_classes"]),
            head=FloatHead(maps.out_channels, anchors.num_anchors_per_location(), int(sizes["num_classes"])),
            score_thresh=0.05,
            nms_thresh=0.5,
            detections_per_img=int(sizes["detections"]),
            topk_candidates=int(sizes["detections"]),
        )
        model.transform = Normalized(size, size, model.transform.image_mean, model.transform.image_std)
        return model.to(memory_format=torch.channels_last)  # type: ignore[no-any-return]

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """SGD with momentum; the reference decays all parameters alike."""
        return torch.optim.SGD(
            model.parameters(),
            lr=self.hyperparameter("opt_base_learning_rate"),
            momentum=self.hyperparameter("opt_momentum", 0.9),
            weight_decay=self.hyperparameter("opt_weight_decay"),
            foreach=True,
        )

    def schedule(self) -> Callable[[int], float]:
        """Linear warm-up, then a tenth of the rate after each of some epochs."""
        steps = self.hyperparameter("opt_learning_rate_warmup_steps")
        # The reference begins at 1 − 2^−factor of the rate: at nothing for factor 0.
        slope = 0.5 ** self.hyperparameter("opt_learning_rate_warmup_factor") / steps
        epochs = self.hyperparameter("opt_learning_rate_decay_boundary_epochs")
        falls = [epoch * self.steps_per_epoch for epoch in epochs]
        return schedules.warmup_then_falls(warmup_steps=steps, warmup_slope=slope, fall_steps=falls, fall_factor=0.1)

    def log_values(self) -> Mapping[str, Value]:
        """Keys of `closed_ssd.yaml`; `max_samples` counts attempts at a crop."""
        names = (
            "opt_base_learning_rate",
            "opt_weight_decay",
            "opt_learning_rate_warmup_factor",
            "opt_learning_rate_warmup_steps",
            "opt_learning_rate_decay_boundary_epochs",
            "max_samples",
        )
        values = {name: self.hyperparameter(name) for name in names}
        return {"opt_name": "sgd", "model_bn_span": self.spec.local_batch_size, **values}

    def tensor_names(self, model: nn.Module) -> list[str]:
        """Names of the MXNet reference, which the closed rules list; it has one tensor for scores and boxes."""
        return list(dict.fromkeys(mxnet_name(name) for name, _ in model.named_parameters()))

    @property
    def synthetic_size(self) -> tuple[int, int]:
        """The model's."""
        return int(self.sizes["image_size"]), int(self.sizes["image_size"])

    def change(self, split: str) -> Change:
        """The reference's augmentation of training images; others only get the model's size."""
        size = int(self.sizes["image_size"])
        if split != "train":
            return lambda sample, _: resized(sample, size=size)
        attempts = int(self.hyperparameter("max_samples")) if self.sizes["random_crop"] else 0
        return Augmented(size=size, crop_attempts=attempts, jitter=bool(self.sizes["colour_jitter"]))


WORKLOAD = SSDWorkload


def mxnet_name(name: str) -> str:
    """Name in the MXNet reference: `backbone.body.layer2.0.conv2.weight` → `ssd0_resnetmlperf0_stage2_conv1_weight`."""
    path, _, kind = name.rpartition(".")
    found = re.fullmatch(r"head\.\w+\.module_list\.(\d+)", path)
    if found:
        return f"ssd0_convpredictor{found[1]}_conv0_{kind}"
    found = re.fullmatch(r"backbone\.extra\.(\d+)\.([02])", path)
    if found:
        return f"ssd0_expand_{'trans_' if found[2] == '0' else ''}conv{found[1]}_{kind}"
    found = re.fullmatch(r"backbone\.body\.(?:layer(\d)\.(\d+)\.)?(?:(conv|bn)(\d)|downsample\.([01]))", path)
    assert found is not None, name
    stage, block, part, number, shortcut = found.groups()
    is_norm = part == "bn" or shortcut == "1"
    kind = {"weight": "gamma", "bias": "beta"}[kind] if is_norm else kind
    prefix = f"ssd0_resnetmlperf0_{f'stage{stage}_' if stage else ''}{'batchnorm' if is_norm else 'conv'}"
    if stage is None:
        return f"{prefix}0_{kind}"
    # Two convolutions to a block; the shortcut of a stage's first block is the third.
    place = 2 if shortcut else 2 * int(block) + int(number) - 1 + (stage != "1" and block != "0")
    return f"{prefix}{place}_{kind}"
