"""Wikipedia articles → masked-LM and next-sentence examples as HDF5 shards, with the keys of NVIDIA's MLPerf BERT.

Raw layout: a tar of the `text/AA/wiki_00` files that WikiExtractor writes, MLPerf's `vocab.txt`, and the TensorFlow
checkpoint that its BERT starts from; where there is no vocabulary one is trained. Examples are made as in the
reference's `create_pretraining_data.py`: sentence pairs filled up to the sequence length, half of them with a random
second part, 15 % of the tokens masked once and for all.

Departures from the reference, which uses NLTK's sentences and a list of held-out titles: sentences end by a rule, and
articles are held out by a hash of their identifier, so that no further data is needed.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from mlscaling.datasets import tars, tf_checkpoint
from mlscaling.datasets.pretraining import DTYPES, Example, Limits, Vocabulary, examples
from mlscaling.reference_weights import write_weights
from mlscaling.spec import DatasetSpec

TEXT = "text.tar"
VOCABULARY = "vocab.txt"
CHECKPOINT = "initial_checkpoint.hdf5"
"""Prepared weights under TensorFlow's names."""
PACKAGES = ("h5py", "tokenizers")
SPLITS = ("train", "eval")
SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
"""In the order of their identifiers: padding is token 0."""

ARTICLE = re.compile(r'<doc id="(?P<id>[^"]*)"[^>]*>\n(?P<text>.*?)\n</doc>', re.DOTALL)
SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z0-9\"'(])")


@dataclass(frozen=True, kw_only=True, slots=True)
class Article:
    """One article."""

    identifier: str
    """`id` of its `<doc>`."""
    sentences: tuple[str, ...]
    """In order, without the title line."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Shard:
    """One shard to be made, by one process."""

    spec: DatasetSpec
    """Options of the preparation."""
    raw_dir: Path
    """Where the archive is."""
    out_dir: Path
    """Where shard and vocabulary are."""
    number: int
    """Zero-based; takes every `num_shards`-th file of the archive."""


def prepare(spec: DatasetSpec, *, raw_dir: Path, out_dir: Path, num_processes: int = 1) -> dict[str, int]:
    """Make the vocabulary, then shard after shard; shards that are there are skipped.

    Returns:
        Number of examples by split.
    Raises:
        ValueError: for a truncated archive or one with too few articles, naming it.
    """
    make_vocabulary(spec, raw_dir=raw_dir, out_dir=out_dir)
    convert_checkpoint(spec, raw_dir=raw_dir, out_dir=out_dir)
    num_shards = int(spec.options["num_shards"])
    shards = [Shard(spec=spec, raw_dir=raw_dir, out_dir=out_dir, number=number) for number in range(num_shards)]
    todo = [shard for shard in shards if not all(shard_path(out_dir, split, shard.number).exists() for split in SPLITS)]
    if num_processes == 1:
        for shard in todo:
            make_shard(shard)
    else:
        with ProcessPoolExecutor(num_processes) as pool:
            list(pool.map(make_shard, todo))
    return {split: sum(num_examples(out_dir, split)) for split in SPLITS}


def make_vocabulary(spec: DatasetSpec, *, raw_dir: Path, out_dir: Path) -> None:
    """Take the raw vocabulary, or train a WordPiece vocabulary on all articles."""
    target = out_dir / VOCABULARY
    if target.exists():
        return
    partial = target.with_name(f"{VOCABULARY}.partial")
    if (raw_dir / VOCABULARY).exists():
        shutil.copyfile(raw_dir / VOCABULARY, partial)
    else:
        sentences = [sentence for article in articles(raw_dir / TEXT) for sentence in article.sentences]
        words = trained_vocabulary(sentences, size=int(spec.options["vocab_size"]))
        partial.write_text("".join(f"{word}\n" for word in words), encoding="utf-8")
    os.replace(partial, target)


def convert_checkpoint(spec: DatasetSpec, *, raw_dir: Path, out_dir: Path) -> None:
    """Keep the weights of the checkpoint that `initial_checkpoint` names, without the state of its optimiser.

    Raises:
        ValueError: for a checkpoint that is damaged, naming the file.
    """
    name = str(spec.options.get("initial_checkpoint", ""))
    if name and not (out_dir / CHECKPOINT).exists():
        found = tf_checkpoint.variables(raw_dir / name)
        write_weights(out_dir / CHECKPOINT, tf_checkpoint.without_slots(found))


def trained_vocabulary(sentences: Sequence[str], *, size: int) -> list[str]:
    """WordPieces of a text in the order of their identifiers.

    The trainer numbers single characters in the order of a hash map, which also decides ties between longer pieces:
    naming all characters first makes equal texts give equal vocabularies.
    """
    from tokenizers import BertWordPieceTokenizer

    tokenizer = BertWordPieceTokenizer(lowercase=True)
    characters = sorted({character for sentence in sentences for character in tokenizer.normalize(sentence)} - {" "})
    first = [*SPECIAL_TOKENS, *characters, *(f"##{character}" for character in characters)]
    tokenizer.train_from_iterator(sentences, vocab_size=size, special_tokens=first, show_progress=False)
    return [word for word, _ in sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])]


def articles(archive: Path, *, every: int = 1, first: int = 0) -> Iterator[Article]:
    """Articles of every `every`-th file of the archive, in order, as a stream."""
    with tars.opened(archive) as members:
        for number, member in enumerate(tars.files(members)):
            if number % every == first:
                yield from parsed(tars.content(members, member).read().decode("utf-8"))


def parsed(text: str) -> Iterator[Article]:
    """Articles of one of WikiExtractor's files; the first line of an article repeats its title."""
    for found in ARTICLE.finditer(text):
        lines = [line.strip() for line in found["text"].split("\n")[1:]]
        sentences = [sentence for line in lines if line for sentence in SENTENCE_END.split(line)]
        if sentences:
            yield Article(identifier=found["id"], sentences=tuple(sentences))


