"""The recurrent neural network transducer (RNN-T) of MLPerf's speech recognition, and greedy decoding with it.

Structure, initialisation and names of sizes follow the reference (mlcommons/training, rnn_speech_recognition/pytorch,
`rnnt/model.py`, `common/rnn.py`): the encoder halves the frames between two stacks of LSTM layers, the prediction
network is an LSTM over the tokens so far, and a joint network scores each pair of frame and token.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

State = tuple[Tensor, Tensor]
MAX_SYMBOLS_PER_FRAME = 30
"""Of the reference's `RNNTGreedyDecoder`."""


class Recurrent(nn.Module):
    """LSTM layers with dropout behind each, batch first; initialised as PyTorch does, then scaled."""

    def __init__(
        self, inputs: int, hidden: int, *, num_layers: int, dropout: float, forget_gate_bias: float, scale: float
    ) -> None:
        super().__init__()
        between = dropout if num_layers > 1 else 0.0
        self.lstm = nn.LSTM(inputs, hidden, num_layers=num_layers, dropout=between, batch_first=True)
        self.dropout = nn.Dropout(dropout)
        with torch.no_grad():
            for name, value in self.lstm.named_parameters():
                if name.startswith("bias"):
                    value[hidden : 2 * hidden] = forget_gate_bias if name.startswith("bias_ih") else 0.0
                value.mul_(scale)

    def forward(self, values: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """Outputs (samples, steps, hidden) and the last state."""
        found, last = self.lstm(values, state)
        return self.dropout(found), last


class Transducer(nn.Module):
    """Encoder, prediction network and joint network; the blank is the token behind the vocabulary."""

    def __init__(self, sizes: Mapping[str, Any], *, num_features: int, init_scale: float) -> None:
        super().__init__()
        hidden, pred_hidden, joint_hidden = (int(sizes[name]) for name in ("enc_n_hid", "pred_n_hid", "joint_n_hid"))
        start = {"forget_gate_bias": float(sizes["forget_gate_bias"]), "scale": init_scale}
        self.blank = int(sizes["vocab_size"])
        self.stack_time = int(sizes["enc_stack_time_factor"])
        self.pre_rnn = Recurrent(
            num_features,
            hidden,
            num_layers=int(sizes["enc_pre_rnn_layers"]),
            dropout=float(sizes["enc_dropout"]),
            **start,
        )
        self.post_rnn = Recurrent(
            self.stack_time * hidden,
            hidden,
            num_layers=int(sizes["enc_post_rnn_layers"]),
            dropout=float(sizes["enc_dropout"]),
            **start,
        )
        self.pred_embed = nn.Embedding(self.blank, pred_hidden)
        self.dec_rnn = Recurrent(
            pred_hidden,
            pred_hidden,
            num_layers=int(sizes["pred_rnn_layers"]),
            dropout=float(sizes["pred_dropout"]),
            **start,
        )
        self.joint_pred = nn.Linear(pred_hidden, joint_hidden)
        self.joint_enc = nn.Linear(hidden, joint_hidden)
        self.joint_dropout = nn.Dropout(float(sizes["joint_dropout"]))
        self.joint_net = nn.Linear(joint_hidden, self.blank + 1)

    def forward(self, features: Tensor, num_frames: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Scores of all pairs.

        Args:
            features: (samples, frames, features).
            num_frames: int64 (samples,).
            tokens: int64 (samples, tokens), padded by any token.
        Returns:
            Scores (samples, stacked frames, tokens + 1, vocabulary + 1) and the number of stacked frames (samples,).
        """
        encoded, lengths = self.encode(features, num_frames)
        # The start of an utterance is a zero vector, no token.
        embedded = functional.pad(self.pred_embed(tokens), (0, 0, 1, 0))
        predicted = self.joint_pred(self.dec_rnn(embedded)[0])
        return self.joint(encoded[:, :, None] + predicted[:, None]), lengths

    def encode(self, features: Tensor, num_frames: Tensor) -> tuple[Tensor, Tensor]:
        """Frames for the joint network and their number; the LSTMs run forwards, so that padding behind an utterance
        does not reach it."""
        frames, lengths = stacked(self.pre_rnn(features)[0], num_frames, factor=self.stack_time)
        return self.joint_enc(self.post_rnn(frames)[0]), lengths

    def joint(self, summed: Tensor) -> Tensor:
        """Scores of the vocabulary and the blank."""
        scores: Tensor = self.joint_net(self.joint_dropout(functional.relu(summed)))
        return scores

    @torch.no_grad()
    def greedy(self, features: Tensor, num_frames: Tensor, *, max_symbols: int) -> Tensor:
        """The likeliest token at each turn until an utterance's frames are used up; a blank goes on to the next frame.

        Returns:
            Tokens (samples, max_symbols), filled up with the blank.
        """
        encoded, lengths = self.encode(features, num_frames)
        samples = torch.arange(len(encoded), device=encoded.device)
        frame, found, in_frame = (torch.zeros_like(lengths) for _ in range(3))
        tokens = torch.full((len(encoded), max_symbols), self.blank, device=encoded.device)
        predicted, state = self._next(encoded.new_zeros(len(encoded), 1, self.pred_embed.embedding_dim), None)
        while True:
            is_active = (frame < lengths) & (found < max_symbols)
            if not is_active.any():
                return tokens
            at_frame = encoded[samples, frame.clamp(max=encoded.shape[1] - 1)]
            best = self.joint(at_frame + predicted).argmax(-1)
            speaks = is_active & (best != self.blank) & (in_frame < MAX_SYMBOLS_PER_FRAME)
            place = found.clamp(max=max_symbols - 1)[:, None]
            tokens.scatter_(1, place, torch.where(speaks[:, None], best[:, None], tokens.gather(1, place)))
            found, frame = found + speaks, frame + ~speaks
            in_frame = torch.where(speaks, in_frame + 1, 0)
            if speaks.any():
                spoken = self.pred_embed(best.clamp(max=self.blank - 1))[:, None]
                new_predicted, new_state = self._next(spoken, state)
                predicted = torch.where(speaks[:, None], new_predicted, predicted)
                state = (
                    torch.where(speaks[:, None], new_state[0], state[0]),
                    torch.where(speaks[:, None], new_state[1], state[1]),
                )

    def _next(self, embedded: Tensor, state: State | None) -> tuple[Tensor, State]:
        """The prediction network's output (samples, joint) and state behind one more token."""
        found, last = self.dec_rnn(embedded, state)
        return self.joint_pred(found[:, 0]), last


def stacked(frames: Tensor, num_frames: Tensor, *, factor: int) -> tuple[Tensor, Tensor]:
    """Each `factor` frames side by side in one, the last one filled up with zeros; and the new number of frames."""
    samples, length, width = frames.shape
    filled = functional.pad(frames, (0, 0, 0, -length % factor))
    return filled.reshape(samples, -1, factor * width), (num_frames + factor - 1) // factor


def library_loss(scores: Tensor, num_frames: Tensor, tokens: Tensor, num_tokens: Tensor) -> Tensor:
    """Mean negative log-likelihood of the tokens, summed over their alignments (https://arxiv.org/abs/1211.3711), by
    torchaudio; in float32, also where the scores are not."""
    from torchaudio.functional import rnnt_loss

    lengths = (num_frames.int(), num_tokens.int())
    loss: Tensor = rnnt_loss(scores.float(), tokens.int(), *lengths, blank=scores.shape[-1] - 1)
    return loss


def diagonal_loss(scores: Tensor, num_frames: Tensor, tokens: Tensor, num_tokens: Tensor) -> Tensor:
    """The same by PyTorch's own operations, one diagonal of the frames × tokens lattice after the other.

    Three times as fast as torchaudio's for short utterances on a CPU; on a GPU each diagonal is a few launches.
    """
    weights = scores.float().log_softmax(-1)
    samples, length, width = weights.shape[:3]
    blank = weights[..., -1]
    labels = tokens[:, None, :, None].expand(-1, length, -1, -1)
    label = functional.pad(weights[:, :, :-1].gather(3, labels)[..., 0], (0, 1), value=NEVER)
    # Row d of a skewed lattice holds the nodes (d − u, u); what is outside the lattice is never reached.
    place = torch.arange(width, device=scores.device)
    frame = torch.arange(length + width - 1, device=scores.device)[:, None] - place
    outside = (frame < 0) | (frame >= length)
    rows = frame.clamp(0, length - 1)
    blank, label = (part[:, rows, place].masked_fill(outside, NEVER) for part in (blank, label))
    reached = [torch.where(place == 0, 0.0, NEVER).expand(samples, width)]
    for row in range(length + width - 2):
        said = functional.pad((reached[-1] + label[:, row])[:, :-1], (1, 0), value=NEVER)
        reached.append(torch.logaddexp(reached[-1] + blank[:, row], said))
    sample = torch.arange(samples, device=scores.device)
    last = num_frames - 1 + num_tokens
    ends = torch.stack(reached, 1)[sample, last, num_tokens] + blank[sample, last, num_tokens]
    return -ends.mean()


NEVER = -1e30
"""Logarithm of a probability of zero, without NaN in gradients."""
LOSSES = {"torchaudio": library_loss, "diagonal": diagonal_loss}
