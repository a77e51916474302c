"""The user of the emulator's own keys is a role, as in Studio: get_execution_role() works."""

from collections.abc import Callable

from trainyard.emulator.iam import access_keys


def test_a_person_is_a_session_of_a_role_that_iam_knows(client: Callable):
    arn = client("sts").get_caller_identity()["Arn"]
    kind, name, _ = arn.rpartition(":")[2].split("/")
    assert kind == "assumed-role"
    iam = client("iam")
    assert iam.get_role(RoleName=name)["Role"]["Arn"] == access_keys.arn()
    assert [role["RoleName"] for role in iam.list_roles()["Roles"]] == [name]
