"""Is this machine ready for the course? Plain findings, each with what to do about it.

Each check takes what it judges as arguments and knows nothing of the machine, so that a
test can show it every machine; `survey` asks this one.
"""

from __future__ import annotations

import html
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from tinyrl.course.words import Words

PYTHON = (3, 11)
MEMORY_GIB = 1.5  # a notebook of the course stays below 1 GiB; the rest is JupyterLab's


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at. `advice` is None where all is well."""

    what: Words
    value: str
    advice: Words | None = None
    blocks: bool = False  # the course can't run before this is put right


class Survey(tuple[Finding, ...]):
    """Findings that show themselves as a table, in a notebook and in a terminal."""

    @property
    def ready(self) -> bool:
        return not any(finding.blocks for finding in self)

    def __str__(self) -> str:
        lines = []
        for finding in self:
            lines.append(f"{_mark(finding)} {finding.what}: {finding.value}")
            if finding.advice:
                lines.append(f"    {finding.advice}")
        return "\n".join([*lines, str(_verdict(self))])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        rows = "".join(map(_row, self))
        return f"<table>{rows}</table><p><b>{_safe(_verdict(self))}</b></p>"


def survey() -> Survey:
    """Look at this machine. Once torch is imported it costs well under a second."""
    import torch

    import tinyrl

    cores, package = usable_cores(), Path(tinyrl.__file__).resolve().parent
    return Survey(
        (
            check_python(sys.version_info[:3]),
            check_kernel(sys.executable, sys.prefix != sys.base_prefix, os.environ),
            check_library(package, Path.cwd()),
            check_packages(required(), installed_version),
            check_threads(cores, torch.get_num_threads()),
            check_memory(free_memory()),
            check_accelerator(torch.cuda.is_available()),
        )
    )


def check_python(version: Sequence[int]) -> Finding:
    """`version` as in sys.version_info, at least two numbers."""
    text = ".".join(map(str, version))
    need = ".".join(map(str, PYTHON))
    if tuple(version[:2]) >= PYTHON:
        return Finding(Words(en="Python", zh="Python"), text)
    advice = Words(
        en=f"The course needs Python {need} or newer. Install it, delete the folder .venv "
        "and run: make lab",
        zh=f"本课程需要 Python {need} 或更新版本。请安装后删除 .venv 文件夹，"
        "再运行：make lab",
    )
    return Finding(Words(en="Python", zh="Python"), text, advice, blocks=True)


def check_kernel(executable: str, isolated: bool, env: Mapping[str, str]) -> Finding:
    """`isolated`: the interpreter belongs to a virtual environment."""
    what = Words(en="Kernel", zh="内核")
    if isolated or env.get("CONDA_PREFIX"):
        return Finding(what, executable)
    advice = Words(
        en="This is the system's Python, so packages of other projects may interfere. "
        "Close JupyterLab and start it with: make lab",
        zh="当前内核是系统自带的 Python，可能与其他项目的包冲突。"
        "请关闭 JupyterLab，用 make lab 重新启动",
    )
    return Finding(what, executable, advice)


def check_library(package: Path, here: Path) -> Finding:
    """Does the imported tinyrl belong to the clone whose notebooks are open?"""
    what = Words(en="tinyrl", zh="tinyrl")
    clone = next((p for p in (here, *here.parents) if (p / "syllabus.yml").is_file()), None)
    if clone is None or package.is_relative_to(clone.resolve()):
        return Finding(what, str(package))
    advice = Words(
        en=f"The notebook lies in {clone}, the library elsewhere: what you change "
        "in the clone has no effect. Start JupyterLab there with: make lab",
        zh=f"笔记本在 {clone}，但导入的库来自别处；你对克隆目录的改动不会生效。"
        "请在该目录下用 make lab 启动 JupyterLab",
    )
    return Finding(what, str(package), advice)


def check_packages(
    needed: Sequence[str], version_of: Callable[[str], str | None]
) -> Finding:
    """`needed` as in pyproject.toml ("torch>=2.6"); `version_of` a name, None if absent."""
    from packaging.requirements import Requirement

    wrong = []
    for requirement in map(Requirement, needed):
        version = version_of(requirement.name)
        if version is None:
            wrong.append(f"{requirement.name} is missing")
        elif not requirement.specifier.contains(version, prereleases=True):
            wrong.append(f"{requirement.name} {version} (need {requirement.specifier})")
    what = Words(en="Packages", zh="软件包")
    if not wrong:
        return Finding(what, f"{len(needed)} of {len(needed)}")
    advice = Words(
        en="Install what the course was tested with: close JupyterLab and run make lab",
        zh="请安装课程测试过的版本：关闭 JupyterLab，运行 make lab",
    )
    return Finding(what, "; ".join(wrong), advice, blocks=True)


def check_threads(cores: float, threads: int) -> Finding:
    """`cores` that this process may use, a fraction in a container; torch's `threads`."""
    what = Words(en="Threads", zh="线程")
    value = f"{threads} torch, {cores:g} cores"
    if threads <= max(1, round(cores)):
        return Finding(what, value)
    best = max(1, int(cores))
    advice = Words(
        en="More threads than cores wait for one another and can be many times slower. Set "
        f"OMP_NUM_THREADS={best} and restart, or run torch.set_num_threads({best})",
        zh=f"线程多于核心会互相等待，可能慢很多倍。请设置 OMP_NUM_THREADS={best} 并重启，"
        f"或运行 torch.set_num_threads({best})",
    )
    return Finding(what, value, advice)


