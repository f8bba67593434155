"""Speech recognition: its features, its loss and its decoding are right, its runs repeat."""

from __future__ import annotations

import dataclasses
import itertools
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tiny_runs
import torch
from mlscaling import schedules, trainer
from mlscaling.acoustics import Features, Masks, stretched
from mlscaling.transducer import LOSSES, Transducer, stacked
from mlscaling.workloads import workload_by_name
from mlscaling.workloads.base import Request

SIZES = tiny_runs.run_spec("rnnt").model


def transducer(*, vocab_size: int = 5, seed: int = 0) -> Transducer:
    """A small model with strong weights, which says much of some frames and nothing of others."""
    torch.manual_seed(seed)
    full = workload_by_name("rnnt", tiny_runs.run_spec("rnnt")).sizes
    sizes = {**full, "vocab_size": vocab_size, "enc_n_hid": 16, "pred_n_hid": 8, "joint_n_hid": 12}
    model = Transducer(sizes, num_features=6, init_scale=3.0).eval()
    with torch.no_grad():
        model.joint_enc.weight *= 6
        model.joint_net.bias[-1] += 0.5
    return model


# --- features --------------------------------------------------------------------------------------------------------

NO_MASKS = Masks(freq_n=0, freq_min=0, freq_max=0, time_n=0, time_min=0, time_max=0.0)
WINDOWS = {"num_mels": 20, "window_size": 0.02, "window_stride": 0.01}


def noise(*lengths: int) -> tuple[torch.Tensor, torch.Tensor]:
    rows = [torch.randn(length, generator=torch.Generator().manual_seed(length)) * 0.1 for length in lengths]
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True), torch.tensor(lengths)


def test_features_are_normalised_over_the_utterance_and_zero_behind_it() -> None:
    features = Features(**WINDOWS, frame_stacking=1, masks=NO_MASKS)
    found, num_frames = features(*noise(16_000, 5_001), torch.zeros(2, 0, 2))
    assert num_frames.tolist() == [100, 32], "one every 160 samples"
    assert found.shape == (2, 101, 20)
    for row, length in zip(found, num_frames.tolist(), strict=True):
        assert torch.allclose(row[:length].mean(0), torch.zeros(20), atol=1e-4)
        assert torch.allclose(row[:length].std(0, correction=0), torch.ones(20), atol=1e-3)
        assert not row[length:].any()


def test_features_of_an_utterance_do_not_depend_on_its_batch() -> None:
    features = Features(**WINDOWS, frame_stacking=3, masks=NO_MASKS)
    together, num_frames = features(*noise(9_000, 5_000), torch.zeros(2, 0, 2))
    alone, length = features(*noise(5_000), torch.zeros(1, 0, 2))
    assert num_frames.tolist() == [19, 11]
    assert length.tolist() == [11]
    assert alone.shape[2] == 3 * 20
    assert torch.allclose(together[1, :11], alone[0, :11], atol=1e-4)


def test_features_tell_a_tone_by_its_band() -> None:
    features = Features(**WINDOWS, frame_stacking=1, masks=NO_MASKS)
    time = torch.arange(16_000) / 16_000
    sound = torch.where(time < 0.5, torch.sin(2 * torch.pi * 500 * time), torch.sin(2 * torch.pi * 3_000 * time))
    found, _ = features(sound[None], torch.tensor([16_000]), torch.zeros(1, 0, 2))
    low, high = found[0, 5:45].mean(0), found[0, 55:95].mean(0)
    assert low.argmax() < high.argmax()
    assert low[low.argmax()] > 0.9 > -0.9 > high[low.argmax()]


def test_masks_hide_whole_bands_and_frames_within_their_widths() -> None:
    masks = Masks(freq_n=2, freq_min=1, freq_max=5, time_n=3, time_min=0, time_max=0.1)
    draws = torch.rand(200, masks.num_draws, 2, generator=torch.Generator().manual_seed(0))
    num_frames = torch.full((200,), 60)
    num_frames[::2] = 30
    kept = masks.kept(draws, num_frames, num_mels=20, length=60)
    bands, times = ~kept[:, 59].clone(), (~kept).all(2)
    assert bands[::2].sum(1).min() >= 1, "behind the shorter utterances lie no masks in time"
    assert {int(count) for count in bands[::2].sum(1)} >= set(range(2, 10))
    assert bands[::2].sum(1).max() <= 10
    assert 12 < times[1::2].sum(1).max() <= 18, "three of a tenth of 60 frames"
    assert 6 < times[::2].sum(1).max() <= 9
    assert not times[::2, 30:].any()
    hidden = ~kept[::2]
    assert torch.equal(hidden, hidden.all(1, keepdim=True) | hidden.all(2, keepdim=True))


