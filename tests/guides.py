"""The fenced blocks of a page of docs/: what the tests of the guides execute."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
_BLOCK = re.compile(r"^```(\w*)(?: (\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def files(page: str) -> dict[str, str]:
    """Name -> content of the blocks that name a file, as ```` ```python path/to/file.py ```` does."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    return {name: content for _, name, content in _BLOCK.findall(text) if name}


def commands(page: str) -> list[str]:
    """The blocks marked `bash`: whole commands, to be run as they are."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    return [content for language, _, content in _BLOCK.findall(text) if language == "bash"]
