"""Pages for refusals and defects of the console."""

import pytest

from trainyard.common.errors import ServiceError
from trainyard.console.account_cache import Account
from trainyard.console.web_server import create

SECRET = "s3cr3t in a traceback"


@pytest.mark.parametrize(
    "error, status, shown",
    [
        (ServiceError("AWS says <no>"), 502, "AWS says &lt;no&gt;"),
        (KeyError(SECRET), 500, "defect"),
    ],
)
def test_an_error_has_a_page_that_says_what_to_do(error: Exception, status: int, shown: str, cloud):
    app = create(Account(), "key")

    @app.get("/broken")
    def broken() -> str:
        raise error

    asking = app.test_client()
    asking.get("/?key=key")
    answer = asking.get("/broken")
    assert answer.status_code == status
    assert shown in answer.text and SECRET not in answer.text