def test_a_stretched_tone_is_longer_and_lower() -> None:
    tone = torch.sin(2 * torch.pi * 1_000 * torch.arange(16_000) / 16_000)
    assert stretched(tone, percent=100) is tone
    for percent in (85, 115):
        found = stretched(tone, percent=percent)
        assert len(found) == 160 * percent
        peak = int(torch.fft.rfft(found).abs().argmax())
        assert peak == 1_000, "as many periods as before"


@pytest.mark.parametrize(("length", "expected"), [(6, [3, 2]), (5, [3, 2])])
def test_stacking_puts_frames_side_by_side(length: int, expected) -> None:
    frames = torch.arange(2 * length * 3.0).view(2, length, 3)
    found, num_frames = stacked(frames, torch.tensor([length, 3]), factor=2)
    assert found.shape == (2, 3, 6)
    assert num_frames.tolist() == expected
    assert found[0, 1].tolist() == [*frames[0, 2].tolist(), *frames[0, 3].tolist()]
    if length == 5:
        assert found[0, 2, 3:].tolist() == [0, 0, 0]


# --- loss and decoding -----------------------------------------------------------------------------------------------


def by_enumeration(scores: torch.Tensor, num_frames: int, tokens: list[int]) -> float:
    """Loss of one utterance: the probabilities of all its alignments, added up."""
    weights = scores.log_softmax(-1)
    total = []
    for places in itertools.combinations(range(num_frames - 1 + len(tokens)), len(tokens)):
        frame = said = 0
        likelihood = 0.0
        for turn in range(num_frames - 1 + len(tokens)):
            if turn in places:
                likelihood += float(weights[frame, said, tokens[said]])
                said += 1
            else:
                likelihood += float(weights[frame, said, -1])
                frame += 1
        total.append(likelihood + float(weights[frame, said, -1]))
    return -float(torch.tensor(total).logsumexp(0))


@pytest.mark.parametrize("name", sorted(LOSSES))
@pytest.mark.parametrize(("num_frames", "num_tokens"), [([1], [1]), ([4, 2], [2, 3]), ([6, 6, 3], [3, 1, 2])])
def test_loss_is_the_sum_over_all_alignments(name: str, num_frames, num_tokens) -> None:
    generator = torch.Generator().manual_seed(len(num_frames))
    scores = 3 * torch.randn(len(num_frames), max(num_frames), max(num_tokens) + 1, 5, generator=generator)
    tokens = torch.randint(0, 4, (len(num_frames), max(num_tokens)), generator=generator)
    expected = [
        by_enumeration(row, frames, said[:count].tolist())
        for row, frames, said, count in zip(scores, num_frames, tokens, num_tokens, strict=True)
    ]
    found = LOSSES[name](scores, torch.tensor(num_frames), tokens, torch.tensor(num_tokens))
    assert float(found) == pytest.approx(sum(expected) / len(expected), rel=1e-5)


def test_both_losses_and_their_gradients_agree() -> None:
    generator = torch.Generator().manual_seed(0)
    base = torch.randn(8, 30, 12, 40, generator=generator)
    tokens = torch.randint(0, 39, (8, 11), generator=generator)
    lengths = torch.tensor([30, 1, 7, 30, 12, 29, 2, 18]), torch.tensor([11, 1, 3, 2, 11, 5, 7, 1])
    results = []
    for loss in LOSSES.values():
        scores = base.clone().requires_grad_()
        value = loss(scores, lengths[0], tokens, lengths[1])
        value.backward()
        results.append((value.detach(), scores.grad))
    assert torch.allclose(results[0][0], results[1][0])
    assert torch.allclose(results[0][1], results[1][1], atol=1e-5)
    assert LOSSES["diagonal"](base.bfloat16(), lengths[0], tokens, lengths[1]).dtype == torch.float32


