"""Synthetic text about a small closed world, in the form that WikiExtractor gives to Wikipedia's articles.

Real text of this size teaches a tiny model little beyond neighbouring words. Here every animal has the same five
attributes wherever it is told of, so that a masked word follows from other sentences of the article: a model that
reaches MLPerf's masked-LM accuracy must attend across sentences. Grammar and facts follow from the seed alone.
"""

from __future__ import annotations

import hashlib
import io
import os
import random
import re
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from mlscaling.datasets.wikipedia import TEXT
from mlscaling.spec import DatasetSpec

WORLD = """
animal: fox owl whale crow goat hen crab wolf bee ant horse toad lamb duck mole hare deer swan bear seal moth frog
  calf mouse
colour: red grey blue black white brown green gold
place: forest lake field barn river hill cave shore
food: grass seeds fish leaves berries roots corn nuts
deed: sings sleeps hunts hides swims digs runs waits
time: dawn noon dusk night spring summer autumn winter
"""
SENTENCES = (
    "The {colour} {animal} lives in the {place}.",
    "At {time} the {animal} {deed} near the {place}.",
    "The {animal} eats {food} and {deed} at {time}.",
    "In the {place} a {colour} {animal} eats {food}.",
    "This {animal} is {colour} and {deed} all {time}.",
    "Some {food} in the {place} feed the {colour} {animal}.",
)
ARTICLES_PER_FILE = 64
FILES_PER_FOLDER = 100


def generate(spec: DatasetSpec, *, out_dir: Path) -> list[str]:
    """Write the tar of extracted articles and return its name; equal options give equal bytes."""
    articles = list(_articles(num_articles=int(spec.options["articles"]), seed=int(spec.options["seed"])))
    partial = out_dir / f"{TEXT}.partial"
    with tarfile.open(partial, "w", format=tarfile.USTAR_FORMAT) as archive:
        for number, start in enumerate(range(0, len(articles), ARTICLES_PER_FILE)):
            content = "".join(articles[start : start + ARTICLES_PER_FILE]).encode("utf-8")
            member = tarfile.TarInfo(member_name(number))
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    os.replace(partial, out_dir / TEXT)
    return [TEXT]


def member_name(number: int) -> str:
    """Path of a file as WikiExtractor names it: `text/AA/wiki_00`, one hundred files to a folder."""
    folder, file = divmod(number, FILES_PER_FOLDER)
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    return f"text/{letters[folder // 26]}{letters[folder % 26]}/wiki_{file:02d}"


def _articles(*, num_articles: int, seed: int) -> Iterator[str]:
    words = vocabulary()
    facts = world(words)
    draw = random.Random(seed)
    for number in range(num_articles):
        animal = draw.choice(words["animal"])
        sentences = [draw.choice(SENTENCES) for _ in range(draw.randint(10, 24))]
        lines = " ".join(sentence.format(animal=animal, **facts[animal]) for sentence in sentences)
        title = f"{animal.title()} ({number})"
        url = f"https://example.org/wiki?curid={number}"
        yield f'<doc id="{number}" url="{url}" title="{title}">\n{title}\n\n{lines}\n\n</doc>\n'


def vocabulary() -> dict[str, list[str]]:
    """Kind of word → its words."""
    kinds = (kind.partition(":") for kind in re.split(r"\n(?=\w)", WORLD.strip()))
    return {name: words.split() for name, _, words in kinds}


def world(words: Mapping[str, Sequence[str]]) -> dict[str, dict[str, str]]:
    """Animal → its attributes, fixed: they are the facts of this world, not part of what a seed draws."""
    return {
        animal: {
            name: values[int(hashlib.sha256(f"{animal} {name}".encode()).hexdigest(), 16) % len(values)]
            for name, values in words.items()
            if name != "animal"
        }
        for animal in words["animal"]
    }
