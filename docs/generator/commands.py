"""A page for each command, from its parser."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator

from ddpnb import cli


def written() -> Iterator[tuple[str, str]]:
    """Path and Markdown of each page."""
    commands = _commands()
    rows = "".join(
        f"| [`ddpnb {name}`]({name}.md) | {_sentence(command.description)} |\n" for name, command in commands.items()
    )
    tree = "".join(f"ddpnb {name} <{name}>\n" for name in commands)
    yield (
        "commands/index.md",
        (
            "# Command line\n\nThese pages show what `ddpnb COMMAND --help` prints. How the commands are used together: "
            f"[](../terminal.md).\n\n| command | |\n|---|---|\n{rows}\n```{{toctree}}\n:hidden:\n\n{tree}```\n"
        ),
    )
    for name, command in commands.items():
        yield f"commands/{name}.md", _page(name, command)


def _commands() -> dict[str, argparse.ArgumentParser]:
    subparsers = next(action for action in cli.parser()._actions if isinstance(action, argparse._SubParsersAction))
    return dict(subparsers.choices)


def _page(name: str, command: argparse.ArgumentParser) -> str:
    usage = command.format_usage().removeprefix("usage: ").rstrip()
    usage = "\n".join(line.strip() if line.lstrip().startswith("ddpnb") else line for line in usage.splitlines())
    options = [action for action in command._actions if action.option_strings]
    arguments = [action for action in command._actions if not action.option_strings]
    parts = [f"# ddpnb {name}", _sentence(command.description), f"```text\n{usage}\n```"]
    for heading, actions in (("Arguments", arguments), ("Options", options)):
        if actions:
            parts.append(f"## {heading}\n\n" + "\n\n".join(_definition(command, action) for action in actions))
    if command.epilog:
        parts.append("## Good to know\n\n" + "\n\n".join(map(_sentence, _paragraphs(command.epilog))))
    return "\n\n".join(parts) + "\n"


def _definition(command: argparse.ArgumentParser, action: argparse.Action) -> str:
    """A term and its meaning, as a definition list."""
    formatter = command._get_formatter()
    term = formatter._format_action_invocation(action)
    text = formatter._expand_help(action) if action.help else ""
    return f"`{term}`\n: {_code(text)}"


def _paragraphs(epilog: str) -> list[str]:
    """What an epilog says, and as a list the exit status, where it ends with one."""
    text = _code(" ".join(epilog.split()))
    before, status, after = text.partition("xit status: ")
    if not status:
        return [text]
    before = before[:-1].strip().rstrip(".;")
    listed = "".join(f"\n- {item.strip().rstrip('.')}" for item in after.split("; "))
    return [*([f"{before}."] if before else []), f"Exit status:\n{listed}"]


def _code(text: str) -> str:
    """Markdown of a help text: options, variables and names as code."""
    return re.sub(
        r"(?<![\w`/-])(--?[a-z][\w-]*|\$[A-Z_]+|[A-Z_]+=\w+)(?![\w`])",
        r"`\1`",
        text.replace("*", r"\*").replace("<", r"\<"),
    )


def _sentence(text: str | None) -> str:
    text = (text or "").strip()
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "!", "?")) or "\n" in text else ".")