def said_by(model: Transducer, features: torch.Tensor, length: int, *, max_symbols: int) -> list[int]:
    """Greedy decoding of one utterance as the reference does it: a loop over frames, and one over symbols in it."""
    encoded, _ = model.encode(features[None], torch.tensor([length]))
    state, embedded, found = None, torch.zeros(1, 1, model.pred_embed.embedding_dim), []
    for frame in range(-(-length // model.stack_time)):
        for _ in range(30):
            if len(found) == max_symbols:
                return found
            hidden, next_state = model.dec_rnn(embedded, state)
            best = int(model.joint(encoded[0, frame] + model.joint_pred(hidden[0, 0])).argmax())
            if best == model.blank:
                break
            found.append(best)
            state, embedded = next_state, model.pred_embed(torch.tensor([[best]]))
    return found


@pytest.mark.parametrize("max_symbols", [4, 60])
def test_greedy_decoding_of_a_batch_is_that_of_each_utterance(max_symbols: int) -> None:
    spoken = set()
    for seed in range(4):
        model = transducer(seed=seed)
        features, lengths = 2 * torch.randn(5, 7, 6), torch.tensor([7, 1, 6, 3, 2])
        with torch.no_grad():
            expected = [
                said_by(model, row, int(n), max_symbols=max_symbols) for row, n in zip(features, lengths, strict=True)
            ]
        found = model.greedy(features, lengths, max_symbols=max_symbols)
        assert [[token for token in row if token != model.blank] for row in found.tolist()] == expected
        spoken |= {len(row) for row in expected}
    assert len(spoken) > 3 or max_symbols == 4, "some say much, some little"
    assert max(spoken) == max_symbols or max_symbols == 60


def test_padding_does_not_reach_an_utterance() -> None:
    model = transducer()
    features = torch.randn(2, 12, 6)
    longer = torch.nn.functional.pad(features, (0, 0, 0, 7), value=9.0)
    tokens, lengths = torch.tensor([[1, 2], [3, 0]]), torch.tensor([12, 6])
    scores, num_frames = model(features, lengths, tokens)
    padded, same = model(longer, lengths, tokens)
    assert num_frames.tolist() == same.tolist() == [6, 3]
    assert torch.allclose(padded[:, :6], scores, atol=1e-6)


# --- workload --------------------------------------------------------------------------------------------------------


def test_utterances_depend_on_seed_epoch_and_sample_only(spoken: Path) -> None:
    augmented = {"data_speed_perturbaton_min": 0.85, "data_speed_perturbaton_max": 1.15, "data_spec_augment_time_n": 2}
    spec = tiny_runs.run_spec("rnnt", data_dir=spoken, model={**augmented, "dither": 0.01})
    train = workload_by_name("rnnt", spec).samples("train")
    waveforms, num_samples, tokens, num_tokens, draws = train[Request(3, np.array([5, 700, 1023]))]
    assert waveforms.shape == (3, int(num_samples.max()))
    assert tokens.shape == (3, int(num_tokens.max()))
    assert draws.shape == (3, 2, 2)
    again = train[Request(3, np.array([1023, 5]))]
    assert torch.equal(again[0][1, : num_samples[0]], waveforms[0, : num_samples[0]])
    assert torch.equal(again[4], draws[[2, 0]])
    others = [
        train[Request(4, np.array([5]))],
        workload_by_name("rnnt", dataclasses.replace(spec, seed=99)).samples("train")[Request(3, np.array([5]))],
    ]
    assert all(other[0].shape[1] != int(num_samples[0]) for other in others)
    plain = workload_by_name("rnnt", tiny_runs.run_spec("rnnt", data_dir=spoken)).samples("train")
    lengths = [train[Request(epoch, np.arange(64))][1] / plain[Request(0, np.arange(64))][1] for epoch in range(4)]
    rates = (100 * torch.cat(lengths)).round()
    assert rates.min() == 85
    assert rates.max() == 115
    heard = workload_by_name("rnnt", spec).samples("eval")
    assert torch.equal(heard[Request(0, np.array([7]))][0], heard[Request(0, np.array([7]))][0])
    assert heard[Request(0, np.arange(3))][4].shape == (3, 0, 2), "no masks in an evaluation"


def test_evaluation_uses_the_averaged_weights(spoken: Path) -> None:
    found = workload_by_name("rnnt", tiny_runs.run_spec("rnnt", data_dir=spoken))
    torch.manual_seed(0)
    model = found.model()
    optimizer, factor = found.optimizer(model), found.hyperparameter("model_eval_ema_factor")
    expected = [value.detach().clone() for value in model.parameters()]
    samples = found.samples("train")
    for step in range(3):
        found.loss(model, samples[Request(0, np.arange(8 * step, 8 * step + 8))]).backward()
        optimizer.step()
        expected = [factor * old + (1 - factor) * new for old, new in zip(expected, model.parameters(), strict=True)]
    evaluated = []
    found.counts = lambda used, batch: evaluated.append(used) or torch.tensor([1.0, 0, 1]).double()
    found.evaluate(model, [()], device=torch.device("cpu"))
    assert all(torch.allclose(one, other) for one, other in zip(evaluated[0].parameters(), expected, strict=True))
    assert not evaluated[0].training


def test_errors_are_counted_in_words(spoken: Path, monkeypatch) -> None:
    found = workload_by_name("rnnt", tiny_runs.run_spec("rnnt", data_dir=spoken))
    batch = found.samples("eval")[Request(0, np.arange(128))]
    model = found.model()
    vocabulary, tokens, counts = found._tokenizer, batch[2], batch[3]
    words = [vocabulary.decode(row[:n].tolist()).split() for row, n in zip(tokens, counts, strict=True)]
    total = sum(map(len, words))

    def heard(change):
        texts = [" ".join(change(row)) for row in words]
        rows = [torch.tensor(vocabulary.encode(text).ids, dtype=torch.int64) for text in texts]
        padded = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=model.blank)
        monkeypatch.setattr(model, "greedy", lambda features, lengths, max_symbols: padded)
        return found.counts(model, batch).tolist()

    assert heard(lambda row: row) == [128, 0, total]
    assert heard(lambda row: []) == [128, total, total]
    assert heard(lambda row: [*row, "nine"]) == [128, 128, total]
    assert heard(lambda row: ["zeronine", *row[1:]]) == [128, 128, total]


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ({"vocab_size": 50}, r"tokenizer.json has \d+ tokens, but the model's vocab_size is 50"),
        ({"data_train_max_duration": 1.2}, r"an utterance has \d\.\d s, but data_train_max_duration is 1.2"),
        ({"transducer_loss": "warp"}, "workload rnnt: transducer_loss 'warp' is unknown; legal: diagonal, torchaudio"),
    ],
)
def test_data_and_sizes_that_do_not_fit_are_refused(spoken: Path, model, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        workload_by_name("rnnt", tiny_runs.run_spec("rnnt", data_dir=spoken, model=model)).samples("train")


def test_no_data_is_touched_before_run_start(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"nowhere/tokenizer.json"):
        trainer.train(few(tmp_path / "nowhere"), log_file=tmp_path / "log.txt")
    assert tiny_runs.events(tmp_path / "log.txt")[-1]["key"] == "run_start"


@pytest.mark.parametrize(
    ("step", "expected"),
    [(0, 2 / 21), (18, 20 / 21), (19, 1.0), (49, 1.0), (50, 0.5), (59, 0.5), (60, 0.25), (99, 0.03125), (200, 0.01)],
)
def test_schedule_of_epochs(step: int, expected: float) -> None:
    factor = schedules.warmup_hold_exponential(
        steps_per_epoch=10, warmup_epochs=2, hold_epochs=3, gamma=0.5, end_factor=0.01
    )
    assert factor(step) == pytest.approx(expected)


# --- runs ------------------------------------------------------------------------------------------------------------

FEW = {"train_samples": 128, "eval_samples": 33, "evaluate_every_samples": 128, "target": -1.0}


@pytest.fixture(scope="module")
def few_spoken(spoken: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first utterances of each split; 33 divide neither by ranks nor by batches."""
    import h5py

    folder = tmp_path_factory.mktemp("few")
    for path in spoken.iterdir():
        if path.suffix != ".hdf5":
            (folder / path.name).symlink_to(path)
    for split, number in (("train", 128), ("eval", 33)):
        with h5py.File(spoken / f"{split}.hdf5") as source, h5py.File(folder / f"{split}.hdf5", "w") as target:
            for name in ("part", "start", "num_samples", "token_ends"):
                target[name] = source[name][:number]
            target["tokens"] = source["tokens"][: source["token_ends"][number - 1]]
    return folder


def few(data_dir: Path, **changes):
    """A run of two short evaluations that never reaches its target."""
    return tiny_runs.run_spec("rnnt", data_dir=data_dir, hyperparameters={"max_epochs": 2}, **{**FEW, **changes})


def test_equal_runs_evaluate_alike_and_other_seeds_do_not(few_spoken: Path, tmp_path: Path) -> None:
    found = []
    for number, seed in enumerate((1, 1, 2)):
        log = tmp_path / f"{number}.txt"
        assert trainer.train(dataclasses.replace(few(few_spoken), seed=seed), log_file=log) == "aborted"
        found.append(tiny_runs.series(tiny_runs.events(log)))
    assert found[0] == found[1]
    assert found[0] != found[2]


@pytest.mark.training
def test_target_is_reached_and_the_official_checker_accepts_the_log(spoken: Path, tmp_path: Path) -> None:
    spec = tiny_runs.run_spec("rnnt", data_dir=spoken)
    assert trainer.train(spec, log_file=tmp_path / "log.txt") == "success"
    qualities = [quality for _, quality in tiny_runs.series(tiny_runs.events(tmp_path / "log.txt"))]
    assert qualities[-1] <= spec.target < min(qualities[:-1])
    command = [sys.executable, "-m", "mlperf_logging.compliance_checker", "--usage", "training", "--ruleset", "1.1.0"]
    command += ["--werror", "--log_output", "checker.log", "log.txt"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
