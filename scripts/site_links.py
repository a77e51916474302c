"""Hook of mkdocs: a link that leaves docs/ leads to the repository's file, on the site.

Without ``TRAINYARD_REPOSITORY`` (a URL; a GitHub workflow sets it) there is no repository to lead
to, so the link's text stands alone. ``tests/test_documents.py`` checks that the files are there.
"""

import posixpath
import re
from typing import Any

LINK = re.compile(r"(!?)\[([^\]]*)\]\((\.\./[^)\s]+)\)")


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Any) -> str:
    """Return the page's text with its links out of docs/ replaced."""
    repository = (config.repo_url or "").rstrip("/")

    def replace_link(link: re.Match[str]) -> str:
        text, target = link[2], posixpath.normpath(posixpath.join("docs", link[3]))
        return f"[{text}]({repository}/blob/main/{target})" if repository else text

    return LINK.sub(replace_link, markdown)
