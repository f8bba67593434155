"""Classes of failures, from what ranks really print."""

from __future__ import annotations

import pytest
from mlscaling.failures import FAILURE_CLASSES, classify

TRACEBACK = "1: Traceback (most recent call last):"
GLOO = "0: RuntimeError: [gloo/transport/tcp/pair.cc:544] Connection closed by peer [127.0.0.1]:2345"


@pytest.mark.parametrize(
    ("lines", "failure_class", "message"),
    [
        (["0: fine", "7: " + GLOO[3:]], "network", "Connection closed by peer"),
        (["srun: error: node3: task 7: Exited with exit code 1", "0: fine", "7: NCCL WARN unhandled system error"], "network", "NCCL"),
        (["3: [rank3]:[E] [Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9)", "srun: error: n2: task 3: Aborted"], "network", "Watchdog"),
        (["emulate: rank 1 ended with status 1; ending the others", TRACEBACK, "1: KeyError: 'x'", GLOO], "unknown", "KeyError"),
        (["emulate: rank 1 ended by signal SIGKILL; ending the others", GLOO], "unknown", "SIGKILL"),
        (["emulate: rank 1 ended by signal SIGBUS; ending the others", GLOO], "node", "SIGBUS"),
        (["1: torch.OutOfMemoryError: CUDA out of memory.", GLOO], "out_of_memory", "CUDA"),
        (["slurmstepd: error: Detected 1 oom_kill event in StepId=5.0"], "out_of_memory", "oom_kill"),
        (["slurmstepd: error: *** JOB 5 ON node1 CANCELLED AT x DUE TO TIME LIMIT ***"], "timeout", "TIME LIMIT"),
        (["slurmstepd: error: *** JOB 5 ON node1 CANCELLED AT x DUE TO PREEMPTION ***"], "preempted", "PREEMPTION"),
        (["slurmstepd: error: *** STEP 5.0 ON node1 CANCELLED AT x DUE TO NODE FAILURE, SEE SLURMCTLD LOG"], "node", "NODE"),
        (["0: mlscaling data error: shard x has another checksum"], "data", "shard"),
        (["0: ModuleNotFoundError: No module named 'torch'"], "config", "torch"),
        ([], "unknown", "nothing known"),
    ],
)  # fmt: skip
def test_class_and_message(lines: list[str], failure_class: str, message: str) -> None:
    failure = classify(lines, otherwise="nothing known")
    assert (failure.failure_class, message in failure.message) == (failure_class, True), failure
    assert failure.failure_class in FAILURE_CLASSES
