import logging

import torch

from stages import stage

log = logging.getLogger(__name__)
LEVEL = {"INFO": 0, "WARN": 1, "ERROR": 2}


def parse(line):
    level, code, millis = line.split("|")
    return LEVEL[level], int(code), int(millis)


def lenient(line):
    try:
        return parse(line)
    except ValueError:
        digits = "".join(c for c in line.rsplit("|", 1)[1] if c.isdigit())
        return parse(line.rsplit("|", 1)[0] + "|" + (digits or "0"))


def ingest(lines):
    try:
        with stage("parse"):
            rows = [parse(line) for line in lines]
    except ValueError as err:
        log.warning("lenient parser used: %s", err)
        rows = [lenient(line) for line in lines]
    return torch.tensor(rows).view(-1, 8, 3)
