"""The checkpoint that MLPerf's BERT starts from: a miniature that TensorFlow wrote, read, prepared and loaded."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import tiny_runs
import torch
from mlscaling import trainer
from mlscaling.datasets import tf_checkpoint, wikipedia
from mlscaling.failures import classify
from mlscaling.reference_weights import load_weights, write_weights
from mlscaling.workloads import workload_by_name

MINIATURE = tiny_runs.ROOT / "tests" / "data" / "bert_checkpoint"
NAME = "model.ckpt-28252"
SIZES = {
    "vocab_size": 12,
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "max_position_embeddings": 6,
    "dropout": 0.0,
    "sinusoidal_positions": False,
    "initial_checkpoint": wikipedia.CHECKPOINT,
}


@pytest.fixture
def raw_dir(tmp_path: Path) -> Path:
    """A copy of the checkpoint that a test may damage."""
    shutil.copytree(MINIATURE, tmp_path / "raw")
    return tmp_path / "raw"


def prepared(raw_dir: Path, out_dir: Path) -> Path:
    out_dir.mkdir(exist_ok=True)
    wikipedia.convert_checkpoint(tiny_runs.dataset_spec("wikipedia"), raw_dir=raw_dir, out_dir=out_dir)
    return out_dir


def bert(data_dir: Path, **sizes):
    return workload_by_name("bert", tiny_runs.run_spec("bert", data_dir=data_dir, model={**SIZES, **sizes}))


def test_the_checkpoint_is_read_as_tensorflow_wrote_it() -> None:
    found = tf_checkpoint.variables(MINIATURE / NAME)
    assert int(found["global_step"]) == 28252
    draw = np.random.default_rng(0)  # the order of `make.py`
    assert np.array_equal(found["bert/embeddings/word_embeddings"], draw.normal(0, 0.5, (12, 8)).astype(np.float32))
    assert np.array_equal(
        found["bert/embeddings/token_type_embeddings"], draw.normal(0, 0.5, (2, 8)).astype(np.float32)
    )
    model = tf_checkpoint.without_slots(found)
    assert len(found) == 3 * len(model) + 1, "two slots for each variable, and the step"
    with torch.device("meta"):
        full = workload_by_name("bert", tiny_runs.run_spec("bert", scale="full", model={"num_hidden_layers": 2}))
        assert sorted(model) == sorted(full.tensor_names(full.model())), "the closed rules' names"


def test_a_model_with_the_prepared_weights_answers_as_tensorflow(tmp_path: Path) -> None:
    """Within what separates our GELU from the reference's, which is by tanh."""
    found = bert(prepared(MINIATURE, tmp_path))
    model = found.model().eval()
    found.load_initial_weights(model)
    expected = json.loads((MINIATURE / "expected.json").read_text())
    keys = ("input_ids", "input_mask", "segment_ids", "masked_lm_positions")
    words, following = model(tuple(torch.tensor(expected[key]) for key in keys))
    assert torch.allclose(words, torch.tensor(expected["words"]), atol=5e-3)
    assert torch.allclose(following, torch.tensor(expected["next_sentence"]), atol=5e-3)
    assert words.std() > 0.5, "far more than that"


def test_training_starts_from_the_prepared_weights(tmp_path: Path) -> None:
    found = bert(prepared(MINIATURE, tmp_path))
    place = trainer.Ranks(rank=0, local_rank=0, world_size=1)
    training = trainer.Training(found.spec, workload=found, place=place, device=torch.device("cpu"))
    expected = tf_checkpoint.variables(MINIATURE / NAME)["cls/predictions/output_bias"]
    assert np.array_equal(training.model.word_bias.detach().numpy(), expected)


def test_equal_checkpoints_give_equal_bytes(tmp_path: Path) -> None:
    one, other = (prepared(MINIATURE, tmp_path / name) / wikipedia.CHECKPOINT for name in "ab")
    assert one.read_bytes() == other.read_bytes()


def test_a_dataset_without_a_checkpoint_gets_none(tmp_path: Path) -> None:
    wikipedia.convert_checkpoint(tiny_runs.dataset_spec("wikipedia_closed_world"), raw_dir=tmp_path, out_dir=tmp_path)
    assert not (tmp_path / wikipedia.CHECKPOINT).exists()


@pytest.mark.parametrize(
    ("ending", "keep", "message"),
    [
        ("index", 0, "index is no whole index of a TensorFlow checkpoint"),
        ("index", 4000, "index is no whole index of a TensorFlow checkpoint"),
        ("data-00000-of-00001", 18_000, r"data-00000-of-00001 is cut off: it has 18000 bytes of at least \d+"),
    ],
)
def test_a_truncated_checkpoint_is_named(raw_dir: Path, ending: str, keep: int, message: str) -> None:
    path = raw_dir / f"{NAME}.{ending}"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(ValueError, match=message):
        prepared(raw_dir, raw_dir / "out")
    assert not (raw_dir / "out" / wikipedia.CHECKPOINT).exists()


def test_a_missing_file_of_the_checkpoint_is_named(raw_dir: Path) -> None:
    (raw_dir / f"{NAME}.data-00000-of-00001").unlink()
    with pytest.raises(FileNotFoundError, match="data-00000-of-00001"):
        prepared(raw_dir, raw_dir / "out")


def test_full_scale_asks_for_the_checkpoint_and_says_who_gives_it_out(tmp_path: Path) -> None:
    from mlscaling.datasets import raw

    with pytest.raises(FileNotFoundError) as found:
        raw.verify(tiny_runs.dataset_spec("wikipedia"), raw_dir=tmp_path)
    assert f"{NAME}.index (md5 f97de3ae180eb8d479555c939d50d048, size_bytes 17371)" in str(found.value)
    assert "tf1_ckpt" in str(found.value)
    assert tiny_runs.workload_spec("bert").scales["full"].model == {"initial_checkpoint": wikipedia.CHECKPOINT}


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"initial_checkpoint": "other.hdf5"}, "other.hdf5: no weights to start from; prepare the dataset anew"),
        ({"num_hidden_layers": 3}, "holds no bert/encoder/layer_2/attention/self/query/kernel"),
        ({"vocab_size": 13}, r"output_bias make an array of shape \(12,\), the model has \(13,\)"),
    ],
)
def test_weights_that_do_not_fit_are_a_failure_of_the_data(tmp_path: Path, sizes: dict, message: str) -> None:
    found = bert(prepared(MINIATURE, tmp_path), **sizes)
    with pytest.raises((ValueError, FileNotFoundError), match=message) as error:
        found.load_initial_weights(found.model())
    assert classify([f"0: {error.type.__name__}: {error.value}"], otherwise="").failure_class == "data"


def test_arrays_of_one_parameter_are_put_below_each_other(tmp_path: Path) -> None:
    arrays = {"a/kernel": np.arange(6.0).reshape(2, 3), "b/kernel": np.ones((2, 1))}
    write_weights(tmp_path / "w.hdf5", arrays)
    model = torch.nn.Linear(2, 4, bias=False)
    load_weights(model, tmp_path / "w.hdf5", names=lambda _: ["a/kernel", "b/kernel"])
    assert model.weight.tolist() == [[0, 3], [1, 4], [2, 5], [1, 1]]


def test_the_spec_of_a_tiny_run_names_no_checkpoint() -> None:
    assert "initial_checkpoint" not in dataclasses.asdict(tiny_runs.run_spec("bert"))["model"]
