"""Data loaders and processes that begin in interpreters of their own, each of which imports torch."""

import loaders

if __name__ == "__main__":
    loaders.main((loaders.one_worker, "spawn"), (loaders.shared_memory, "spawn"), (loaders.one_worker, "forkserver"))
