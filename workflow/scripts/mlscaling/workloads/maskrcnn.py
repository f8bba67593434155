"""Mask R-CNN on COCO: torchvision's model over a ResNet with a feature pyramid, SGD, box and mask mAP (MLPerf Training
`maskrcnn`, rounds 0.5 to 3.1).

Rules: `closed_maskrcnn.yaml` of mlperf_logging and the reference (mlcommons/training, object_detection, which is
maskrcnn-benchmark). Departures: the backbone is torchvision's ResNet-50 with its weights, where the reference takes
Detectron's R-50.pkl, and candidates are limited for each image, not for each batch.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torchvision.models.detection import MaskRCNN
from torchvision.models.detection.anchor_utils import AnchorGenerator
from torchvision.models.detection.backbone_utils import BackboneWithFPN
from torchvision.models.detection.faster_rcnn import FastRCNNPredictor, TwoMLPHead
from torchvision.models.detection.mask_rcnn import MaskRCNNHeads, MaskRCNNPredictor
from torchvision.models.detection.rpn import RPNHead
from torchvision.models.detection.transform import GeneralizedRCNNTransform
from torchvision.models.resnet import BasicBlock, Bottleneck
from torchvision.ops import FrozenBatchNorm2d, MultiScaleRoIAlign

from mlscaling import schedules
from mlscaling.detection.backbone import TrunkResNet
from mlscaling.detection.samples import Change, flipped_by_chance
from mlscaling.detection.workload import DetectionWorkload
from mlscaling.spec import Value


class FloatPredictor(FastRCNNPredictor):  # type: ignore[misc]
    """Results in float32: coordinates of hundreds of pixels do not fit into bfloat16."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Class scores and box regression of all candidates."""
        scores, boxes = super().forward(x)
        return scores.float(), boxes.float()


