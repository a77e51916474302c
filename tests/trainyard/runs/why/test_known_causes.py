import string

import pytest

from trainyard.runs.why.logged_exceptions import SIGNATURES


@pytest.mark.parametrize("signature", SIGNATURES, ids=lambda one: one.name)
def test_a_signature_says_what_it_means_what_to_do_and_where_it_is_from(signature):
    assert signature.level in ("service", "cause", "hint", "likely", "consequence")
    assert signature.cause.endswith(".") and signature.source and len(signature.fix) > 20
    for text in (signature.cause, signature.fix):
        named = {name for _, name, _, _ in string.Formatter().parse(text) if name}
        every = filter(None, (signature.pattern, signature.wording))
        assert named <= {group for one in every for group in one.groupindex}


def test_names_are_unlike():
    names = [one.name for one in SIGNATURES]
    assert len(names) == len({*names}) > 50
