"""The status of a command. Commands with ranks: tests/cli/test_command.py."""

from ddpnb.world import command_run


def test_the_status_is_that_of_a_shell():
    assert [command_run._of_shell(status) for status in (0, 3, -9, -15)] == [0, 3, 137, 143]
