"""RNN-T speech recognition on LibriSpeech: transducer loss, LAMB, word error rate (MLPerf `rnnt`).

Rules: `closed_rnnt.yaml` of mlperf_logging and the reference (mlcommons/training, rnn_speech_recognition/pytorch). As
there, an evaluation decodes greedily with the exponential moving average of the weights. Departures from the reference:
the speed perturbation draws whole percents, and batches are drawn from all utterances at once, its
`data_train_num_buckets` 1, with which the round's RCPs ran.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from mlscaling import schedules
from mlscaling.acoustics import Features, Masks, stretched
from mlscaling.datasets.librispeech import PARTS, SAMPLE_RATE, TOKENIZER
from mlscaling.spec import RunSpec
from mlscaling.systems import Scalar
from mlscaling.transducer import LOSSES, Transducer
from mlscaling.workloads.base import Batch, Evaluation, Request, Workload


class SpokenSamples:
    """Utterances of one split: 16-bit samples mapped from disk, and their tokens."""

    def __init__(self, spec: RunSpec, *, split: str, sizes: Mapping[str, Any], num_draws: int) -> None:
        import h5py

        folder = Path(spec.data_dir)
        with h5py.File(folder / f"{split}.hdf5") as file:
            self._part, self._start, self._length, ends, self._tokens = (
                file[name][:] for name in ("part", "start", "num_samples", "token_ends", "tokens")
            )
        self._token_ends = np.concatenate([[0], ends])
        self._audio = {
            part: np.memmap(folder / f"{list(PARTS)[part]}.pcm", dtype="<i2", mode="r")
            for part in np.unique(self._part).tolist()
        }
        self._seed = spec.seed
        self._dither = float(sizes["dither"])
        self._num_draws = num_draws
        self._slowest = self._fastest = 100
        if split == "train":
            longest, limit = self._length.max() / SAMPLE_RATE, float(sizes["data_train_max_duration"])
            if longest > limit:
                raise ValueError(f"{folder}: an utterance has {longest:.1f} s, but data_train_max_duration is {limit}")
            self._fastest = round(100 * float(sizes["data_speed_perturbaton_min"]))
            self._slowest = round(100 * float(sizes["data_speed_perturbaton_max"]))

    def __len__(self) -> int:
        """Number of utterances."""
        return len(self._part)

    def __getitem__(self, request: Request) -> Batch:
        """Waveforms, float32 (samples, length) within −1 … 1, and their lengths, int64; tokens, int64 (samples,
        tokens), and their numbers, int64; uniform numbers for masks, float32 (samples, masks, 2). Padding is zero."""
        waveforms, tokens, masks = [], [], []
        for index in request.indices.tolist():
            # Counter-based: the draws belong to (seed, epoch, sample), whatever rank or worker loads it.
            draw = np.random.Generator(np.random.Philox(key=[self._seed, request.epoch], counter=[0, 0, 0, index]))
            waveforms.append(self._waveform(index, draw))
            places = slice(self._token_ends[index], self._token_ends[index + 1])
            tokens.append(torch.from_numpy(self._tokens[places].astype(np.int64)))
            masks.append(draw.random((self._num_draws, 2), dtype=np.float32))
        return *_padded(waveforms), *_padded(tokens), torch.from_numpy(np.stack(masks))

    def _waveform(self, index: int, draw: np.random.Generator) -> Tensor:
        audio, start = self._audio[int(self._part[index])], self._start[index]
        sound = torch.from_numpy(audio[start : start + self._length[index]].astype(np.float32) / 32768)
        sound = stretched(sound, percent=int(draw.integers(self._fastest, self._slowest + 1)))
        if self._dither:
            sound += self._dither * torch.from_numpy(draw.standard_normal(len(sound), dtype=np.float32))
        return sound


def _padded(rows: list[Tensor]) -> tuple[Tensor, Tensor]:
    return pad_sequence(rows, batch_first=True), torch.tensor([len(row) for row in rows])


class RnntWorkload(Workload):
    """Speech recognition."""

    num_counters = 3

    full_scale: ClassVar[Mapping[str, Scalar]] = {
        "vocab_size": 1023,
        "num_mels": 80,
        "window_size": 0.02,
        "window_stride": 0.01,
        "frame_stacking": 3,
        "dither": 0.00001,
        "enc_n_hid": 1024,
        "enc_pre_rnn_layers": 2,
        "enc_post_rnn_layers": 3,
        "enc_stack_time_factor": 2,
        "enc_dropout": 0.1,
        "pred_n_hid": 512,
        "pred_rnn_layers": 2,
        "pred_dropout": 0.3,
        "joint_n_hid": 512,
        "joint_dropout": 0.3,
        "forget_gate_bias": 1.0,
        "transducer_loss": "torchaudio",
        # Logged under these names, which are MLLOG's.
        "data_train_max_duration": 16.7,
        "data_speed_perturbaton_min": 0.85,
        "data_speed_perturbaton_max": 1.15,
        "data_spec_augment_freq_n": 2,
        "data_spec_augment_freq_min": 0,
        "data_spec_augment_freq_max": 20,
        "data_spec_augment_time_n": 10,
        "data_spec_augment_time_min": 0,
        "data_spec_augment_time_max": 0.03,
        "eval_max_prediction_symbols": 300,
    }

    def __init__(self, spec: RunSpec) -> None:
        super().__init__(spec)
        sizes = self.sizes
        self._masks = Masks(**{name: sizes[f"data_spec_augment_{name}"] for name in MASKS})
        self._features = Features(
            masks=self._masks,
            **{name: sizes[name] for name in ("num_mels", "window_size", "window_stride", "frame_stacking")},
        )
        if sizes["transducer_loss"] not in LOSSES:
            legal = ", ".join(sorted(LOSSES))
            message = f"transducer_loss {sizes['transducer_loss']!r} is unknown; legal: {legal}"
            raise ValueError(f"workload {spec.workload}: {message}")
        self._loss = LOSSES[str(sizes["transducer_loss"])]
        self._average: AveragedModel | None = None
        self._tokenizer: Any = None

    def model(self) -> nn.Module:
        """A newly initialised transducer."""
        return Transducer(
            self.sizes,
            num_features=int(self.sizes["num_mels"]) * int(self.sizes["frame_stacking"]),
            init_scale=float(self.hyperparameter("model_weights_initialization_scale")),
        )

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """LAMB in NVIDIA's variant over all parameters alike; each of its steps moves the averaged weights, too."""
        from timm.optim import Lamb  # type: ignore[attr-defined]

        norm = self.hyperparameter("opt_gradient_clip_norm")
        optimizer: torch.optim.Optimizer = Lamb(
            model.parameters(),
            lr=self.hyperparameter("opt_base_learning_rate"),
            betas=(self.hyperparameter("opt_lamb_beta_1"), self.hyperparameter("opt_lamb_beta_2")),
            eps=self.hyperparameter("opt_lamb_epsilon"),
            weight_decay=self.hyperparameter("opt_weight_decay"),
            max_grad_norm=None if norm == "none" else float(norm),
        )
        factor = float(self.hyperparameter("model_eval_ema_factor"))
        average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(factor))  # type: ignore[no-untyped-call]
        average.n_averaged += 1  # the initial weights count, as in the reference; else the first step replaces them
        optimizer.register_step_post_hook(lambda *_: average.update_parameters(model))
        self._average = average
        return optimizer

    def schedule(self) -> Callable[[int], float]:
        """Linear warm-up, a plateau, then exponential decay by epochs."""
        return schedules.warmup_hold_exponential(
            steps_per_epoch=self.steps_per_epoch,
            warmup_epochs=self.hyperparameter("opt_learning_rate_warmup_epochs"),
            hold_epochs=self.hyperparameter("opt_lamb_learning_rate_hold_epochs"),
            gamma=self.hyperparameter("opt_lamb_learning_rate_decay_poly_power"),
            end_factor=self.hyperparameter("opt_lamb_learning_rate_min")
            / self.hyperparameter("opt_base_learning_rate"),
        )

    def log_values(self) -> Mapping[str, Scalar]:
        """Keys of `closed_rnnt.yaml`."""
        norm = self.hyperparameter("opt_gradient_clip_norm")
        return {
            "opt_name": "lamb",
            **{name: self.hyperparameter(name) for name in HYPERPARAMETERS},
            "opt_gradient_clip_norm": float("inf") if norm == "none" else norm,
            "opt_learning_rate_alt_decay_func": True,
            "opt_learning_rate_alt_warmup_func": True,
            **{name: value for name, value in self.sizes.items() if name.startswith(("data_", "eval_"))},
            "data_train_num_buckets": 1,
        }

    def tensor_names(self, model: nn.Module) -> list[str]:
        """Names of the reference's modules, which the closed rules list; ours are the same."""
        return [name for name, part in model.named_children() if any(True for _ in part.parameters())]

    def samples(self, split: str) -> SpokenSamples:
        """The split's utterances.

        Raises:
            ValueError: if the data have another vocabulary than the model.
        """
        from tokenizers import Tokenizer

        path = Path(self.spec.data_dir) / TOKENIZER
        self._tokenizer = Tokenizer.from_str(path.read_text(encoding="utf-8"))
        found, expected = self._tokenizer.get_vocab_size(), self.sizes["vocab_size"]
        if found != expected:
            raise ValueError(f"{path} has {found} tokens, but the model's vocab_size is {expected}")
        draws = self._masks.num_draws if split == "train" else 0
        return SpokenSamples(self.spec, split=split, sizes=self.sizes, num_draws=draws)

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """Mean transducer loss of the utterances."""
        waveforms, num_samples, tokens, num_tokens, draws = batch
        scores, num_frames = model(*self._features(waveforms, num_samples, draws), tokens)
        return self._loss(scores, num_frames, tokens, num_tokens)

    def evaluate(self, model: nn.Module, batches: Iterable[Batch], *, device: torch.device) -> Evaluation:
        """Evaluate the averaged weights, which are the same on every rank."""
        averaged = model if self._average is None else self._average.module.eval()
        return super().evaluate(averaged, batches, device=device)

    def counts(self, model: nn.Module, batch: Batch) -> Tensor:
        """Utterances, errors in words, and words said."""
        import jiwer

        assert isinstance(model, Transducer)
        waveforms, num_samples, tokens, num_tokens, draws = batch
        features = self._features(waveforms, num_samples, draws)
        heard = model.greedy(*features, max_symbols=int(self.sizes["eval_max_prediction_symbols"])).tolist()
        said = [row[:length] for row, length in zip(tokens.tolist(), num_tokens.tolist(), strict=True)]
        heard = [[token for token in row if token != model.blank] for row in heard]
        found = jiwer.process_words(self._tokenizer.decode_batch(said), self._tokenizer.decode_batch(heard))
        errors = found.substitutions + found.deletions + found.insertions
        words = found.substitutions + found.deletions + found.hits
        return torch.tensor([len(said), errors, words], dtype=torch.float64)

    def quality(self, totals: list[float]) -> float:
        """Word error rate."""
        return totals[1] / totals[2]


WORKLOAD = RnntWorkload

MASKS = ("freq_n", "freq_min", "freq_max", "time_n", "time_min", "time_max")
HYPERPARAMETERS = (
    "model_eval_ema_factor",
    "model_weights_initialization_scale",
    "opt_base_learning_rate",
    "opt_lamb_beta_1",
    "opt_lamb_beta_2",
    "opt_lamb_epsilon",
    "opt_lamb_learning_rate_decay_poly_power",
    "opt_lamb_learning_rate_hold_epochs",
    "opt_lamb_learning_rate_min",
    "opt_learning_rate_warmup_epochs",
    "opt_weight_decay",
)
