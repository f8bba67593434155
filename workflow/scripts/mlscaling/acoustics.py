"""From waveforms to the features of MLPerf's speech recognition, on the device of the model.

Steps and constants are those of the reference (mlcommons/training, rnn_speech_recognition/pytorch,
`common/data/features.py` and README): pre-emphasis, a mel spectrogram of 20 ms windows every 10 ms, its logarithm,
mean 0 and deviation 1 for each band over the utterance, SpecAugment, and splicing of consecutive frames.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from mlscaling.transducer import stacked

SAMPLE_RATE = 16_000
NUM_FFT = 512
"""Samples of a Fourier transform; windows are shorter."""
PRE_EMPHASIS = 0.97
SILENCE = 1e-20
"""Power below which the logarithm is cut off."""
DEVIATION_EPSILON = 1e-5


@dataclass(frozen=True, kw_only=True, slots=True)
class Masks:
    """SpecAugment without time warping (https://arxiv.org/abs/1904.08779), its masks in time adapted to the utterance
    (https://arxiv.org/abs/1912.05533)."""

    freq_n: int
    """Masks in frequency."""
    freq_min: int
    """Smallest width of one, mel bands."""
    freq_max: int
    """Largest width of one, mel bands."""
    time_n: int
    """Masks in time."""
    time_min: int
    """Smallest width of one, frames."""
    time_max: float
    """Largest width of one, as a share of the utterance's frames."""

    @property
    def num_draws(self) -> int:
        """Pairs of uniform numbers, for width and place, that an utterance takes."""
        return self.freq_n + self.time_n

    def kept(self, draws: Tensor, num_frames: Tensor, *, num_mels: int, length: int) -> Tensor:
        """Where no mask lies: (samples, frames, bands)."""
        all_bands, widest = torch.full_like(num_frames, num_mels), torch.full_like(num_frames, self.freq_max)
        bands = covered(draws[:, : self.freq_n], self.freq_min, widest, extent=all_bands, length=num_mels)
        widest = (num_frames * self.time_max).round().long()
        times = covered(draws[:, self.freq_n :], self.time_min, widest, extent=num_frames, length=length)
        return ~(bands[:, None, :] | times[:, :, None])


def covered(draws: Tensor, narrowest: int, widest: Tensor, *, extent: Tensor, length: int) -> Tensor:
    """Positions (samples, length) under any of the masks that uniform draws (samples, masks, 2) place in `extent`."""
    width = narrowest + (draws[..., 0] * (widest[:, None] - narrowest + 1)).long()
    start = (draws[..., 1] * (extent[:, None] - width + 1)).long()
    position = torch.arange(length, device=draws.device)
    inside = (position >= start[..., None]) & (position < (start + width)[..., None])
    return inside.any(1)


class Features:
    """Waveforms → spliced log-mel features."""

    def __init__(
        self, *, num_mels: int, window_size: float, window_stride: float, frame_stacking: int, masks: Masks
    ) -> None:
        """Windows are in seconds."""
        self._num_mels = num_mels
        self._window = round(window_size * SAMPLE_RATE)
        self._hop = round(window_stride * SAMPLE_RATE)
        self._stacking = frame_stacking
        self._masks = masks
        self._transforms: tuple[torch.nn.Module, torch.nn.Module] | None = None

    @torch.no_grad()
    def __call__(self, waveforms: Tensor, num_samples: Tensor, draws: Tensor) -> tuple[Tensor, Tensor]:
        """Features and their number, in float32 whatever autocast says.

        Args:
            waveforms: float32 (samples, length), −1 … 1.
            num_samples: int64 (samples,).
            draws: uniform numbers (samples, masks, 2), or no mask at all.
        Returns:
            (samples, frames, features), zero behind an utterance's end, and the number of frames (samples,).
        """
        with torch.autocast(waveforms.device.type, enabled=False):
            emphasised = torch.cat([waveforms[:, :1], waveforms[:, 1:] - PRE_EMPHASIS * waveforms[:, :-1]], dim=1)
            # Behind its end an utterance is silent, so that its features do not depend on the batch it is in.
            emphasised *= torch.arange(waveforms.shape[1], device=waveforms.device) < num_samples[:, None]
            num_frames = (num_samples + self._hop - 1) // self._hop
            bands = (self._bands(emphasised) + SILENCE).log()[:, : waveforms.shape[1] // self._hop + 1]
            exists = torch.arange(bands.shape[1], device=bands.device) < num_frames[:, None]
            found = normalized(bands, exists[:, :, None])
            if draws.shape[1]:
                found = found * self._masks.kept(draws, num_frames, num_mels=self._num_mels, length=found.shape[1])
            return stacked(found, num_frames, factor=self._stacking)

    def _bands(self, waveforms: Tensor) -> Tensor:
        """Power in mel bands (samples, frames, bands), with librosa's default bands as in the reference."""
        if self._transforms is None:
            from torchaudio.transforms import MelScale, Spectrogram

            windows = Spectrogram(
                n_fft=NUM_FFT, win_length=self._window, hop_length=self._hop, power=None, pad_mode="constant"
            )
            scale = MelScale(self._num_mels, SAMPLE_RATE, n_stft=NUM_FFT // 2 + 1, norm="slaney", mel_scale="slaney")
            self._transforms = (windows.to(waveforms.device), scale.to(waveforms.device))
        spectrum = torch.view_as_real(self._transforms[0](waveforms))
        # Not abs() ** 2, whose square roots would take half of all the time.
        power = torch.addcmul(spectrum[..., 0] ** 2, spectrum[..., 1], spectrum[..., 1])
        bands: Tensor = self._transforms[1](power).transpose(1, 2)
        return bands


def normalized(bands: Tensor, exists: Tensor) -> Tensor:
    """Mean 0 and deviation 1 of each band over the frames that exist, zero elsewhere."""
    count = exists.sum(1, keepdim=True)
    mean = (bands * exists).sum(1, keepdim=True) / count
    centred = (bands - mean) * exists
    deviation = (centred.square().sum(1, keepdim=True) / count).sqrt()
    return centred / (deviation + DEVIATION_EPSILON)


def stretched(waveform: Tensor, *, percent: int) -> Tensor:
    """A waveform (length,) at `percent` of its length, pitch and all: the reference's speed perturbation."""
    from torchaudio.functional import resample

    if percent == 100:
        return waveform
    found: Tensor = resample(waveform, 100, percent)
    return found
