"""Whether requirements.lock has a checksum for every version that constraints.txt names; `make audit` runs it."""

import re
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

ROOT = Path(__file__).parents[1]


def versions(text: str) -> dict[str, str]:
    """Package -> version, names written as pip compares them."""
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
            here = version(name).partition("+")[0]
        except PackageNotFoundError:
            continue
        if here != number:
            problems.append(f"{name}: {here} is installed, {number} is wanted")
    print(*problems or [f"{len(wanted)} packages: versions agree, each has its checksums."], sep="\n")
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
