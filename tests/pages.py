"""Read the docs' pages and Python files: code blocks, command lines, prose, syntax trees."""

import ast
import re
from functools import cache
from pathlib import Path

from conftest import ROOT

PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")])


@cache
def syntax_tree(path: Path) -> ast.Module:
    """Parse a Python file, once for all tests."""
    return ast.parse(path.read_text())


def blocks(page: Path, language: str) -> list[str]:
    """Return the code blocks of a page in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), flags=re.S | re.M)


def prose(page: Path) -> str:
    """Return the text of a page without its code blocks."""
    return re.sub(r"^```.*?^```", "", page.read_text(), flags=re.S | re.M)


def command_blocks(page: Path) -> list[list[str]]:
    """Return the command lines of a page, block by block (indented blocks too), without comments."""
    found = [block for language in ("console", "sh", "bash") for block in blocks(page, language)]
    found += re.findall(r"(?:^    (?:mlci|python|pip|make) .*\n)+", prose(page), re.M)
    lines = [block.replace("\\\n", " ").splitlines() for block in found]
    return [[re.sub(r"\s+#.*", "", line).strip() for line in block] for block in lines]
