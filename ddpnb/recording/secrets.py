"""Mask what looks like a secret before a report leaves the machine.

A secret is known by the name that it goes by (``HF_TOKEN``), by its form (``hf_...``, the password in a URL, a
long random value), or because a variable of such a name has that value. Nothing can recognise all: a short
password that is printed without its name stays.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, cast

MASK = "[masked]"
_LEAST = 6  # characters of a value that is looked for wherever it appears: shorter ones are parts of words
_LONG = 32  # characters of a value that has no name
_MIXED = 0.35  # runs of one kind (upper, lower, digits) per character: base64 has about 0.6, names and paths 0.2
_WORDS = (
    r"tokens?|secrets?|passw(?:or)?d|passphrase|passwd|pwd|credentials?|auth|authorization|bearer|cookie|signature|sas"
)
_KEYS = r"(?:api|access|secret|private|auth|account|encryption|license|signing|shared|ssh|session)_?keys?(?:_?id)?"
_NAME = re.compile(rf"(?:^|[_.-])(?:{_WORDS}|{_KEYS}|keys?|key_?id|apikey)(?:$|[_.-])", re.IGNORECASE)
_HARMLESS = frozenset(
    {"pwd", "oldpwd", "key", "keys", "token", "tokens", "signature"}
)  # what programs print of themselves
_FLAG = re.compile(r"(?:|0|1|true|false|yes|no|on|off|none|null|\d{1,5})", re.IGNORECASE)  # of a switch: no secret
_USER = re.compile(r"\b([a-z][a-z0-9+.-]{0,30}://)[^\s/@\"'<>]{1,500}@", re.IGNORECASE)
_NAMED = re.compile(
    r"(?P<name>\b[A-Za-z_][\w.-]{0,100})(?P<between>[\"']?\s{0,3}[=:]\s{0,3})"
    r"(?P<value>\"[^\"\n]*\"|'[^'\n]*'|(?:Bearer|Basic)\s+\S+|[^\s,;\"']+)"
)
_FORMS = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{10,}|(?:AKIA|ASIA)[A-Z0-9]{12,}|gh[a-z]_[A-Za-z0-9]{16,}|github_pat_\w{16,}|glpat-[\w-]{16,}"
    r"|sk-[\w-]{16,}|xox[a-z]-[\w-]{10,}|AIza[\w-]{30,}|eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*|(?:Bearer|Basic)\s+[\w.+/=-]{8,})"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----(?:[\s\S]{0,20000}?-----END [A-Z ]*PRIVATE KEY-----|[\s\S]{0,20000})"
)
_RANDOM = re.compile(rf"[A-Za-z0-9+/_-]{{{_LONG},}}={{0,2}}")
_HEX = re.compile(rf"(?:0x)?[0-9a-fA-F]{{{_LONG},}}")
_DEVICE = re.compile(r"(?:GPU|MIG)-[0-9a-f-]{36}")
_RUNS = re.compile(r"[A-Z]+|[a-z]+|[0-9]+")


class Secrets:
    """Masks secrets in texts and in what is written as JSON.

    Args:
        variables: environment variables. The values of those whose names are those of secrets are masked
            wherever they appear.
    """

    def __init__(self, variables: Mapping[str, str] | None = None) -> None:
        values = {value for name, value in (variables or {}).items() if _is_secret(name, value)}
        passwords = {part for value in (variables or {}).values() for part in _passwords(value)}
        known = sorted((one for one in values | passwords if len(one) >= _LEAST), key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, known))) if known else None

    def mask(self, text: str) -> str:
        """The text, with a mask in the place of each secret."""
        if self._known is not None:
            text = self._known.sub(MASK, text)
        text = _FORMS.sub(MASK, _USER.sub(rf"\1{MASK}@", text))
        return _RANDOM.sub(_mask_random, _NAMED.sub(_mask_named, text))

    def masked(self, value: Any, name: str = "") -> Any:
        """The same for what JSON can hold: a value that goes by the name of a secret is masked whole."""
        if isinstance(value, Mapping):
            named = cast("Mapping[object, object]", value)
            return {self.mask(str(key)): self.masked(one, str(key)) for key, one in named.items()}
        if isinstance(value, (list, tuple)):
            return [self.masked(one, name) for one in cast("Iterable[object]", value)]
        if isinstance(value, str):
            return MASK if _is_secret(name, value) else self.mask(value)
        return value


def _is_secret(name: str, value: str) -> bool:
    plain = name.lower()
    return plain not in _HARMLESS and _NAME.search(name) is not None and _FLAG.fullmatch(value) is None


def _passwords(value: str) -> Iterable[str]:
    for found in _USER.finditer(value):
        yield found[0][len(found[1]) : -1].partition(":")[2]


def _mask_named(found: re.Match[str]) -> str:
    name, between, value = found["name"], found["between"], found["value"]
    if not _is_secret(name, value.strip("\"'")):
        return found[0]
    quote = value[0] if value[0] in "\"'" else ""
    return f"{name}{between}{quote}{MASK}{quote}"


def _mask_random(found: re.Match[str]) -> str:
    value = found[0]
    if _HEX.fullmatch(value):
        return MASK
    if _DEVICE.fullmatch(value) or value.startswith("/"):
        return value
    kinds = [any(map(kind, value)) for kind in (str.isupper, str.islower, str.isdigit)]
    return MASK if all(kinds) and len(_RUNS.findall(value)) >= _MIXED * len(value) else value
