"""BERT pre-training on Wikipedia: masked-LM and next-sentence losses, LAMB, masked-LM accuracy (MLPerf `bert`).

Rules: `closed_bert.yaml` of mlperf_logging and the reference (mlcommons/training, language_model/tensorflow/bert). The
full scale is BERT-large and starts from the reference's checkpoint after phase 1; the tiny scale is smaller in every
dimension and begins from position embeddings in the form of sinusoids, which a short training does not learn by itself.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from mlscaling import schedules
from mlscaling.reference_weights import load_weights
from mlscaling.spec import Value
from mlscaling.systems import Scalar
from mlscaling.workloads.base import Batch, Request, Workload

NORM_EPSILON = 1e-12
MLPERF_PREDICTIONS = 76
"""Masked tokens of MLPerf's 512; shorter sequences mask 15 %, rounded up."""
HELD_BYTES = 1 << 28
"""A split up to this size is read into memory once; larger ones are read row by row."""


class Bert(nn.Module):
    """Encoder with tied masked-LM head and next-sentence head; post-norm as in the reference, whose GELU is by tanh."""

    def __init__(self, sizes: Mapping[str, Any]) -> None:
        super().__init__()
        hidden, vocabulary = int(sizes["hidden_size"]), int(sizes["vocab_size"])
        dropout = float(sizes["dropout"])
        self.word = nn.Embedding(vocabulary, hidden, padding_idx=0)
        self.position = nn.Embedding(int(sizes["max_position_embeddings"]), hidden)
        self.segment = nn.Embedding(2, hidden)
        self.norm = nn.LayerNorm(hidden, eps=NORM_EPSILON)
        self.dropout = nn.Dropout(dropout)
        layer = nn.TransformerEncoderLayer(
            hidden,
            int(sizes["num_attention_heads"]),
            int(sizes["intermediate_size"]),
            dropout,
            activation=functional.gelu,
            layer_norm_eps=NORM_EPSILON,
            batch_first=True,
        )
        self.encoder = nn.TransformerEncoder(layer, int(sizes["num_hidden_layers"]), enable_nested_tensor=False)
        self.pooler = nn.Linear(hidden, hidden)
        self.next_sentence = nn.Linear(hidden, 2)
        self.transform = nn.Linear(hidden, hidden)
        self.transform_norm = nn.LayerNorm(hidden, eps=NORM_EPSILON)
        self.word_bias = nn.Parameter(torch.zeros(vocabulary))
        self._initialize(float(sizes["initializer_range"]), sinusoidal=bool(sizes["sinusoidal_positions"]))

    @torch.no_grad()
    def _initialize(self, deviation: float, *, sinusoidal: bool) -> None:
        for name, value in self.named_parameters():
            if value.ndim > 1:
                nn.init.trunc_normal_(value, std=deviation, a=-2 * deviation, b=2 * deviation)
            elif name.endswith("bias"):
                nn.init.zeros_(value)
        if sinusoidal:
            self.position.weight.copy_(sinusoids(*self.position.weight.shape) * (2**0.5 * deviation))

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Scores of the masked tokens (samples, predictions, vocabulary) and of the next sentence (samples, 2)."""
        tokens, mask, segments, positions = batch[:4]
        embedded = self.word(tokens) + self.position.weight[: tokens.shape[1]] + self.segment(segments)
        states = self.encoder(self.dropout(self.norm(embedded)), src_key_padding_mask=mask == 0)
        masked = states.gather(1, positions.unsqueeze(-1).expand(-1, -1, states.shape[-1]))
        masked = self.transform_norm(functional.gelu(self.transform(masked)))
        words = functional.linear(masked, self.word.weight, self.word_bias)
        return words, self.next_sentence(torch.tanh(self.pooler(states[:, 0])))


def sinusoids(length: int, size: int) -> Tensor:
    """Position embeddings of unit deviation ÷ √2: sines and cosines of (length, size), as in the Transformer."""
    angles = torch.arange(length)[:, None] * torch.exp(-math.log(200.0) * torch.arange(0, size, 2) / size)
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(1)


class PretrainingSamples:
    """HDF5 shards of one split."""

    KEYS = (
        "input_ids",
        "input_mask",
        "segment_ids",
        "masked_lm_positions",
        "masked_lm_ids",
        "next_sentence_labels",
    )

    def __init__(self, folder: Path, *, split: str) -> None:
        self._paths = sorted(folder.glob(f"{split}_*.hdf5"))
        if not self._paths:
            raise FileNotFoundError(f"{folder}: no shard {split}_*.hdf5; prepare the dataset first")
        self._ends = np.cumsum([len(shard[0]) for shard in self._shards])
        self._held: list[Tensor] | None = None
        if sum(column.nbytes for shard in self._shards for column in shard) <= HELD_BYTES:
            columns = (np.concatenate([shard[key][:] for shard in self._shards]) for key in range(len(self.KEYS)))
            self._held = [torch.from_numpy(column).long() for column in columns]
        del self._shards  # a worker process opens its own files: HDF5's must not cross a fork

    @functools.cached_property
    def _shards(self) -> list[list[Any]]:
        """HDF5 datasets by shard and key; ValueError for a file that is cut off or no such shard, naming it."""
        import h5py

        shards = []
        for path in self._paths:
            try:
                file = h5py.File(path)
                shards.append([file[key] for key in self.KEYS])
            except (OSError, KeyError) as error:
                message = f"mlscaling data error: {path}: {error}; prepare the dataset anew"
                raise ValueError(message) from error
        return shards

    def __len__(self) -> int:
        """Number of examples."""
        return int(self._ends[-1])

    def __getitem__(self, request: Request) -> Batch:
        """The shards' six keys as int64 tensors."""
        if self._held is not None:
            rows = torch.from_numpy(request.indices)
            return tuple(column[rows] for column in self._held)
        shards = np.searchsorted(self._ends, request.indices, side="right")
        starts = np.concatenate([[0], self._ends[:-1]])[shards]
        places = list(zip(shards.tolist(), (request.indices - starts).tolist(), strict=True))
        columns = ([self._shards[shard][key][row] for shard, row in places] for key in range(len(self.KEYS)))
        return tuple(torch.from_numpy(np.stack(column)).long() for column in columns)


