"""Recognise secrets: by the name of a value, or by a password in a URL.

Secrets must not be in a definition or in the record of a recipe: everyone who may describe the
pipeline or its jobs can read them (API reference, CreateTrainingJob: no security-sensitive
information in Environment).
"""

import re
from collections.abc import Iterator
from typing import Any

Path = tuple[str | int, ...]
SECRET_NAME = re.compile(r"(?i)(password|passwd|secret|api_?key|access_key|private_key|credential)")
WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
ABOUT = frozenset(
    "arn dir file id location mode name path policy prefix provider type uri url".split()
)
"""Last words of names whose value says where a secret is stored, and is not the secret itself."""
BEHIND_TOKEN = frozenset("key read string value write".split())
"""Words that may follow ``token`` in the name of a secret. With any other word, such as in
TokenThroughput, the name does not mean a secret."""
OF_LANGUAGE_MODELS = frozenset(
    "additional audio blank bos boundary cls end eos first image last mask max min next num pad "
    "per sep special start stop unk video".split()
)
"""Words in names such as ``max_tokens`` or ``eos_token``, where a token is a piece of text."""
OF_SDK = "REMOTE_FUNCTION_SECRET_KEY"
"""Variable that the SDK itself sets in the environment of functions with its remote decorator; it
is not reported."""
_IN_URL = re.compile(r"(?i)\b[a-z][a-z0-9+.-]*://[^\s/:@?#]*:(?P<value>[^\s/@]+)@")
_IN_QUERY = re.compile(r"[?&](?P<name>[\w-]+)=(?P<value>[^&\s]+)")
_PLACEHOLDER = re.compile(r"\$\{.*|\$[A-Z_]+|%\(.*|\{.*\}|<.*>|\*+|\[.*\]")
_NO_TOKEN = re.compile(r"(?i)true|false|none|null|auto|[-+.\d]*")


def is_secret(name: str, value: str) -> bool:
    """Return whether ``value``, which is called ``name``, looks like a secret.

    ARNs, placeholders such as ``${X}``, and names that end like the location of a secret do not.
    """
    if not value or value.startswith("arn:") or _PLACEHOLDER.fullmatch(value) or name == OF_SDK:
        return False
    words = [word.lower() for word in WORDS.findall(name)]
    if words and words[-1] in ABOUT and "access" not in words:
        return False
    if SECRET_NAME.search(name) or ("access", "key") in zip(words, words[1:], strict=False):
        return True
    return _ends_in_token(words) and not _NO_TOKEN.fullmatch(value)


def _ends_in_token(words: list[str]) -> bool:
    """Return whether the words of a name end in ``token`` and do not mean a token of text."""
    while words and (words[-1] in BEHIND_TOKEN or words[-1].isdigit()):
        words = words[:-1]
    return words[-1:] == ["token"] and not OF_LANGUAGE_MODELS & set(words)


def has_url_secret(text: str) -> bool:
    """Return whether a URL in ``text`` contains a password or a token."""
    if any(not _PLACEHOLDER.fullmatch(match["value"]) for match in _IN_URL.finditer(text)):
        return True
    queries = _IN_QUERY.finditer(text) if "://" in text else ()
    return any(is_secret(match["name"], match["value"]) for match in queries)


def is_sensitive(name: str, value: Any) -> bool:
    """Return whether ``value`` must not be shown: it is a secret, or a URL with one."""
    return isinstance(value, str) and (is_secret(name, value) or has_url_secret(value))


def iter_secret_paths(value: Any, path: Path = (), name: str = "") -> Iterator[Path]:
    """Iterate over the paths of apparent secrets in ``value``.

    Args:
        value: parsed JSON.
        path: path of ``value`` itself, which each result begins with.
        name: name of ``value``; strings are judged by their name and their text.
    """
    if isinstance(value, str):
        if is_sensitive(name, value):
            yield path
    elif isinstance(value, dict):
        entry_name = next((value[key] for key in ("Name", "Key") if key in value), None)
        for key, item in value.items():
            pair = key in ("Value", "DefaultValue") and isinstance(entry_name, str)
            yield from iter_secret_paths(item, (*path, str(key)), str(entry_name if pair else key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from iter_secret_paths(item, (*path, index), _find_option_name(value, index))


def _find_option_name(items: list, index: int) -> str:
    """Return the name of the command-line option whose value is in ``items[index]``.

    Both ``--token x`` and ``--token=x`` are recognised. Return an empty string if there is none.
    """
    item = items[index]
    before = items[index - 1] if index else None
    if isinstance(item, str) and item.startswith("-"):
        return item.partition("=")[0] if "=" in item else ""
    return before if isinstance(before, str) and before.startswith("-") else ""
