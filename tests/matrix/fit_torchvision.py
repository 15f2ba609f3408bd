"""``python tests/matrix/fit_torchvision.py``: lets torchvision be imported beside a build of torch that it was not made for.

PyPI's torchvision is built for CUDA. Beside the CPU build of torch its operators cannot be loaded, and the package fails
at its import, since it registers shapes of two of them unconditionally. No program here uses its operators.
"""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

_REGISTERED = re.compile(r'^(@torch\.library\.register_fake\("torchvision::)', re.MULTILINE)


def main() -> None:
    try:
        import torchvision  # noqa: F401
    except RuntimeError:
        folder = find_spec("torchvision")
        assert folder is not None and folder.origin is not None
        path = Path(folder.origin).with_name("_meta_registrations.py")
        path.write_text(_REGISTERED.sub(r"# without its operators: \1", path.read_text()))
        print(f"{path}: the shapes of missing operators are left out")


if __name__ == "__main__":
    main()