def check_memory(free: float) -> Finding:
    """`free` bytes that this process could still get."""
    gib = free / 2**30
    what = Words(en="Free memory", zh="可用内存")
    if gib >= MEMORY_GIB:
        return Finding(what, f"{gib:.1f} GiB")
    advice = Words(
        en=f"Below {MEMORY_GIB:g} GiB the kernel may be killed, which looks like a restart "
        "without a message. Shut down other kernels (Running tab on the left)",
        zh=f"少于 {MEMORY_GIB:g} GiB 时内核可能被系统终止，看起来像无故重启。"
        "请在左侧“运行”标签页关闭其他内核",
    )
    return Finding(what, f"{gib:.1f} GiB", advice)


def check_accelerator(cuda: bool) -> Finding:
    """No GPU is needed; numbers of the prose are those of a CPU."""
    what = Words(en="Device", zh="设备")
    return Finding(
        what, "CPU" + (", CUDA seen: not needed here" if cuda else ", all it needs")
    )


def required() -> list[str]:
    """What the library and its lab extra ask for on this Python and platform."""
    from packaging.requirements import Requirement

    needed = []
    for text in metadata.requires("tinyrl") or []:
        marker = Requirement(text).marker
        if marker is None or marker.evaluate({"extra": "lab"}):
            needed.append(text)
    return needed


def installed_version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def usable_cores(cgroup: Path = Path("/sys/fs/cgroup/cpu.max")) -> float:
    """Cores that this process may use: a container's quota counts, not the machine."""
    affinity = getattr(os, "sched_getaffinity", None)  # Linux only
    cores = float(len(affinity(0)) if affinity else os.cpu_count() or 1)
    quota, period = [*_words_of(cgroup), "max", "max"][:2]
    return cores if quota == "max" else min(cores, int(quota) / int(period))


def free_memory(cgroup: Path = Path("/sys/fs/cgroup")) -> float:
    """Bytes that this process could still get, within a container's limit if it has one."""
    import psutil

    free = float(psutil.virtual_memory().available)
    limit, used = _words_of(cgroup / "memory.max"), _words_of(cgroup / "memory.current")
    if not limit or not used or limit[0] == "max":
        return free
    return min(free, float(limit[0]) - float(used[0]))


def _words_of(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []


def _mark(finding: Finding) -> str:
    return "✓" if finding.advice is None else ("✗" if finding.blocks else "!")


def _verdict(findings: Survey) -> Words:
    if not findings.ready:
        return Words(
            en="Not ready: do what stands beside ✗ first.", zh="尚未就绪：请先处理 ✗ 项。"
        )
    if any(finding.advice for finding in findings):
        return Words(en="Ready; ! can be improved.", zh="可以开始；带 ! 的项还可改进。")
    return Words(en="Ready.", zh="一切就绪。")


def _row(finding: Finding) -> str:
    texts = (_mark(finding), finding.what, finding.value, finding.advice or "")
    left = 'style="text-align:left;max-width:32em"'
    return f"<tr>{''.join(f'<td {left}>{_safe(text)}</td>' for text in texts)}</tr>"


def _safe(text: object) -> str:
    return html.escape(str(text))
