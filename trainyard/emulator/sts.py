"""STS's answer to who somebody is. All else of STS is moto's."""

from xml.sax.saxutils import escape

from werkzeug import Request, Response

_SPACE = "https://sts.amazonaws.com/doc/2011-06-15/"


def identity_wanted(request: Request) -> bool:
    """Whether the request, in the query protocol, is GetCallerIdentity."""
    return request.values.get("Action") == "GetCallerIdentity"


def identity(who: dict[str, str]) -> Response:
    """GetCallerIdentity's answer, with these members."""
    members = "".join(f"<{name}>{escape(text)}</{name}>" for name, text in who.items())
    result = f"<GetCallerIdentityResult>{members}</GetCallerIdentityResult>"
    body = f'<GetCallerIdentityResponse xmlns="{_SPACE}">{result}</GetCallerIdentityResponse>'
    return Response(body, content_type="text/xml")
