"""Nothing leaves that should stay: secrets stop a bundle, identities become pseudonyms, one for each, everywhere."""

from __future__ import annotations

from pathlib import Path

import pytest
from bundle_study import make_study
from mlscaling.bundles.identities import Identity, identities_in
from mlscaling.bundles.pseudonyms import pseudonyms_for
from mlscaling.bundles.secrets import SecretError, secrets_in
from mlscaling.bundles.texts import decoded, encoded, encoding_of
from mlscaling.bundles.write import write_bundle

# Written in parts, so that no scanner takes this file for a leak.
SECRETS = {
    "an AWS access key": "key AKIA" + "Q7" * 8,
    "an AWS secret key": "aws_secret_access_key = " + "aB3/" * 10,
    "a GitHub token": "ghp_" + "a1" * 18,
    "a GitLab token": "glpat-" + "a1" * 10,
    "a Hugging Face token": "HF_TOKEN=hf_" + "aB" * 17,
    "an NGC or NVIDIA API key": "nvapi-" + "a1" * 16,
    "a Weights & Biases key": "WANDB_API_KEY=" + "0af1" * 10,
    "an API key (sk-…)": "sk-proj-" + "a1" * 16,
    "a Slack token": "xoxb-" + "1234567890-a",
    "a Google API key": "AIza" + "a1b2c" * 7,
    "a package index's token": "pypi-AgEI" + "a1" * 16,
    "a private key": "-----BEGIN OPENSSH PRIVATE " + "KEY-----",
    "a password in a URL": "https://bob:" + "hunter2@example.org/x.git",
    "a bearer token": "Authorization: Bearer " + "a1b2" * 6,
    "credentials of HTTP": "Authorization: Basic " + "Ym9iOmh1bnRlcjI=",
    "a JSON web token": "eyJ" + "a1" * 8 + ".eyJ" + "b2" * 8 + "." + "c3" * 8,
    "a password or key": "password: " + "hunter22",
}


@pytest.mark.parametrize("kind", SECRETS)
def test_secrets(kind: str) -> None:
    text = f"first line\n0: NCCL INFO {SECRETS[kind]} and more\nlast line\n"
    (found,) = secrets_in([("ranks.log", text.encode())])
    assert (found.file, found.line, found.kind) == ("ranks.log", 2, kind)
    assert SECRETS[kind] not in str(found)


