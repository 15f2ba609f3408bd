"""The notebooks as pages. They are committed without outputs, so a page has text and code."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path


def written(root: Path) -> Iterator[tuple[str, str, str]]:
    """Path in the repository, path of the page and Markdown of each notebook."""
    paths = sorted((root / "notebooks").glob("*.ipynb"))
    for path in paths:
        yield f"notebooks/{path.name}", f"notebooks/{path.stem}.md", _page(path)
    titles = "".join(f"- [](notebooks/{path.name})\n" for path in paths)
    tree = "".join(f"{path.stem}\n" for path in paths)
    yield (
        "README.md",
        "notebooks/index.md",
        (
            "# Notebooks\n\n`make lab` opens the first of these in JupyterLab; the others are in the same folder. All of them run on "
            f"a laptop without a GPU.\n\n{titles}- [Three reports of real hangs](notebooks/reports/README.md)\n\n"
            f"```{{toctree}}\n:hidden:\n\n{tree}reports\n```\n"
        ),
    )


def _page(path: Path) -> str:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    first, *rest = (_cell(cell) for cell in cells)
    open_it = f"The notebook: {{download}}`{path.name} <{path.name}>`. `make lab` opens JupyterLab with it."
    return "\n\n".join([first, open_it, *filter(None, rest)]) + "\n"


def _cell(cell: dict[str, object]) -> str:
    source = cell["source"]
    text = ("".join(source) if isinstance(source, list) else str(source)).strip()
    if cell["cell_type"] == "markdown" or not text:
        return text
    return f"```ipython\n{text}\n```"
