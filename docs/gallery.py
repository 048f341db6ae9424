"""A hook of mkdocs: each file in examples/ becomes a page of text, code and the pictures that it draws.

The examples are run where nothing else lies, so that a page shows what its code makes today.
"""

import ast
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

EXAMPLES = Path(__file__).parents[1] / "examples"


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    pages = [{_title(path): f"gallery/{path.stem}.md"} for path in _paths()]
    if not any("Gallery" in entry for entry in config.nav or []):
        (config.nav or []).insert(-1, {"Gallery": pages})
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for path in _paths():
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([sys.executable, path], cwd=folder, capture_output=True, text=True, check=True)
            pictures = sorted(Path(folder).glob("*.svg"))
            for picture in pictures:
                name = f"gallery/{path.stem}-{picture.name}"
                files.append(File.generated(config, name, content=picture.read_text()))
        files.append(File.generated(config, f"gallery/{path.stem}.md", content=_page(path, pictures, done.stdout)))
    return files


def _paths() -> list[Path]:
    return sorted(EXAMPLES.glob("plot_*.py"))


def _title(path: Path) -> str:
    return (ast.get_docstring(ast.parse(path.read_text())) or path.stem).splitlines()[0]


def _page(path: Path, pictures: list[Path], printed: str) -> str:
    """Text between the cells, code in them, then what the program printed and drew."""
    tree = ast.parse(path.read_text())
    heading, _, introduction = (ast.get_docstring(tree) or path.stem).partition("\n")
    parts = [f"# {heading}", re.sub(r"^=+\n", "", introduction.strip())]
    code = "\n".join(path.read_text().splitlines()[tree.body[0].end_lineno :])
    for cell in re.split(r"^# %%.*\n", code, flags=re.M)[1:]:
        words = re.match(r"(?:^#.*\n)*", cell, flags=re.M)
        text = words.group() if words else ""
        parts += [re.sub(r"^# ?", "", text, flags=re.M), f"```python\n{cell[len(text) :].strip()}\n```"]
    if printed:
        parts.append(f"It prints\n\n```text\n{printed.rstrip()}\n```")
    parts += [f"![{picture.stem}]({path.stem}-{picture.name})" for picture in pictures]
    return "\n\n".join(parts)
