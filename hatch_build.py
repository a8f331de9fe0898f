"""What the package index is told of this project: the README, with links that open there.

hatchling runs it whenever it builds. The README's links are those of the source tree; on the index each
goes to its page of the site, whose address is `site` in pyproject.toml. Without an address a link is its
text, and a picture is left out: no link is better than one that opens nothing.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
FENCE = re.compile(r"(^```.*?^```[ ]*$)", re.DOTALL | re.MULTILINE)
TAGGED = re.compile(r"^```(\w+) (?:ci|verify)(?: \w+)?$", re.MULTILINE)


def address(target: str) -> str:
    """Return where on the site a file of the source tree is found: as mkdocs names pages."""
    path, hash_, anchor = target.partition("#")
    if "/" not in path:  # the pages of the root: SECURITY.md is security/
        path = re.sub(r"\.\w+$", "", path).lower() + ".md"
    path = path.removeprefix("docs/")
    folder = re.sub(r"(^|/)index\.md$", r"\1", path)
    return re.sub(r"\.md$", "/", folder) + hash_ + anchor


def long_description(text: str, site: str) -> str:
    """Return the README as the index shows it."""

    def link(match: re.Match[str]) -> str:
        mark, label, target = match.groups()
        if re.match(r"\w+:", target):
            return match[0]
        if not site:
            return "" if mark else str(label)
        return f"{mark}[{label}]({site.rstrip('/')}/{address(target)})"

    parts = FENCE.split(text)
    parts[::2] = [LINK.sub(link, part) for part in parts[::2]]
    return TAGGED.sub(r"```\1", "".join(parts))


class LongDescription(MetadataHookInterface):
    """Gives the package its long description."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add the README, and the site where it has an address."""
        site = str(self.config.get("site", ""))
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": long_description(text, site)}
        addresses = {"Documentation": site, "Repository": str(self.config.get("repository", ""))}
        urls = {name: url for name, url in addresses.items() if url}
        if urls:
            metadata["urls"] = urls
