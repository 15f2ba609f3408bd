"""Commits of a git repository, each checked out in a folder of its own: the user's files stay as they are."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Iterator

from ddpnb.errors import UsageError

_GIT_S = 120.0


class Repository:
    """The git repository around a folder.

    Args:
        folder: in it.

    Raises:
        UsageError: git is not installed, or the folder is in no repository.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self.root = self._git("rev-parse", "--show-toplevel").strip()
        self._within = os.path.relpath(os.path.realpath(folder), os.path.realpath(self.root))

    def commits(self, span: str) -> list[str]:
        """The commits of ``GOOD..BAD`` along first parents, with GOOD first, BAD last.

        Raises:
            UsageError: there are no such commits, or GOOD is not before BAD.
        """
        good, dots, bad = span.partition("..")
        if not dots or not good or not bad or bad.startswith(".") or span.startswith("-"):
            raise UsageError(f"--git {span!r} needs two commits.", "Write --git GOOD..BAD, such as --git v1.2..HEAD.")
        first, last = self._commit(good), self._commit(bad)
        between = self._git("rev-list", "--reverse", "--first-parent", f"{first}..{last}").split()
        if not between or self._git("merge-base", first, last).strip() != first:
            raise UsageError(f"{good} is not an ancestor of {bad}.", "The commit that works comes first.")
        return [first, *between]

    def _commit(self, name: str) -> str:
        try:
            return self._git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}").strip()
        except UsageError:
            raise UsageError(f"there is no commit {name!r}.", "See git log for those that there are.") from None

    def subject(self, commit: str) -> str:
        """A commit in one line."""
        return self._git("log", "-1", "--format=%h %s (%an, %as)", commit).strip()

    def uncommitted(self) -> list[str]:
        """Tracked files with changes that no commit has."""
        status = self._git("status", "--porcelain", "--untracked-files=no")
        return [line[3:] for line in status.splitlines()]

    @contextlib.contextmanager
    def checked_out(self, commit: str) -> Iterator[str]:
        """Inside, the commit lies in a folder of its own.

        Yields:
            The folder in it that corresponds to the one that the repository was made with.

        Raises:
            UsageError: git cannot check it out, or the commit has no such folder.
        """
        with tempfile.TemporaryDirectory(prefix="ddpnb-bisect-", ignore_cleanup_errors=True) as outer:
            place = os.path.join(outer, os.path.basename(self.root))
            try:
                self._git("worktree", "add", "--detach", "--force", place, commit)
                folder = os.path.normpath(os.path.join(place, self._within))
                if not os.path.isdir(folder):
                    raise UsageError(f"commit {commit[:10]} has no folder {self._within}.")
                yield folder
            finally:
                with contextlib.suppress(UsageError):
                    self._git("worktree", "remove", "--force", place)

    def _git(self, *arguments: str) -> str:
        try:
            done = subprocess.run(
                ["git", *arguments], cwd=self._folder, capture_output=True, text=True, timeout=_GIT_S, check=False
            )
        except FileNotFoundError:
            raise UsageError("git is not installed.", "Install it, or bisect something else than commits.") from None
        except subprocess.TimeoutExpired:
            raise UsageError(f"git {arguments[0]} took more than {_GIT_S:.0f} s.") from None
        if done.returncode:
            said = done.stderr.strip().splitlines()
            raise UsageError(f"git {arguments[0]}: {said[-1] if said else f'status {done.returncode}'}.")
        return done.stdout
