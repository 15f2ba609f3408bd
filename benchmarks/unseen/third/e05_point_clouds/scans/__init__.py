from .catalogue import list_scans
from .dataset import ScanShard
from .preview import describe

__all__ = ["list_scans", "ScanShard", "describe"]
