"""What every rank of a job does before its training: look at its own accelerator and data, meet the others, measure.

First each rank looks at what is its own, then rank 0 calls the roll, which needs no process group. Only if nothing is
wrong do the ranks join one and measure the network between them.
"""

from __future__ import annotations

import json
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlscaling import network, prepared_files
from mlscaling.emulation import available_cores
from mlscaling.files import write_json
from mlscaling.lasting import lasting_imports
from mlscaling.preflight import Request
from mlscaling.spec import RunSpec
from mlscaling.whereabouts import line_of_rank

if TYPE_CHECKING:
    from mlscaling.distributed import Ranks

MOST_FILES = 5
"""Wrong files that one node names."""
ALONE = "one rank: there is no network between ranks to measure"
Report = dict[str, Any]


def main_rank(spec: RunSpec, *, request: Request, report: Path) -> int:
    """One rank, from its entry point; rank 0 writes the report. 0 if nothing is wrong, whatever was measured.

    Where there are several ranks this ends the process; gloo's threads may abort its teardown.
    """
    if spec.world_size == 1 and spec.device == "cpu":
        print(line_of_rank(0, world_size=1), flush=True)
        return _alone(look(spec, rank=0, local_rank=0), request=request, report=report)
    with lasting_imports():
        from mlscaling import distributed  # imports torch, which one rank on a CPU can do without

    place = distributed.ranks(world_size=spec.world_size)
    print(line_of_rank(place.rank, world_size=spec.world_size), flush=True)
    mine = look(spec, rank=place.rank, local_rank=place.local_rank)
    if spec.world_size == 1:
        return _alone(mine, request=request, report=report)
    return distributed.exit_process(_together(mine, place, spec, request=request, report=report))


def look(spec: RunSpec, *, rank: int, local_rank: int) -> Report:
    """What a rank sees of its own: host, accelerator, and for the first of a node its data."""
    problems: list[list[str]] = []
    try:
        accelerator = _gpu(local_rank) if spec.device == "cuda" else _cores(spec)
    except (ValueError, RuntimeError) as error:
        accelerator = ""
        problems.append(["node", f"rank {rank}: {str(error).splitlines()[0]}"])
    folder = Path(spec.data_dir)
    if local_rank == 0:
        wrong = prepared_files.wrong_files(folder)
        problems += [["data", sentence] for sentence in wrong[:MOST_FILES]]
        if len(wrong) > MOST_FILES:
            problems.append(["data", f"{folder}: {len(wrong) - MOST_FILES} more files are wrong"])
    return {
        "rank": rank,
        "local_rank": local_rank,
        "host": socket.gethostname(),
        "accelerator": accelerator,
        "data": prepared_files.digest_of(folder) if local_rank == 0 else "",
        "problems": problems,
    }


def _gpu(local_rank: int) -> str:
    """Model and UUID of the rank's GPU, after it has computed something."""
    import torch

    from mlscaling.distributed import device_of

    device = device_of("cuda", local_rank=local_rank)
    if float(torch.ones(2, device=device).sum()) != 2:
        raise ValueError(f"{device} computes 1 + 1 wrongly")
    properties = torch.cuda.get_device_properties(device)
    return f"{properties.name} {properties.uuid}"


def _cores(spec: RunSpec) -> str:
    """Cores that the rank may use.

    Raises:
        ValueError: fewer than the system's file gives it. Emulated nodes may share cores, and their attempts say so.
    """
    cores = available_cores()
    if len(cores) < spec.cpus_per_accelerator and not spec.emulated:
        raise ValueError(f"may use {len(cores)} cores, cpus_per_accelerator is {spec.cpus_per_accelerator}")
    return f"cores {','.join(map(str, cores))}"


# --- what all of them say ---------------------------------------------------------------------------------------------


