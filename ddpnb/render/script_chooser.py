"""A folder whose scripts can be chosen by mouse or keyboard; the choice goes into the field ``script`` of the form."""

from __future__ import annotations

import os
from collections.abc import Sequence

from ddpnb.render import markup

CLOSE = ""  # the folder of the action that closes the chooser


def chooser(
    path: str, folders: Sequence[str], scripts: Sequence[str], *, here: str, left_out: int = 0, error: str = ""
) -> str:
    """The folders above and below this one, and its scripts.

    Args:
        path: absolute, of the folder.
        folders: names of those in it.
        scripts: names of those in it.
        here: the working directory: scripts below it are entered with relative paths.
        left_out: entries that are not listed.
        error: why the folder cannot be read.
    """
    above = os.path.dirname(path)
    rows = [] if above == path else [_folder("..", above)]
    rows += [_folder(f"{name}/", os.path.join(path, name)) for name in folders]
    rows += [_script(name, _entered(os.path.join(path, name), here)) for name in scripts]
    if error:
        rows.append(f'<li class="error">This folder cannot be read: {markup.text(error, 200)}.</li>')
    elif not scripts:
        rows.append('<li class="faint">no Python files here</li>')
    if left_out:
        rows.append(f'<li class="faint">{left_out} more are not listed: enter the path above.</li>')
    close = markup.button("close", "folder", folder=CLOSE)
    return (
        '<div class="chooser" role="group" aria-label="choose a script">'
        f'<div class="row"><code>{markup.text(path, 400)}</code><span class="space"></span>{close}</div>'
        f"<ul>{''.join(rows)}</ul></div>"
    )


def _entered(path: str, here: str) -> str:
    inside = os.path.relpath(path, here)
    return path if inside.startswith(os.pardir) else inside


def _folder(name: str, path: str) -> str:
    return _row({"data-action": "folder", "data-folder": path}, name)


def _script(name: str, entered: str) -> str:
    return _row({"data-action": "folder", "data-folder": CLOSE, "data-fill": "script", "data-value": entered}, name)


def _row(values: dict[str, object], name: str) -> str:
    given = markup.attributes({"type": "button", "class": "plain", **values})
    return (
        f"<li{markup.attributes({'data-key': name})}><button{given}><code>{markup.text(name, 200)}</code></button></li>"
    )