class BertWorkload(Workload):
    """Masked-LM pre-training."""

    num_counters = 3
    static_shapes = True
    full_scale: ClassVar[Mapping[str, Scalar]] = {
        "vocab_size": 30522,
        "hidden_size": 1024,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
        "intermediate_size": 4096,
        "max_position_embeddings": 512,
        "dropout": 0.1,
        "initializer_range": 0.02,
        "sinusoidal_positions": False,
        "initial_checkpoint": "",
    }

    def model(self) -> nn.Module:
        """A newly initialised BERT."""
        return Bert(self.sizes)

    def load_initial_weights(self, model: nn.Module) -> None:
        """Those of the reference's checkpoint, which the preparation put beside the data; none at the tiny scale."""
        if name := str(self.sizes["initial_checkpoint"]):
            load_weights(model, Path(self.spec.data_dir) / name, names=tensorflow_names)

    def synthetic_batch(self, num_samples: int) -> Batch:
        """Random tokens of the longest sequences, as the shards pad theirs to."""
        vocabulary, length = int(self.sizes["vocab_size"]), int(self.sizes["max_position_embeddings"])
        predictions = min(MLPERF_PREDICTIONS, math.ceil(0.15 * length))
        tokens = torch.randint(1, vocabulary, (num_samples, length))
        segments = (torch.arange(length) > length // 2).long().repeat(num_samples, 1)
        positions = torch.arange(predictions).repeat(num_samples, 1)
        labels = torch.randint(1, vocabulary, (num_samples, predictions))
        return tokens, torch.ones_like(tokens), segments, positions, labels, torch.randint(2, (num_samples,))

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """LAMB in NVIDIA's variant: gradients clipped to norm 1, no decay or adaptation of biases and norms."""
        from timm.optim import Lamb  # type: ignore[attr-defined]

        matrices = [value for value in model.parameters() if value.ndim > 1]
        vectors = [value for value in model.parameters() if value.ndim <= 1]
        return Lamb(
            [
                {"params": matrices, "weight_decay": self.hyperparameter("opt_lamb_weight_decay_rate")},
                {"params": vectors, "weight_decay": 0.0},
            ],
            lr=self.hyperparameter("opt_base_learning_rate"),
            betas=(self.hyperparameter("opt_lamb_beta_1"), self.hyperparameter("opt_lamb_beta_2")),
            eps=self.hyperparameter("opt_epsilon"),
            max_grad_norm=1.0,
        )

    def schedule(self) -> Callable[[int], float]:
        """Linear decay whose beginning is replaced by linear warm-up."""
        return schedules.warmup_within_linear_decay(
            start_step=int(self.hyperparameter("start_warmup_step")),
            warmup_steps=int(self.hyperparameter("num_warmup_steps")),
            training_steps=int(self.hyperparameter("opt_learning_rate_training_steps")),
        )

    def log_values(self) -> Mapping[str, Value]:
        """Keys of `closed_bert.yaml`."""
        names = (
            "opt_base_learning_rate",
            "opt_epsilon",
            "opt_learning_rate_training_steps",
            "num_warmup_steps",
            "start_warmup_step",
            "opt_lamb_beta_1",
            "opt_lamb_beta_2",
            "opt_lamb_weight_decay_rate",
        )
        values = {name: self.spec.hyperparameters[name] for name in names}
        return {"opt_name": "lamb", **values, "opt_learning_rate_warmup_steps": values["num_warmup_steps"]}

    def tensor_names(self, model: nn.Module) -> list[str]:
        """Names of the TensorFlow reference, which the closed rules list; fused projections are three of them."""
        return [name for parameter, _ in model.named_parameters() for name in tensorflow_names(parameter)]

    def samples(self, split: str) -> PretrainingSamples:
        """The split's shards."""
        return PretrainingSamples(Path(self.spec.data_dir), split=split)

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """Sum of the mean masked-LM and the mean next-sentence cross-entropy."""
        words, is_next = model(batch)
        masked = functional.cross_entropy(words.flatten(0, 1), batch[4].flatten(), ignore_index=0)
        return masked + functional.cross_entropy(is_next, batch[5])

    def counts(self, model: nn.Module, batch: Batch) -> Tensor:
        """Examples, masked tokens, and masked tokens that are predicted right."""
        words, _ = model(batch)
        labels = batch[4]
        is_masked = labels != 0
        hits = ((words.argmax(-1) == labels) & is_masked).sum()
        return torch.stack([torch.tensor(len(labels), device=hits.device), is_masked.sum(), hits]).double()

    def quality(self, totals: list[float]) -> float:
        """Masked-LM accuracy."""
        return totals[2] / totals[1]


WORKLOAD = BertWorkload

OUTSIDE = {
    "word.weight": ["bert/embeddings/word_embeddings"],
    "position.weight": ["bert/embeddings/position_embeddings"],
    "segment.weight": ["bert/embeddings/token_type_embeddings"],
    "norm": ["bert/embeddings/LayerNorm"],
    "pooler": ["bert/pooler/dense"],
    "next_sentence.weight": ["cls/seq_relationship/output_weights"],
    "next_sentence.bias": ["cls/seq_relationship/output_bias"],
    "transform": ["cls/predictions/transform/dense"],
    "transform_norm": ["cls/predictions/transform/LayerNorm"],
    "word_bias": ["cls/predictions/output_bias"],
}
INSIDE = {
    "self_attn.in_proj_": [f"attention/self/{name}" for name in ("query", "key", "value")],
    "self_attn.out_proj": ["attention/output/dense"],
    "linear1": ["intermediate/dense"],
    "linear2": ["output/dense"],
    "norm1": ["attention/output/LayerNorm"],
    "norm2": ["output/LayerNorm"],
}


def tensorflow_names(name: str) -> list[str]:
    """A parameter's names in the TensorFlow reference, e.g. `bert/encoder/layer_0/output/LayerNorm/beta`."""
    if name in OUTSIDE:
        return OUTSIDE[name]
    module, kind = name.removesuffix("weight").removesuffix("bias"), "weight" if name.endswith("weight") else "bias"
    prefix, table = "", OUTSIDE
    if module.startswith("encoder.layers."):
        number, _, module = module.removeprefix("encoder.layers.").partition(".")
        prefix, table = f"bert/encoder/layer_{number}/", INSIDE
    roots = table[module.removesuffix(".")]
    leaves = (
        {"weight": "gamma", "bias": "beta"} if roots[0].endswith("LayerNorm") else {"weight": "kernel", "bias": "bias"}
    )
    return [f"{prefix}{root}/{leaves[kind]}" for root in roots]
