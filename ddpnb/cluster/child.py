"""Entry of the processes of a world: ``python -m ddpnb.cluster.child engine|controller ...``.

Each dies with its launcher. An engine imports torch and installs its hooks before it looks for the
controller, so that both come up at the same time.
"""

from __future__ import annotations

import os
import sys

from ddpnb.engine import death


def main() -> None:
    death.bind_to_parent()
    os.environ.pop("TORCHELASTIC_USE_AGENT_STORE", None)  # there is no agent: rank 0 hosts the store
    if sys.argv.pop(1) == "controller":
        # The controller forks its heart monitor, which must not outlive it either.
        os.register_at_fork(after_in_child=death.bind_to_forker)
        from ipyparallel.controller.app import main as serve
    else:
        from ddpnb.engine import rank

        rank.start()
        from ipyparallel.engine.app import main as serve
    sys.exit(serve())


if __name__ == "__main__":
    main()