class FloatRPNHead(RPNHead):  # type: ignore[misc]
    """The same of the region proposals."""

    def forward(self, x: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        """Objectness and box regression of all anchors, by map."""
        scores, boxes = super().forward(x)
        return [value.float() for value in scores], [value.float() for value in boxes]


class ResizedIfNeeded(GeneralizedRCNNTransform):  # type: ignore[misc]
    """torchvision's transform, which else interpolates images that have the right size, and their masks."""

    def resize(self, image: Tensor, target: dict[str, Tensor] | None = None) -> Any:
        """The image and its objects with the shorter side `min_size`, the longer one at most `max_size`."""
        if min(image.shape[-2:]) == self.min_size[0] and max(image.shape[-2:]) <= self.max_size:
            return image, target
        return super().resize(image, target)


def backbone(sizes: Mapping[str, Any]) -> BackboneWithFPN:
    """A ResNet with a feature pyramid over its last stages; with frozen stages its batch norms are frozen, too."""
    frozen = int(sizes["frozen_stages"])
    trained = functools.partial(nn.BatchNorm2d, momentum=float(sizes["batch_norm_momentum"]))
    norm_layer = FrozenBatchNorm2d if frozen else trained
    block = Bottleneck if sizes["bottleneck"] else BasicBlock
    trunk = TrunkResNet(block, sizes["blocks"], width=float(sizes["width"]), norm_layer=norm_layer)
    stages = range(5 - int(sizes["pyramid_stages"]), 5)
    # The stem is the first stage, torchvision's layer1 the second.
    for name in ("conv1", "bn1", *(f"layer{stage}" for stage in range(1, frozen))) if frozen else ():
        getattr(trunk, name).requires_grad_(False)
    channels = [round(64 * float(sizes["width"])) * 2 ** (stage - 1) * block.expansion for stage in stages]
    return BackboneWithFPN(
        trunk, {f"layer{stage}": str(n) for n, stage in enumerate(stages)}, channels, int(sizes["pyramid_channels"])
    )


class MaskRCNNWorkload(DetectionWorkload):
    """Heavy-weight object detection and instance segmentation."""

    metrics: ClassVar[Mapping[str, str]] = {"BBOX": "bbox", "SEGM": "segm"}
    eval_batch_size = 8

    full_scale: ClassVar[Mapping[str, Value]] = {
        "min_image_size": 800,
        "max_image_size": 1333,
        "num_classes": 81,
        "bottleneck": True,
        "width": 1.0,
        "blocks": (3, 4, 6, 3),
        "frozen_stages": 2,
        "batch_norm_momentum": 0.1,
        "pyramid_stages": 4,
        "pyramid_channels": 256,
        "anchor_sizes": (32, 64, 128, 256, 512),
        "proposals_before_nms": 2000,
        "proposals": 1000,
        "anchors_per_image": 256,
        "box_pooling": 7,
        "box_features": 1024,
        "boxes_per_image": 512,
        "mask_pooling": 14,
        "mask_channels": (256, 256, 256, 256),
        "pooling_samples": 2,
        "detections": 100,
        "backbone_weights": "",
    }

    def model(self) -> nn.Module:
        """torchvision's Mask R-CNN."""
        sizes = self.sizes
        trunk = backbone(sizes)
        channels, classes = int(sizes["pyramid_channels"]), int(sizes["num_classes"])
        anchors = AnchorGenerator(
            tuple((size,) for size in sizes["anchor_sizes"]), ((0.5, 1.0, 2.0),) * len(sizes["anchor_sizes"])
        )
        mask_channels = tuple(sizes["mask_channels"])
        model = MaskRCNN(
            trunk,
            rpn_anchor_generator=anchors,
            rpn_head=FloatRPNHead(channels, anchors.num_anchors_per_location()[0]),
            rpn_pre_nms_top_n_train=int(sizes["proposals_before_nms"]),
            rpn_pre_nms_top_n_test=int(sizes["proposals_before_nms"]) // 2,
            rpn_post_nms_top_n_train=int(sizes["proposals"]),
            rpn_post_nms_top_n_test=int(sizes["proposals"]),
            rpn_batch_size_per_image=int(sizes["anchors_per_image"]),
            box_roi_pool=self._pooling("box_pooling"),
            box_head=TwoMLPHead(channels * int(sizes["box_pooling"]) ** 2, int(sizes["box_features"])),
            box_predictor=FloatPredictor(int(sizes["box_features"]), classes),
            box_batch_size_per_image=int(sizes["boxes_per_image"]),
            box_detections_per_img=int(sizes["detections"]),
            mask_roi_pool=self._pooling("mask_pooling"),
            mask_head=MaskRCNNHeads(channels, mask_channels, 1),
            mask_predictor=MaskRCNNPredictor(mask_channels[-1], mask_channels[-1], classes),
        )
        model.transform = ResizedIfNeeded(
            int(sizes["min_image_size"]),
            int(sizes["max_image_size"]),
            model.transform.image_mean,
            model.transform.image_std,
        )
        return model.to(memory_format=torch.channels_last)  # type: ignore[no-any-return]

    def _pooling(self, name: str) -> MultiScaleRoIAlign:
        maps = [str(number) for number in range(int(self.sizes["pyramid_stages"]))]
        return MultiScaleRoIAlign(maps, int(self.sizes[name]), int(self.sizes["pooling_samples"]))

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """SGD with momentum; as in the reference, biases have twice the rate and no decay."""
        trained = {name: value for name, value in model.named_parameters() if value.requires_grad}
        rate = self.hyperparameter("opt_base_learning_rate")
        biases = [value for name, value in trained.items() if name.endswith("bias")]
        others = [value for name, value in trained.items() if not name.endswith("bias")]
        return torch.optim.SGD(
            [
                {"params": others, "weight_decay": self.hyperparameter("opt_weight_decay", 0.0001)},
                {"params": biases, "lr": 2 * rate, "weight_decay": 0.0},
            ],
            lr=rate,
            momentum=self.hyperparameter("opt_momentum", 0.9),
            foreach=True,
        )

    def schedule(self) -> Callable[[int], float]:
        """Linear warm-up, then a tenth of the rate after each of some steps."""
        # The reference's factor is what the rate itself gains in a step.
        slope = self.hyperparameter("opt_learning_rate_warmup_factor") / self.hyperparameter("opt_base_learning_rate")
        return schedules.warmup_then_falls(
            warmup_steps=self.hyperparameter("opt_learning_rate_warmup_steps"),
            warmup_slope=slope,
            fall_steps=self.hyperparameter("opt_learning_rate_decay_steps"),
            fall_factor=self.hyperparameter("opt_learning_rate_decay_factor", 0.1),
        )

    def log_values(self) -> Mapping[str, Value]:
        """Keys of `closed_maskrcnn.yaml`; candidates are those of a rank's batch, as in submissions."""
        names = (
            "opt_base_learning_rate",
            "opt_learning_rate_warmup_factor",
            "opt_learning_rate_warmup_steps",
            "opt_learning_rate_decay_steps",
        )
        return {
            "opt_name": "sgd",
            **{name: self.hyperparameter(name) for name in names},
            "opt_learning_rate_decay_factor": self.hyperparameter("opt_learning_rate_decay_factor", 0.1),
            "num_image_candidates": int(self.sizes["proposals"]) * self.spec.local_batch_size,
            "min_image_size": int(self.sizes["min_image_size"]),
            "max_image_size": int(self.sizes["max_image_size"]),
        }

    def tensor_names(self, model: nn.Module) -> list[str]:
        """Names of the reference's layers, which the closed rules list; its backbone comes from a checkpoint."""
        names = (reference_name(name) for name, _ in model.named_parameters() if not name.startswith("backbone.body."))
        return list(dict.fromkeys(names))

    @property
    def synthetic_size(self) -> tuple[int, int]:
        """COCO's commonest size, 480 × 640 where the model's shorter side has 800 pixels."""
        side = int(self.sizes["min_image_size"])
        return 3 * side // 5, 4 * side // 5

    def change(self, split: str) -> Change | None:
        """Training images are flipped by chance; the model itself brings all to its size."""
        return flipped_by_chance if split == "train" else None


WORKLOAD = MaskRCNNWorkload

HEADS = {
    "rpn.head.conv": "RPNHead_conv",
    "rpn.head.cls_logits": "RPNHead_cls",
    "rpn.head.bbox_pred": "RPNHead_bbox",
    "roi_heads.box_head.fc6": "ROI_BOX_FEATURE_EXTRACTOR_fc6",
    "roi_heads.box_head.fc7": "ROI_BOX_FEATURE_EXTRACTOR_fc7",
    "roi_heads.box_predictor.cls_score": "ROI_BOX_PREDICTOR_cls",
    "roi_heads.box_predictor.bbox_pred": "ROI_BOX_PREDICTOR_bbox",
    "roi_heads.mask_predictor.conv5_mask": "ROI_MASK_PREDICTOR_fcn5",
    "roi_heads.mask_predictor.mask_fcn_logits": "ROI_MASK_PREDICTOR_fcn_logits",
}


def reference_name(name: str) -> str:
    """Layer of a parameter in the reference: `backbone.fpn.inner_blocks.0.0.weight` → `FPN_inner_block1`."""
    parts = name.split(".")
    if name.startswith("backbone.fpn."):
        return f"FPN_{parts[2].removesuffix('_blocks')}_block{int(parts[3]) + 1}"
    if name.startswith("roi_heads.mask_head."):
        return f"ROI_MASK_FEATURE_EXTRACTOR_fcn{int(parts[2]) + 1}"
    return next(layer for prefix, layer in HEADS.items() if name.startswith(prefix))
