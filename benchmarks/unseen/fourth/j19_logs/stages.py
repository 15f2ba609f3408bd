import contextlib
import logging
import time

import torch.distributed as dist

log = logging.getLogger(__name__)


@contextlib.contextmanager
def stage(name):
    """A named part of the work that all ranks finish together."""
    start = time.perf_counter()
    yield
    took = time.perf_counter() - start
    dist.barrier()
    log.debug("%s: %.3f s, waited until %.3f s", name, took, time.perf_counter() - start)
