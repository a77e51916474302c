"""The valid name that a wrong one was meant to be, for error messages."""

from difflib import get_close_matches


def nearest(name: str, valid: list[str]) -> str:
    """``nearest valid name: x`` when one is close, else all the valid names."""
    close = get_close_matches(name, valid, n=1, cutoff=0.5)
    return f"nearest valid name: {close[0]}" if close else f"valid names: {', '.join(valid)}"