@pytest.mark.parametrize(
    "text",
    [
        "password = os.environ['X1y2z3']",
        "secret_key = load_key(path1)",
        "tokens per second: 12345678",
        "api_key=None",
        "password: ********",
        "https://example.org:8080/a@b",
        "the task-sk-1 of 12",
        '"sha256": "' + "0af1" * 16 + '"',
        "https://user:${TOKEN}@example.org/",
    ],
)
def test_no_secrets(text: str) -> None:
    assert list(secrets_in([("x.txt", text.encode())])) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0: mlscaling rank 0 of 2 is on tesla07 10.1.2.7", "0: mlscaling rank 0 of 2 is on host1 198.18.0.1"),
        ("tesla08 fails; srun: error: tesla07: task 3: Exited", "host2 fails; srun: error: host1: task 3: Exited"),
        ("tesla07.hpc.corp.com:12:34 [0] NCCL INFO x", "host1.example.org:12:34 [0] NCCL INFO x"),
        ("see /home/alice/runs and /scratch/alice_2", "see /home/user1/runs and /scratch/user1_2"),
        ("/home/alice and /Users/bob.b", "/home/user1 and /Users/user2"),
        ("alice@tesla07:/data HOSTNAME=Tesla07", "user1@host1:/data HOSTNAME=host1"),
        ("UserId=alice(1000) Account=proj4711 alice", "UserId=user1(1000) Account=account1 user1"),
        ("mail jane.doe@corp.com, git@github.com", "mail user1@example.org, git@github.com"),
        ("link 00:1B:21:ab:cd:ef at 12:34:56", "link 02:00:00:00:00:01 at 12:34:56"),
        ("fe80::21b:21ff:feab:1 std::vector ::1 c10d::Work", "2001:db8::1 std::vector ::1 c10d::Work"),
        ("connect 192.168.3.4:29500 127.0.0.1", "connect 198.18.0.1:29500 127.0.0.1"),
        ("cublas 11.6.1.51, driver version 10.2.0.89", "cublas 11.6.1.51, driver version 10.2.0.89"),
        ('"nvidia-cufft": "12.0.0.61", "address": "10.0.0.9"', '"nvidia-cufft": "12.0.0.61", "address": "198.18.0.1"'),
        ('"/p/proj/repo/workflow/scripts/train.py" /p/proj/repo', '"/folder1/workflow/scripts/train.py" /folder1'),
        ("GPU-12345678-1234-1234-1234-123456789abc", "GPU-00000000-0000-0000-0000-000000000001"),
        ('"key": "submission_poc_name", "value": "Jane Doe" Jane Doe', '"key": "submission_poc_name", "value": "user1" user1'),
        ("/home/root/x /root/y on localhost", "/home/root/x /root/y on localhost"),
        # A host that is called like a point, and a user like a workload, where nothing else says who they are.
        ("rank 0 of 2 is on n1 10.1.2.7, resnet/n1", "rank 0 of 2 is on host1 198.18.0.1, resnet/n1"),
        ("/home/resnet/x trains resnet", "/home/user1/x trains resnet"),
        ('"nodes": [{"name": "vm", "address": "x"}] vm', '"nodes": [{"name": "host1", "address": "x"}] vm'),
    ],
)  # fmt: skip
def test_pseudonyms(text: str, expected: str) -> None:
    pseudonyms = pseudonyms_for(identities_in([text]), vocabulary=["n1", "resnet"])
    assert pseudonyms.replaced(text) == expected


def test_pseudonyms_are_one_for_each_and_in_natural_order() -> None:
    found = {Identity(kind="host", text=f"tesla{number}") for number in (10, 9, 100)}
    names = pseudonyms_for(found, vocabulary=[]).names
    assert names == {"tesla9": "host1", "tesla10": "host2", "tesla100": "host3"}
    many = pseudonyms_for(
        (Identity(kind="ipv4", text=f"10.0.{n // 256}.{n % 256}") for n in range(2000)), vocabulary=[]
    )
    assert len(set(many.names.values())) == 2000


def test_a_pseudonym_that_is_a_name_is_replaced_once() -> None:
    pseudonyms = pseudonyms_for(
        {Identity(kind="host", text="host2"), Identity(kind="host", text="host1x")}, vocabulary=[]
    )
    assert pseudonyms.replaced("host1x host2") == "host1 host2"
    other = pseudonyms_for({Identity(kind="host", text="a-host"), Identity(kind="host", text="host1")}, vocabulary=[])
    assert other.replaced("a-host host1") == "host1 host2"


@pytest.mark.parametrize(
    ("content", "encoding"),
    [
        (b"plain \xff bytes", "utf-8"),
        ("Größe".encode(), "utf-8"),
        ("rank 0".encode("utf-16"), "utf-16-le"),
        (b"r\0a\0n\0k\0", "utf-16-le"),
        (bytes(range(256)), ""),
    ],
)
def test_no_byte_of_a_text_is_lost(content: bytes, encoding: str) -> None:
    assert encoding_of(content) == encoding
    if encoding:
        assert encoded(decoded(content, encoding), encoding) == content


def test_a_planted_secret_stops_the_bundle(tmp_path: Path) -> None:
    source = make_study(tmp_path / "study")
    ranks = source.results / "attempts/emulated_cpu/resnet/n2/run_1/attempt_0/ranks.log"
    ranks.write_text(f"{ranks.read_text()}export {SECRETS['a Hugging Face token']}\n")
    target = tmp_path / "bundle.zip"
    with pytest.raises(SecretError) as stopped:
        write_bundle(source, target)
    assert f"{ranks}:4: looks like a Hugging Face token" in str(stopped.value)
    assert SECRETS["a Hugging Face token"] not in str(stopped.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["study"], "something was written"
