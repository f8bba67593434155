"""Articles of tokens → BERT's pre-training examples, as the reference's `create_pretraining_data.py` makes them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

Sentence = Sequence[int]


class Example(NamedTuple):
    """One example, padded; the fields are the keys of the HDF5 shards."""

    input_ids: list[int]
    input_mask: list[int]
    segment_ids: list[int]
    masked_lm_positions: list[int]
    masked_lm_ids: list[int]
    next_sentence_labels: int


DTYPES = dict(zip(Example._fields, ("int32", "int8", "int8", "int32", "int32", "int8"), strict=True))
"""Types of NVIDIA's shards by key."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """Sizes and rates of the examples."""

    max_seq_length: int
    """Tokens of an example, with [CLS] and two [SEP]."""
    max_predictions: int
    """Masked tokens of an example at most."""
    masked_share: float = 0.15
    """Share of the tokens that is masked."""
    short_share: float = 0.1
    """Share of the examples with a random, shorter length."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Vocabulary:
    """Identifiers of the special tokens."""

    size: int
    """Number of tokens."""
    cls: int
    """[CLS], before the first part."""
    sep: int
    """[SEP], after each part."""
    mask: int
    """[MASK]."""
    first_word: int
    """First identifier that may replace a masked token."""


def examples(
    articles: Sequence[Sequence[Sentence]], *, limits: Limits, vocabulary: Vocabulary, draw: Random
) -> Iterator[Example]:
    """Examples of all articles in order; random second parts come from the other articles."""
    for number in range(len(articles)):
        for first, second, is_random in _pairs(number, articles, limits=limits, draw=draw):
            yield _masked(first, second, is_random=is_random, limits=limits, vocabulary=vocabulary, draw=draw)


def _target_length(limits: Limits, draw: Random) -> int:
    longest = limits.max_seq_length - 3
    return draw.randint(5, longest) if draw.random() < limits.short_share else longest


def _pairs(
    number: int, articles: Sequence[Sequence[Sentence]], *, limits: Limits, draw: Random
) -> Iterator[tuple[list[int], list[int], bool]]:
    """Sentence pairs of one article: whole sentences up to the target length, cut in two at a random sentence."""
    article = articles[number]
    start = 0
    while start < len(article):
        target = _target_length(limits, draw)
        end, length = start, 0
        while end < len(article) and length < target:
            length += len(article[end])
            end += 1
        cut = draw.randint(start + 1, end - 1) if end - start >= 2 else end
        first = _joined(article[start:cut])
        is_random = len(articles) > 1 and (end - start == 1 or draw.random() < 0.5)
        if is_random:
            second = _random_part(number, articles, length=target - len(first), draw=draw)
            start = cut  # the unused sentences begin the next pair
        else:
            second = _joined(article[cut:end])
            start = end
        if first and second:
            _truncate(first, second, longest=limits.max_seq_length - 3, draw=draw)
            yield first, second, is_random


def _random_part(number: int, articles: Sequence[Sequence[Sentence]], *, length: int, draw: Random) -> list[int]:
    """Sentences of another article from a random start on, until they reach `length` tokens."""
    other = draw.randrange(len(articles) - 1)
    article = articles[other if other < number else other + 1]
    tokens: list[int] = []
    for sentence in article[draw.randrange(len(article)) :]:
        tokens += sentence
        if len(tokens) >= length:
            break
    return tokens


def _joined(sentences: Sequence[Sentence]) -> list[int]:
    return [token for sentence in sentences for token in sentence]


def _truncate(first: list[int], second: list[int], *, longest: int, draw: Random) -> None:
    """Drop tokens from a random end of the longer part until both fit."""
    while len(first) + len(second) > longest:
        longer = first if len(first) > len(second) else second
        del longer[0 if draw.random() < 0.5 else -1]


def _masked(
    first: list[int], second: list[int], *, is_random: bool, limits: Limits, vocabulary: Vocabulary, draw: Random
) -> Example:
    """Mask tokens: of those chosen, 80 % become [MASK], 10 % a random word, 10 % stay."""
    tokens = [vocabulary.cls, *first, vocabulary.sep, *second, vocabulary.sep]
    segments = [0] * (len(first) + 2) + [1] * (len(second) + 1)
    separators = {0, len(first) + 1, len(tokens) - 1}
    candidates = [position for position in range(len(tokens)) if position not in separators]
    num_masked = min(limits.max_predictions, max(1, round(len(tokens) * limits.masked_share)))
    positions = sorted(draw.sample(candidates, min(num_masked, len(candidates))))
    labels = [tokens[position] for position in positions]
    for position in positions:
        choice = draw.random()
        if choice < 0.8:
            tokens[position] = vocabulary.mask
        elif choice < 0.9:
            tokens[position] = draw.randrange(vocabulary.first_word, vocabulary.size)
    return Example(
        input_ids=_padded(tokens, limits.max_seq_length),
        input_mask=_padded([1] * len(tokens), limits.max_seq_length),
        segment_ids=_padded(segments, limits.max_seq_length),
        masked_lm_positions=_padded(positions, limits.max_predictions),
        masked_lm_ids=_padded(labels, limits.max_predictions),
        next_sentence_labels=int(is_random),
    )


def _padded(values: list[int], length: int) -> list[int]:
    return values + [0] * (length - len(values))
