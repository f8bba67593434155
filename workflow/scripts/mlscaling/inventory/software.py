"""Versions of what a training runs on: Python packages, CUDA, NCCL, MPI, UCX, the fabric's drivers, Slurm."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from mlscaling import provenance
from mlscaling.inventory.commands import Answer

COMMANDS: Final = {
    "mpirun": ("mpirun", "--version"),
    "ucx_info": ("ucx_info", "-v"),
    "ofed_info": ("ofed_info", "-s"),
    "ldconfig": ("/sbin/ldconfig", "-p"),
}
"""What to ask."""
_WHEELS: Final = {
    "nccl": ("nvidia-nccl-cu13", "nvidia-nccl-cu12", "nvidia-nccl-cu11"),
    "cudnn": ("nvidia-cudnn-cu13", "nvidia-cudnn-cu12", "nvidia-cudnn-cu11"),
    "cublas": ("nvidia-cublas", "nvidia-cublas-cu12", "nvidia-cublas-cu11"),
}
"""Library → distributions that PyTorch's wheels bring it in, newest first."""
_IMAGE: Final = {
    "nccl": "NCCL_VERSION",
    "cudnn": "CUDNN_VERSION",
    "cublas": "CUBLAS_VERSION",
    "cuda": "CUDA_VERSION",
    "tensorrt": "TRT_VERSION",
    "dali": "DALI_VERSION",
    "mpi": "OPENMPI_VERSION",
    "ucx": "OPENUCX_VERSION",
    "ofed": "MOFED_VERSION",
    "ngc_pytorch": "NVIDIA_PYTORCH_VERSION",
}
"""Library → variable by which NVIDIA's images state its version."""
_SHARED: Final = {"nccl": "libnccl.so", "rccl": "librccl.so", "cudnn": "libcudnn.so"}
_MPI: Final = (
    (r"\(Open MPI\) (\S+)", "Open MPI"),
    (r"Intel\(R\) MPI Library.*?Version (.+?)(?: \(id|$)", "Intel MPI"),
    (r"HYDRA build details:\s+Version:\s+(\S+)", "MPICH"),
)
"""How `mpirun --version` names itself → the library."""


def software(
    replies: Mapping[str, Answer], *, variables: Mapping[str, str] | None = None, root: Path = Path("/")
) -> dict[str, Any]:
    """Packages and libraries with their versions, where a version can be found without loading anything.

    Args:
        replies: to `COMMANDS`.
        variables: of the environment; default, this process's.
        root: where `etc` and `opt` are.
    """
    layers = (
        parse_ldconfig(replies["ldconfig"].text),
        _stated_by_image(variables),
        {
            "mpi": parse_mpi(replies["mpirun"].text),
            "ucx": parse_ucx(replies["ucx_info"].text),
            "ofed": replies["ofed_info"].text.strip().rstrip(":"),
            "rocm": _first_line(root / "opt/rocm/.info/version"),
        },
        _of_wheels(),  # PyTorch loads these rather than the system's
        _of_torch(),
    )
    return {
        "operating_system": parse_os_release(_text(root / "etc/os-release")),
        "packages": provenance.package_versions(),
        "libraries": {name: version for layer in layers for name, version in layer.items() if version},
    }


def parse_os_release(text: str) -> str:
    """`PRETTY_NAME` of os-release(5)."""
    match = re.search(r'^PRETTY_NAME="?([^"\n]+)"?$', text, re.MULTILINE)
    return match[1] if match else ""


def parse_mpi(text: str) -> str:
    """`Open MPI 4.1.4` from `mpirun --version`; also Intel MPI and MPICH."""
    for pattern, name in _MPI:
        if match := re.search(pattern, text, re.MULTILINE):
            return f"{name} {match[1].strip()}"
    return ""


def parse_ucx(text: str) -> str:
    """`1.13.1` from `ucx_info -v`: `Library version` since 1.12, `UCT version` before."""
    match = re.search(r"(?:Library version:|UCT version=)\s*([\d.]+)", text)
    return match[1] if match else ""


def parse_ldconfig(text: str) -> dict[str, str]:
    """Versions of the shared libraries that the loader would find, by the names of the files behind its links."""
    found = {}
    for name, library in _SHARED.items():
        match = re.search(rf"^\s*{re.escape(library)}\S* .*=> (\S+)$", text, re.MULTILINE)
        version = re.search(r"\.so\.([\d.]+)$", Path(match[1]).resolve().name) if match else None
        if version:
            found[name] = version[1]
    return found


def _stated_by_image(variables: Mapping[str, str] | None) -> dict[str, str]:
    present = provenance.environment(variables, names=tuple(_IMAGE.values()))
    found = {name: present[variable] for name, variable in _IMAGE.items() if variable in present}
    return found | ({"mpi": f"Open MPI {found['mpi']}"} if "mpi" in found else {})


def _of_wheels() -> dict[str, str]:
    found = {}
    for library, distributions in _WHEELS.items():
        for name in distributions:
            try:
                found[library] = importlib.metadata.version(name)
                break
            except importlib.metadata.PackageNotFoundError:
                continue
    return found


def _of_torch() -> dict[str, str]:
    """CUDA or ROCm that the installed PyTorch was built for, from its `version.py`: importing it takes seconds."""
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.origin:
        return {}
    return parse_torch_version(_text(Path(spec.origin).with_name("version.py")))


def parse_torch_version(text: str) -> dict[str, str]:
    """`cuda` and `hip` of PyTorch's `version.py`, as far as they are not None."""
    found = re.findall(r"^(cuda|hip)(?:: Optional\[str\])? = '([^']+)'", text, re.MULTILINE)
    return {{"cuda": "cuda", "hip": "rocm"}[name]: version for name, version in found}


def _first_line(path: Path) -> str:
    return (_text(path).splitlines() or [""])[0].strip()


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
