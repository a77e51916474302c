"""Pages of actions: each describes the effects and asks once before it acts.

The page has a form with a token that contains the shown state. The action is executed only if the
state has not changed. Otherwise the page shows the changes, and asks again.
"""

import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from flask import Blueprint, redirect, render_template, request
from werkzeug.exceptions import BadRequest, Forbidden, NotFound
from werkzeug.wrappers import Response

from trainyard.common.errors import TrainyardError
from trainyard.console import actions
from trainyard.console.account_cache import get_account
from trainyard.console.actions.action import (
    Proposal,
    build_policy_for_denial,
    find_state_changes,
    list_actions,
    read_token,
    sign_token,
)
from trainyard.registration import import_modules

import_modules(actions.__name__, actions.__path__)

page = Blueprint("actions", __name__)

FORM_LIMIT = 1_000  # number of submitted forms to remember, so that they are not executed again


class _SubmittedForms:
    """The next page of each submitted form. A second click on a form waits for the first one."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._pages: OrderedDict[str, tuple[threading.Lock, list[str]]] = OrderedDict()

    def get_page(self, once: str) -> tuple[threading.Lock, list[str]]:
        """Return a form's (lock, list with its next page). The list is empty until execution."""
        with self.lock:
            entry = self._pages.setdefault(once, (threading.Lock(), []))
            while len(self._pages) > FORM_LIMIT:
                self._pages.popitem(last=False)
            return entry


submitted_forms = _SubmittedForms()


@page.get("/do")
def show_pipeline_choice() -> str:
    """Show all pipelines, to start one."""
    _refuse_read_only()
    return render_template("choose.html.j2", pipelines=get_account().list_pipelines())


@page.get("/do/<action>")
def show_action(action: str) -> str:
    """Show an action's effects, with a button that executes it."""
    return _render_proposal(action, _make_proposal(action, {}))


@page.post("/do/<action>")
def execute_action(action: str) -> Response | str | tuple[str, int]:
    """Execute the action if the state is still as the form has shown it."""
    _refuse_read_only()
    content = read_token(request.form.get("token", ""), action, request.args.to_dict())
    lock, next_page = submitted_forms.get_page(content["once"])
    # A second click on the same form waits here, and then finds the page of the first one.
    with lock:
        if not next_page:
            # The state is compared with AWS's current one, not with a cached response.
            get_account().clear_cache()
            proposal = _make_proposal(action, request.form.to_dict())
            if refusal := _find_refusal(proposal, content):
                status, more = refusal
                return _render_proposal(action, proposal, **more), status
            try:
                next_page.append(proposal.execute(get_account(), content["once"]))
            except TrainyardError as error:
                denial = build_policy_for_denial(str(error), proposal.calls)
                return _render_proposal(action, proposal, refused=str(error), denied=denial), 502
    return redirect(next_page[0], 303)


def _find_refusal(
    proposal: Proposal, content: Mapping[str, Any]
) -> tuple[int, dict[str, Any]] | None:
    """Return (status, values for the page) if the action must not be executed, else None."""
    if request.form.get("only") == "show":
        return 200, {}
    now = {**proposal.state, "who does it": get_account().caller}
    if changes := find_state_changes({**content["state"], "who does it": content["caller"]}, now):
        return 409, {"moved": changes}
    if proposal.impossible:
        return 409, {}
    if proposal.wrong:
        return 422, {}
    if proposal.relevant_values != content["typed"]:
        return 200, {"unseen": True}
    return None


def _make_proposal(action: str, form: Mapping[str, str]) -> Proposal:
    """Return the proposal of an action. Raises NotFound, BadRequest or Forbidden."""
    _refuse_read_only()
    if (propose := list_actions().get(action)) is None:
        raise NotFound(f"There is no action {action}.")
    try:
        return propose(get_account(), request.args.to_dict(), form)
    except KeyError as missing_part:
        # Any other KeyError is a bug of the action itself.
        if missing_part.args[0] in request.args:
            raise
        raise BadRequest(f"The address of {action} lacks {missing_part}.") from None


def _render_proposal(action: str, proposal: Proposal, **more: Any) -> str:
    """Return the page of a proposal, with a new token; ``more`` replaces values of the page."""
    caller = get_account().caller
    context = {"moved": (), "refused": "", "denied": None, "unseen": False, **more}
    is_post = request.method == "POST"
    shows = {"state": proposal.state, "typed": proposal.relevant_values, "caller": caller}
    token = sign_token(action, request.args.to_dict(), **shows)
    return render_template(
        "actions.html.j2", proposal=proposal, token=token, caller=caller, tried=is_post, **context
    )


def _refuse_read_only() -> None:
    """Raise Forbidden if the console is read-only."""
    if not get_account().may_write:
        raise Forbidden(
            "This console is read only. Start it with trainyard console --write to allow changes."
        )