def is_held_out(identifier: str, *, share: float) -> bool:
    """Whether an article belongs to the evaluation split: a stable hash of its identifier."""
    return int(hashlib.md5(identifier.encode(), usedforsecurity=False).hexdigest()[:8], 16) < share * 16**8


def make_shard(shard: Shard) -> None:
    """Make both splits of one shard; equal raw data and options give equal bytes."""
    from tokenizers import BertWordPieceTokenizer

    options = shard.spec.options
    tokenizer = BertWordPieceTokenizer(str(shard.out_dir / VOCABULARY), lowercase=True)
    tokens: dict[str, list[list[list[int]]]] = {split: [] for split in SPLITS}
    for article in articles(shard.raw_dir / TEXT, every=int(options["num_shards"]), first=shard.number):
        encoded = tokenizer.encode_batch(list(article.sentences), add_special_tokens=False)
        split = "eval" if is_held_out(article.identifier, share=float(options["eval_share"])) else "train"
        tokens[split].append([sentence.ids for sentence in encoded if sentence.ids])
    for split in SPLITS:
        draw = Random(f"{options['seed']} {split} {shard.number}")
        found = [
            example
            for _ in range(int(options["dupe_factor"]))
            for example in examples(
                tokens[split], limits=_limits(options), vocabulary=_vocabulary(tokenizer), draw=draw
            )
        ]
        draw.shuffle(found)
        write_shard(shard_path(shard.out_dir, split, shard.number), found[: _share(shard, split, available=len(found))])


def _share(shard: Shard, split: str, *, available: int) -> int:
    """Examples that a shard gives to a split: its even share of `<split>_samples`, or all where that is 0."""
    wanted = int(shard.spec.options[f"{split}_samples"])
    if not wanted:
        return available
    whole, rest = divmod(wanted, int(shard.spec.options["num_shards"]))
    share = whole + (shard.number < rest)
    if available < share:
        raise ValueError(
            f"dataset {shard.spec.name}: {shard.raw_dir / TEXT} gives {available} examples for shard {shard.number} "
            f"of split {split!r}, but options.{split}_samples {wanted} needs {share}"
        )
    return share


def _limits(options: Mapping[str, Any]) -> Limits:
    return Limits(max_seq_length=int(options["max_seq_length"]), max_predictions=int(options["max_predictions"]))


def _vocabulary(tokenizer: Any) -> Vocabulary:
    special = {name: tokenizer.token_to_id(name) for name in ("[CLS]", "[SEP]", "[MASK]")}
    return Vocabulary(
        size=tokenizer.get_vocab_size(),
        cls=special["[CLS]"],
        sep=special["[SEP]"],
        mask=special["[MASK]"],
        first_word=max(special.values()) + 1,
    )


def shard_path(folder: Path, split: str, number: int) -> Path:
    """File of one shard of a split."""
    return folder / f"{split}_{number:05d}.hdf5"


def write_shard(path: Path, rows: Sequence[Example]) -> None:
    """Write examples beside, then rename; uncompressed, so that a training can read single rows."""
    import h5py

    partial = path.with_name(f"{path.name}.partial")
    with h5py.File(partial, "w") as file:
        for key, dtype in DTYPES.items():
            file.create_dataset(key, data=np.array([getattr(row, key) for row in rows], dtype=dtype))
    os.replace(partial, path)


def num_examples(folder: Path, split: str) -> list[int]:
    """Examples in each shard of a split, in the shards' order."""
    import h5py

    counts = []
    for path in sorted(folder.glob(f"{split}_*.hdf5")):
        with h5py.File(path) as file:
            counts.append(len(file["input_ids"]))
    return counts
