"""Make the miniature of MLPerf BERT's initial checkpoint beside this file, with TensorFlow 2.21 (not needed otherwise).

`python make.py` writes `model.ckpt-28252.*` with the variables of the reference's graph (mlcommons/training,
language_model/tensorflow/bert, modeling.py and run_pretraining.py) at tiny sizes, with optimiser slots, and
`expected.json`: an input and what a model of these variables answers, computed with TensorFlow.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import tensorflow as tf

FOLDER = Path(__file__).resolve().parent
VOCABULARY, HIDDEN, INTERMEDIATE, LAYERS, HEADS, LENGTH = 12, 8, 16, 2, 2, 6


def shapes() -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {
        "bert/embeddings/word_embeddings": (VOCABULARY, HIDDEN),
        "bert/embeddings/token_type_embeddings": (2, HIDDEN),
        "bert/embeddings/position_embeddings": (LENGTH, HIDDEN),
        "cls/predictions/output_bias": (VOCABULARY,),
        "cls/seq_relationship/output_weights": (2, HIDDEN),
        "cls/seq_relationship/output_bias": (2,),
    }
    dense = {"bert/pooler/dense": (HIDDEN, HIDDEN), "cls/predictions/transform/dense": (HIDDEN, HIDDEN)}
    norms = ["bert/embeddings/LayerNorm", "cls/predictions/transform/LayerNorm"]
    for number in range(LAYERS):
        layer = f"bert/encoder/layer_{number}"
        dense |= {f"{layer}/attention/self/{name}": (HIDDEN, HIDDEN) for name in ("query", "key", "value")}
        dense |= {
            f"{layer}/attention/output/dense": (HIDDEN, HIDDEN),
            f"{layer}/intermediate/dense": (HIDDEN, INTERMEDIATE),
            f"{layer}/output/dense": (INTERMEDIATE, HIDDEN),
        }
        norms += [f"{layer}/attention/output/LayerNorm", f"{layer}/output/LayerNorm"]
    for name, shape in dense.items():
        found |= {f"{name}/kernel": shape, f"{name}/bias": shape[1:]}
    for name in norms:
        found |= {f"{name}/gamma": (HIDDEN,), f"{name}/beta": (HIDDEN,)}
    return found


def answer(values: dict[str, tf.Tensor], tokens: np.ndarray, mask: np.ndarray, segments: np.ndarray, places: np.ndarray):
    def dense(name: str, x: tf.Tensor) -> tf.Tensor:
        return tf.tensordot(x, values[f"{name}/kernel"], 1) + values[f"{name}/bias"]

    def gelu(x: tf.Tensor) -> tf.Tensor:
        return tf.nn.gelu(x, approximate=True)  # the reference's

    def norm(name: str, x: tf.Tensor) -> tf.Tensor:
        mean, variance = tf.nn.moments(x, [-1], keepdims=True)
        return (x - mean) / tf.sqrt(variance + 1e-12) * values[f"{name}/gamma"] + values[f"{name}/beta"]

    def heads(x: tf.Tensor) -> tf.Tensor:
        return tf.transpose(tf.reshape(x, (*x.shape[:2], HEADS, HIDDEN // HEADS)), (0, 2, 1, 3))

    embeddings = "bert/embeddings"
    x = tf.gather(values[f"{embeddings}/word_embeddings"], tokens)
    x += tf.gather(values[f"{embeddings}/token_type_embeddings"], segments)
    x += values[f"{embeddings}/position_embeddings"][: tokens.shape[1]]
    x = norm(f"{embeddings}/LayerNorm", x)
    hidden = (1 - tf.cast(mask, tf.float32))[:, None, None, :] * -10000.0
    for number in range(LAYERS):
        layer = f"bert/encoder/layer_{number}"
        query, key, value = (heads(dense(f"{layer}/attention/self/{name}", x)) for name in ("query", "key", "value"))
        shares = tf.nn.softmax(tf.matmul(query, key, transpose_b=True) / (HIDDEN // HEADS) ** 0.5 + hidden)
        seen = tf.reshape(tf.transpose(tf.matmul(shares, value), (0, 2, 1, 3)), x.shape)
        x = norm(f"{layer}/attention/output/LayerNorm", dense(f"{layer}/attention/output/dense", seen) + x)
        inner = gelu(dense(f"{layer}/intermediate/dense", x))
        x = norm(f"{layer}/output/LayerNorm", dense(f"{layer}/output/dense", inner) + x)
    pooled = tf.tanh(dense("bert/pooler/dense", x[:, 0]))
    following = tf.matmul(pooled, values["cls/seq_relationship/output_weights"], transpose_b=True)
    following += values["cls/seq_relationship/output_bias"]
    masked = gelu(dense("cls/predictions/transform/dense", tf.gather(x, places, batch_dims=1)))
    masked = norm("cls/predictions/transform/LayerNorm", masked)
    words = tf.tensordot(masked, tf.transpose(values["bert/embeddings/word_embeddings"]), 1)
    return words + values["cls/predictions/output_bias"], following


def main() -> None:
    draw = np.random.default_rng(0)
    values = {name: draw.normal(0, 0.5, shape).astype(np.float32) for name, shape in shapes().items()}
    slots = {f"{name}/{slot}": np.zeros_like(value) for name, value in values.items() for slot in ("adam_m", "adam_v")}
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        for name, value in {**values, **slots}.items():
            tf.compat.v1.get_variable(name, initializer=value)
        tf.compat.v1.get_variable("global_step", initializer=np.int64(28252))
        session.run(tf.compat.v1.global_variables_initializer())
        saver = tf.compat.v1.train.Saver()
        saver.save(session, str(FOLDER / "model.ckpt-28252"), write_meta_graph=False, write_state=False)
    given = {
        "input_ids": [[2, 5, 4, 7, 3, 0], [2, 4, 9, 4, 8, 3]],
        "input_mask": [[1, 1, 1, 1, 1, 0], [1, 1, 1, 1, 1, 1]],
        "segment_ids": [[0, 0, 0, 1, 1, 0], [0, 0, 0, 1, 1, 1]],
        "masked_lm_positions": [[2, 0], [1, 3]],
    }
    words, following = answer({n: tf.constant(v) for n, v in values.items()}, *(np.array(given[key]) for key in given))
    found = {"words": words.numpy().tolist(), "next_sentence": following.numpy().tolist()}
    (FOLDER / "expected.json").write_text(json.dumps({**given, **found}) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
