"""Access to the console, security headers of every answer, pages for refusals and defects."""

import pytest

from trainyard.common.errors import ServiceError
from trainyard.console.account_cache import Account
from trainyard.console.web_server import create_console_app

KEY = "/?key=key"


def test_the_key_opens_the_console_and_leaves_the_address(client):
    answer = client.get("/runs?key=key&status=Failed")
    assert (answer.status_code, answer.headers["Location"]) == (302, "/runs?status=Failed")
    cookie = answer.headers["Set-Cookie"]
    assert "HttpOnly" in cookie and "SameSite=Strict" in cookie
    assert "=key;" not in cookie
    assert client.get("/runs").status_code == 200


@pytest.mark.parametrize("address", ["/runs", "/?key=", "/?key=wrong", "/static/console.js"])
def test_nothing_is_shown_without_the_key(client, address: str):
    client.delete_cookie("trainyard-")
    answer = client.application.test_client().get(address)
    assert answer.status_code == 403


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "127.0.0.1.evil.example"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
    ],
)
def test_foreign_pages_and_hosts_are_refused_even_with_the_key(client, headers: dict[str, str]):
    assert client.get(KEY, headers=headers).status_code == 403
    assert client.get("/runs", headers=headers).status_code == 403


def test_what_changes_something_comes_from_one_of_our_pages(client):
    assert client.post("/events/x", json={}).status_code == 403
    assert (
        client.post("/events/x", json={}, headers={"Origin": "http://localhost"}).status_code == 404
    )


def test_every_answer_forbids_scripts_of_others(client):
    for address in ("/runs", "/nowhere", "/static/console.css"):
        policy = client.get(address).headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy


SECRET = "s3cr3t in a traceback"


@pytest.mark.parametrize(
    "error, status, shown",
    [
        (ServiceError("AWS says <no>"), 502, "AWS says &lt;no&gt;"),
        (KeyError(SECRET), 500, "defect"),
    ],
)
def test_an_error_has_a_page_that_says_what_to_do(error: Exception, status: int, shown: str, cloud):
    def broken() -> str:
        raise error

    (app := create_console_app(Account(), "key")).add_url_rule("/broken", view_func=broken)
    (asking := app.test_client()).get(KEY)
    answer = asking.get("/broken")
    assert answer.status_code == status
    assert shown in answer.text and SECRET not in answer.text
