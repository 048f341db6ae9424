"""Check that requirements.lock has the versions of constraints.txt, each with checksums; `make audit` runs this."""

import re
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

ROOT = Path(__file__).parents[1]


def versions(text: str) -> dict[str, str]:
    """Return package -> version, with names normalised as pip does."""
    found = re.findall(r"^([\w.\-]+)==([^\s;\\]+)", text, flags=re.MULTILINE)
    return {re.sub(r"[-_.]+", "-", name).lower(): number for name, number in found}


def main() -> None:
    lock = (ROOT / "requirements.lock").read_text()
    wanted, locked = versions((ROOT / "constraints.txt").read_text()), versions(lock)
    problems = [
        f"{name} {number}: requirements.lock has {locked.get(name, 'none')}"
        for name, number in wanted.items()
        if locked.get(name) != number
    ]
    problems += [
        f"{block.split('==')[0]}: no checksum"
        for block in re.split(r"\n(?=\w)", lock)
        if "==" in block and "--hash=sha256:" not in block
    ]
    for name, number in wanted.items():
        try:
            installed = version(name).partition("+")[0]
        except PackageNotFoundError:
            continue
        if installed != number:
            problems.append(f"{name}: {installed} is installed, constraints.txt has {number}")
    print(*problems or [f"{len(wanted)} packages: versions agree, each has its checksums."], sep="\n")
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
