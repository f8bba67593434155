"""An image folder made of this machine's own files: a shell, `env`, and the libraries that Python needs.

Python itself, its packages and the repository are mounted, as a site may do with its own software stack.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

PROGRAMS = ("sh", "env", "cat", "hostname", "uname")
FOLDERS = ("proc", "sys", "dev", "tmp", "etc", "var/tmp", "root", "home", "mnt")


def make_image(image: Path, *, mounts: list[str]) -> Path:
    """Make it; the targets of mounts must exist inside, since Charliecloud cannot make them."""
    for folder in (*FOLDERS, *(mount.split(":")[1].lstrip("/") for mount in mounts)):
        (image / folder).mkdir(parents=True, exist_ok=True)
    for name in ("etc/hosts", "etc/resolv.conf", "etc/passwd", "etc/group"):
        (image / name).touch()
    (image / "etc/nsswitch.conf").write_text("hosts: files\n")
    programs = [Path(path) for name in PROGRAMS if (path := shutil.which(name))]
    extensions = Path(sys.base_prefix, f"lib/python{sys.version_info.major}.{sys.version_info.minor}/lib-dynload").glob(
        "*.so"
    )
    for program in programs:
        _copy(program, image / "usr/bin" / program.name)
    extra = [Path(path) for path in Path("/usr/lib/x86_64-linux-gnu").glob("lib*.so*") if path.name in _ALWAYS]
    for library in _libraries([*programs, Path(sys.executable).resolve(), *extensions]) | set(extra):
        _copy(library, image / library.relative_to("/"))
    for link, target in (("bin", "usr/bin"), ("lib", "usr/lib"), ("lib64", "usr/lib64")):
        if (image / link).is_dir() and not (image / link).is_symlink():
            shutil.copytree(image / link, image / target, dirs_exist_ok=True, symlinks=True)
            shutil.rmtree(image / link)
        (image / target).mkdir(parents=True, exist_ok=True)
        (image / link).symlink_to(target)
    return image


_ALWAYS = (
    "libstdc++.so.6", "libgcc_s.so.1", "libgomp.so.1", "libnss_files.so.2", "libpthread.so.0", "libdl.so.2", "librt.so.1",
    "libutil.so.1", "libm.so.6", "libz.so.1",
)  # fmt: skip


def _libraries(files: list[Path]) -> set[Path]:
    """Libraries that programs load, by the dynamic loader's own account."""
    said = subprocess.run(["ldd", *map(str, files)], capture_output=True, text=True).stdout
    return {Path(path) for path in re.findall(r"(/\S+) \(0x", said) if not path.startswith(sys.base_prefix)}


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if not target.exists():
        shutil.copy2(source.resolve(), target)
