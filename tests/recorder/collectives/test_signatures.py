"""Signatures tell calls apart that look the same but for the device of their tensors."""

from __future__ import annotations

import pytest
import torch

from ddpnb.recorder.collectives.signatures import OPS, Signatures, exchanged


def described(*tensors):
    """The signature of an all_gather of each of these tensors, as the box gets them."""
    values = []
    read = Signatures(lambda value: len(values.append(value) or values)).reader(OPS["allgather_"])
    for tensor in tensors:
        read([tensor], None, None, None)
    return values


def test_the_device_is_that_of_the_tensor_also_after_another_device():
    values = described(torch.ones(3), torch.ones(3, device="meta"), torch.ones(3))
    assert [value["device"] for value in values] == ["cpu", "meta"]


def test_a_tensor_without_values_is_no_mismatch_of_its_own():
    """torch raises on the rank whose tensor is on the meta device: the fence must not speak first."""
    on_cpu, on_meta = described(torch.ones(3), torch.ones(3, device="meta"))
    assert on_cpu["agreed"] == on_meta["agreed"]


def test_what_an_all_to_all_receives_is_part_of_its_signature():
    values = []
    signatures = Signatures(lambda value: len(values.append(value) or values))
    single, several = OPS["alltoall_base_"], OPS["alltoall_"]
    read = signatures.reader(single)
    for rows in (4, 6, 4):
        args = (torch.empty(rows, 2), torch.ones(4, 2), None, [1, rows - 1], [2, 2])
        *_, exchange = read([args[1]], None, None, exchanged(single, args))
        assert (exchange.sends(2), exchange.expects(2)) == ((4, 4), (2, 2 * (rows - 1)))
    assert [value["out_shapes"] for value in values] == [[[4, 2]], [[6, 2]]]
    args = ([torch.empty(1), torch.empty(2)], [torch.ones(3), torch.ones(4)])
    *_, exchange = signatures.reader(several)(args[1], None, None, exchanged(several, args))
    assert (exchange.sends(2), exchange.expects(2)) == ((3, 4), (1, 2))


@pytest.mark.filterwarnings("ignore:.*(CSR|nested tensors|Sparse)")
def test_tensors_without_strides_or_shape_have_a_signature_too():
    """Gloo and NCCL refuse them: so may they, after us."""
    parts = [torch.ones(2), torch.ones(3)]
    odd = [torch.eye(3).to_sparse_csr(), torch.eye(3).to_sparse(), torch.ones(2, 2).to_mkldnn()]
    odd += [torch.nested.nested_tensor(parts, layout=layout) for layout in (torch.strided, torch.jagged)]
    values = described(*odd, torch.ones(3, 3))
    assert [value.get("layout", "") for value in values] == ["sparse_csr", "sparse", "_mkldnn", "nested", "nested", ""]
    assert [value["shapes"] for value in values] == [[[3, 3]], [[3, 3]], [[2, 2]], [[]], [[]], [[3, 3]]]
    assert len({value["agreed"] for value in values}) == 5
