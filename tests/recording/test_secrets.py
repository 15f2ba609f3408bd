"""What looks like a secret is masked; what helps is left."""

from __future__ import annotations

import pytest

from ddpnb.recording.secrets import MASK, Secrets

RANDOM = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYzLq0T9sVe2"
HEX = "0123456789abcdef0123456789abcdef01234567"


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("MASTER_PASSWORD=hunter2", "hunter2"),
        ("TORCH_HUB_TOKEN=abcdef", "abcdef"),
        ("NCCL_AUTH_KEY: 'open sesame'", "open sesame"),
        ('{"TORCH_SECRET": "very secret"}', "very secret"),
        ("TORCH_HOME=https://ann:pa55@models.example/x", "pa55"),
        ("http_proxy=http://ann:p%40ss@proxy.example:3128", "p%40ss"),
        ("using token ghp_0123456789abcdefABCDEF", "ghp_0123456789abcdefABCDEF"),
        ("login with hf_abcdefghijKLMNOP", "hf_abcdefghijKLMNOP"),
        ("key AKIAIOSFODNN7EXAMPLE", "AKIAIOSFODNN7EXAMPLE"),
        ("AWS_SECRET_ACCESS_KEY=short1", "short1"),
        ("wandb_api_key = shortkey", "shortkey"),
        ("Authorization: Bearer abc.def.ghi", "abc.def.ghi"),
        (f"NCCL_NET={HEX}", HEX),
        (f"TORCH_EXTRA={RANDOM}", RANDOM),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIE\nabc\n-----END RSA PRIVATE KEY-----", "MIIE\nabc"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl", "eyJzdWIiOiIxMjM0In0"),
    ],
)
def test_what_looks_like_a_secret_is_masked(text, secret):
    shown = Secrets().mask(text)
    assert secret not in shown and MASK in shown


@pytest.mark.parametrize(
    "text",
    [
        "MASTER_ADDR=node-17.cluster.example MASTER_PORT=29500",
        "NCCL_SOCKET_IFNAME=eth0 NCCL_DEBUG=INFO NCCL_IB_HCA=mlx5_0:1,mlx5_1:1",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING=1 TOKENIZERS_PARALLELISM=false",
        "TORCH_HOME=/home/ann/.cache/torch2/Checkpoints_2026_11/LargeModelNumber7/weights",
        "CUDA_VISIBLE_DEVICES=GPU-8b7f0d1c-3a52-4e0c-9d7e-0123456789ab",
        'Missing key(s) in state_dict: "module.layer1.0.conv1.weight"',
        "epoch 3: 1024 tokens, loss=0.25, tokens: 4096, lr=1e-3",
        'File "/opt/venv/lib/python3.11/site-packages/torch/nn/parallel/distributed.py", line 812, in __init__',
        "key: layer1, token: 17, keyboard=us, monkey=banana, author=Ann",
        "PWD=/home/ann/project",
        "NCCL WARN Bootstrap: no socket interface found",
    ],
)
def test_what_helps_is_left(text):
    assert Secrets().mask(text) == text


def test_values_of_secret_variables_are_masked_wherever_they_appear():
    secrets = Secrets({"WANDB_API_KEY": "plain-words", "https_proxy": "http://ann:pa55word@proxy", "MY_TOKEN": "ab"})
    assert secrets.mask("it printed plain-words, pa55word and ab") == f"it printed {MASK}, {MASK} and ab"


def test_in_what_becomes_json():
    secrets = Secrets()
    given = {"facts": {"TORCH_TOKEN": "x y z", "NCCL_DEBUG": "INFO", "count": 3}, "evidence": ["MASTER_SECRET=abc"], "api_keys": ["one", "two"], "none": None}  # fmt: skip
    assert secrets.masked(given) == {
        "facts": {"TORCH_TOKEN": MASK, "NCCL_DEBUG": "INFO", "count": 3},
        "evidence": [f"MASTER_SECRET={MASK}"],
        "api_keys": [MASK, MASK],
        "none": None,
    }


def test_long_texts_take_no_long_time():
    """Patterns that backtrack would take hours."""
    for text in (
        "a" * 10**6,
        "token" * 200_000,
        "http://" * 100_000,
        "=" * 10**6,
        "-----BEGIN PRIVATE KEY-----" * 3000,
    ):
        Secrets().mask(text)
