"""An implementation as vendors publish them: no PyTorch, none of this project, only variables in and MLLOG lines out.

It is started once for each rank. As in published logs, the first rank of every node prints the submission header and the
cache-clear event, every rank prints its start, the first rank of all prints the run; one launch makes `NEXP` trials, each
of which ends with a RESULT line. "Training" is waiting: an epoch takes as long as its samples at 400 samples/s per rank,
and larger batches need more epochs.
"""

import json
import os
import random
import sys
import time

NODES, GPUS = int(os.environ["DGXNNODES"]), int(os.environ["DGXNGPU"])
BATCHSIZE, NEXP = int(os.environ["BATCHSIZE"]), int(os.environ["NEXP"])
DATADIR, LOGDIR = os.environ["DATADIR"], os.environ["LOGDIR"]
LR = float(os.environ.get("LR", "0.1"))
SAMPLES, EVAL_SAMPLES, SAMPLES_PER_S, TARGET = 200, 50, 400.0, 0.97
RANK = int(next(os.environ[name] for name in ("OMPI_COMM_WORLD_RANK", "RANK", "SLURM_PROCID") if name in os.environ))


def event(key, value=None, event_type="POINT_IN_TIME", **metadata):
    """Print one MLLOG line; ranks share one standard output, so a line is one write."""
    line = {"namespace": "", "time_ms": int(1000 * time.time()), "event_type": event_type, "key": key, "value": value,
            "metadata": {"file": "run_and_time.py", "lineno": 1, **metadata}}  # fmt: skip
    sys.stdout.write(":::MLLOG " + json.dumps(line) + "\n")
    sys.stdout.flush()


def header():
    """What a node says before a trial."""
    values = {
        "benchmark": "resnet",
        "division": "open",
        "org": "vendor",
        "platform": f"{NODES}xVENDOR",
        "status": "onprem",
    }
    for key, value in values.items():
        event(f"submission_{key}", value)
    print("Clearing cache on", os.uname().nodename)
    event("cache_clear", True)


def settings(seed):
    """What a run is made with."""
    ranks = NODES * GPUS
    values = {
        "seed": seed, "global_batch_size": BATCHSIZE * ranks, "gradient_accumulation_steps": 1, "train_samples": SAMPLES,
        "eval_samples": EVAL_SAMPLES, "opt_name": "sgd", "sgd_opt_base_learning_rate": LR, "opt_base_learning_rate": LR,
        "sgd_opt_end_learning_rate": 0.0001, "sgd_opt_learning_rate_decay_poly_power": 2,
        "sgd_opt_learning_rate_decay_steps": 100, "opt_learning_rate_warmup_epochs": 1, "sgd_opt_momentum": 0.9,
        "sgd_opt_weight_decay": 0.0001, "model_bn_span": BATCHSIZE,
    }  # fmt: skip
    for key, value in values.items():
        event(key, value)
    event("weights_initialization", tensor="conv0_weight")


def train(seed):
    """The timed run of the first rank."""
    ranks = NODES * GPUS
    needed = 3 + random.Random(seed).randint(0, 1) + (ranks - 1) // 2
    event("run_start", event_type="INTERVAL_START")
    for epoch in range(1, needed + 1):
        event("block_start", event_type="INTERVAL_START", first_epoch_num=epoch, epoch_count=1)
        event("epoch_start", event_type="INTERVAL_START", epoch_num=epoch)
        time.sleep(SAMPLES / (SAMPLES_PER_S * ranks))
        event("epoch_stop", event_type="INTERVAL_END", epoch_num=epoch)
        event("block_stop", event_type="INTERVAL_END", first_epoch_num=epoch)
        event("eval_start", event_type="INTERVAL_START", epoch_num=epoch)
        event("eval_accuracy", 0.98 if epoch == needed else 0.5 + 0.4 * epoch / needed, epoch_num=epoch)
        event("eval_stop", event_type="INTERVAL_END", epoch_num=epoch)
    event("run_stop", event_type="INTERVAL_END", status="success")


def trial(number):
    """One run, from the header to the result line; each trial has a seed of its own."""
    seed = int(os.environ["SEED"]) + number - 1
    if RANK == 0:
        print(f"Beginning trial {number} of {NEXP}")
    if RANK % GPUS == 0:
        header()
    start = time.time()
    event("init_start", event_type="INTERVAL_START")
    time.sleep(0.3)  # the other ranks have started by now; one that has not is only a late line
    if RANK == 0:
        settings(seed)
        event("init_stop", event_type="INTERVAL_END")
        train(seed)
        with open(os.path.join(LOGDIR, f"trial_{number}.txt"), "w") as stream:
            stream.write("done\n")
        print(f"RESULT,IMAGE_CLASSIFICATION,,{time.time() - start:.0f},vendor,2021-10-21 01:58:02 PM")
    else:
        wait_for(os.path.join(LOGDIR, f"trial_{number}.txt"))
        print(f"rank {RANK} is done with trial {number}")


def wait_for(path):
    """Stay as long as the first rank trains, as a rank in a collective does."""
    deadline = time.monotonic() + 120
    while not os.path.exists(path) and time.monotonic() < deadline:
        time.sleep(0.05)


def main():
    """All trials of one launch."""
    if not os.path.exists(os.path.join(DATADIR, "train.rec")):
        sys.exit(f"{DATADIR} has no train.rec")
    if os.environ.get("FAULT") == "no_stop":
        header()
        return
    for number in range(1, 2 if os.environ.get("FAULT") == "one_trial" else NEXP + 1):
        trial(number)


if __name__ == "__main__":
    main()