def nodes_of_ranks(reports: Sequence[Report | None], *, nodes: int) -> list[int]:
    """Number of the node of each rank: by host, where there are as many hosts as nodes; else ranks fill nodes in order.

    Emulated nodes share a host; ranks in containers may each have a host name of their own.
    """
    hosts = list(dict.fromkeys(report["host"] for report in reports if report is not None))
    if None not in reports and len(hosts) == nodes:
        return [hosts.index(report["host"]) for report in reports if report is not None]
    return [rank // (len(reports) // nodes) for rank in range(len(reports))]


def problems_of(reports: Sequence[Report | None], *, request: Request) -> list[dict[str, str]]:
    """Everything that is wrong, by failure class, with the node's name in each message; missing ranks first."""
    layout = nodes_of_ranks(reports, nodes=len(request.nodes))
    names = [request.nodes[number] for number in layout]
    silent = [rank for rank, report in enumerate(reports) if report is None]
    found = [
        ("node", f"{names[rank]}: rank {rank} did not answer in rendezvous_limit_s = {request.rendezvous_limit_s}")
        for rank in silent
    ]
    present = [report for report in reports if report is not None]
    for report in present:
        name = names[report["rank"]]
        found += [(failure_class, f"{name}: {message}") for failure_class, message in report["problems"]]
    digests = {report["rank"]: report["data"] for report in present if report["data"]}
    for rank, digest in digests.items():
        if digest != digests.get(0, digest):
            message = f"its prepared data are others than those of {names[0]} (files_digest in prepared.json)"
            found.append(("data", f"{names[rank]}: {message}"))
    found += [("node", message) for message in _shared_gpus(present, names=names)]
    return [{"failure_class": failure_class, "message": message} for failure_class, message in found]


def _shared_gpus(reports: Sequence[Report], *, names: Sequence[str]) -> list[str]:
    ranks: dict[tuple[str, str], list[int]] = {}
    for report in reports:
        if report["accelerator"] and not report["accelerator"].startswith("cores"):
            ranks.setdefault((names[report["rank"]], report["accelerator"]), []).append(report["rank"])
    return [
        f"{name}: ranks {', '.join(map(str, sharing))} have the same GPU, {gpu}"
        for (name, gpu), sharing in ranks.items()
        if len(sharing) > 1
    ]


def full_report(reports: Sequence[Report | None], *, request: Request, **measured: Any) -> Report:
    """`preflight.json` as rank 0 writes it."""
    layout = nodes_of_ranks(reports, nodes=len(request.nodes))
    ranks = [
        {
            "rank": rank,
            "node": request.nodes[layout[rank]],
            "host": report["host"] if report else "",
            "accelerator": report["accelerator"] if report else "",
        }
        for rank, report in enumerate(reports)
    ]
    nothing = {"note": "", "backend": "", "sweep": [], "links": [], "rendezvous_s": 0.0, "sweep_s": 0.0}
    problems = problems_of(reports, request=request)
    return {"schema_version": 1, "nodes": request.nodes, "ranks": ranks, "problems": problems, **nothing, **measured}


# --- alone or together ------------------------------------------------------------------------------------------------


def _alone(mine: Report, *, request: Request, report: Path) -> int:
    full = full_report([mine], request=request, note=ALONE)
    write_json(full, report)
    return _say(full)


def _together(mine: Report, place: Ranks, spec: RunSpec, *, request: Request, report: Path) -> int:
    from mlscaling import distributed

    begin = time.monotonic()
    store = distributed.meeting_place(place, limit_s=request.rendezvous_limit_s)
    said = distributed.call_roll(store, place, says=json.dumps(mine), limit_s=request.rendezvous_limit_s)
    reports = [json.loads(text) if text else None for text in said]
    full: Report = {}
    if place.is_first:
        full = full_report(reports, request=request, rendezvous_s=time.monotonic() - begin)
        write_json(full, report)
    layout = nodes_of_ranks(reports, nodes=len(request.nodes)) if place.is_first and not full["problems"] else []
    limit_s = request.rendezvous_limit_s + 30
    layout = json.loads(distributed.told_by_first(store, place, says=json.dumps(layout), limit_s=limit_s))
    if not layout:
        return _say(full) if place.is_first else 0
    device = distributed.device_of(spec.device, local_rank=place.local_rank)
    distributed.join(place, device=device, timeout_min=1 + request.sweep_limit_s / 60, store=store)
    measured = _measured(place, layout, device=device, request=request)
    if place.is_first:
        full |= measured
        write_json(full, report)
        _say(full)
    distributed.leave()
    return 0


def _measured(place: Ranks, layout: Sequence[int], *, device: Any, request: Request) -> Report:
    from mlscaling import network_probe

    begin = time.monotonic()
    limit_s = float(request.sweep_limit_s)
    swept = network_probe.sweep(place, device=device, largest=request.max_message_bytes, limit_s=0.7 * limit_s)
    nodes = [
        [rank for rank, node in enumerate(layout) if node == number] for number in range(len(request.nodes))
    ]  # fmt: skip
    links = network_probe.ring(nodes, place, device=device, swept=swept, limit_s=0.3 * limit_s)
    for link in links:
        link["nodes"] = [request.nodes[number] for number in link["nodes"]]
    backend = "nccl" if device.type == "cuda" else "gloo"
    return {"backend": backend, "sweep": swept, "links": links, "sweep_s": time.monotonic() - begin}


def _say(full: Mapping[str, Any]) -> int:
    for problem in full["problems"]:
        print(f"preflight: {problem['failure_class']}: {problem['message']}", file=sys.stderr, flush=True)
    if full["sweep"]:
        best = network.bus_bandwidth(full["sweep"])
        print(f"preflight: bus bandwidth {best:.3g} GB/s of {len(full['ranks'])} ranks", flush=True)
    return 1 if full["problems"] else 0
