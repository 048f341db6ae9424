"""Pages of the docs and source files as the tests read them: blocks of code, command lines, running text, trees."""

import ast
import re
from functools import cache
from pathlib import Path

from conftest import ROOT

PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")])


@cache
def tree(path: Path) -> ast.Module:
    """A file as Python reads it, once for all tests."""
    return ast.parse(path.read_text())


def blocks(page: Path, language: str) -> list[str]:
    """The blocks of a page in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), flags=re.S | re.M)


def running(page: Path) -> str:
    """The text of a page without its blocks."""
    return re.sub(r"^```.*?^```", "", page.read_text(), flags=re.S | re.M)


def shells(page: Path) -> list[list[str]]:
    """The command lines of a page, block by block, indented ones too; a line's comment does not count."""
    found = [block for language in ("console", "sh", "bash") for block in blocks(page, language)]
    found += re.findall(r"(?:^    (?:mlci|python|pip|make) .*\n)+", running(page), re.M)
    lines = [block.replace("\\\n", " ").splitlines() for block in found]
    return [[re.sub(r"\s+#.*", "", line).strip() for line in block] for block in lines]
