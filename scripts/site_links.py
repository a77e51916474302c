"""Hook of mkdocs: on the site, a link out of docs/ leads to the file in the repository.

Without ``TRAINYARD_REPOSITORY`` (a URL; a GitHub workflow sets it) the repository is not
known, and only the link's text remains. ``tests/test_documents.py`` checks that the files exist.
"""

import posixpath
import re
from typing import Any

LINK = re.compile(r"(!?)\[([^\]]*)\]\((\.\./[^)\s]+)\)")


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Any) -> str:
    """Return the page's text; its links out of docs/ lead to the repository's URL."""
    repository = (config.repo_url or "").rstrip("/")

    def replace_link(link: re.Match[str]) -> str:
        text, target = link[2], posixpath.normpath(posixpath.join("docs", link[3]))
        return f"[{text}]({repository}/blob/main/{target})" if repository else text

    return LINK.sub(replace_link, markdown)
