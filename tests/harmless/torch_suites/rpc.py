"""PyTorch's own tests of RPC and of distributed autograd, as its ``test_tensorpipe_agent.py`` and ``test_faulty_agent.py`` run them."""

import reported
from torch.testing._internal.distributed.rpc.faulty_rpc_agent_test_fixture import FaultyRpcAgentTestFixture
from torch.testing._internal.distributed.rpc.tensorpipe_rpc_agent_test_fixture import TensorPipeRpcAgentTestFixture
from torch.testing._internal.distributed.rpc_utils import (
    FAULTY_AGENT_TESTS,
    GENERIC_TESTS,
    TENSORPIPE_TESTS,
    generate_tests,
)

classes = {
    **generate_tests("TensorPipe", TensorPipeRpcAgentTestFixture, [*GENERIC_TESTS, *TENSORPIPE_TESTS], __name__),
    **generate_tests("Faulty", FaultyRpcAgentTestFixture, FAULTY_AGENT_TESTS, __name__),
}
globals().update(classes)

if __name__ == "__main__":
    reported.main(*classes.values())
