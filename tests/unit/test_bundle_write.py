"""What a bundle takes, that it is always the same bytes, and that its metadata are what they claim."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from bundle_study import Remembered, make_study
from mlscaling.bundles import environment
from mlscaling.bundles.collect import Source
from mlscaling.bundles.reading import opened
from mlscaling.bundles.verify import verify
from mlscaling.bundles.verify_text import verification_text
from mlscaling.bundles.write import Written, source_of, write_bundle
from published_tree import add_description, add_results, content

ROOT = Path(__file__).resolve().parents[2]
REMEMBERED = Remembered()
POINT = "emulated_cpu/resnet"


def bundle(source: Source, target: Path, *, draw: bool = False) -> Written:
    return write_bundle(source, target, checkers=REMEMBERED.checkers, draw=draw)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Source:
    return make_study(tmp_path_factory.mktemp("bundle") / "study")


@pytest.fixture(scope="module")
def written(source: Source, tmp_path_factory: pytest.TempPathFactory) -> Written:
    return bundle(source, tmp_path_factory.mktemp("written") / "made_up.zip", draw=True)


def test_the_same_study_is_the_same_bytes(written: Written, source: Source, tmp_path: Path) -> None:
    """Again; and from another folder, with other dates and modes of its files."""
    assert bundle(source, tmp_path / "again.zip", draw=True).sha256 == written.sha256
    top = tmp_path / "elsewhere"
    shutil.copytree(source.checkout, top, copy_function=shutil.copyfile)
    for path in top.rglob("*"):
        os.utime(path, (1, 1))
        path.chmod(0o700)
    moved = source_of(dict(source.config), given=top / "study.yaml", checkout=top)
    assert bundle(moved, tmp_path / "elsewhere.zip", draw=True).sha256 == written.sha256


def test_entries_have_one_date_one_mode_and_the_order_of_their_names(written: Written) -> None:
    with zipfile.ZipFile(written.path) as archive:
        entries = archive.infolist()
    assert [entry.filename for entry in entries] == sorted(entry.filename for entry in entries)
    assert {(entry.date_time, entry.external_attr, entry.create_system) for entry in entries} == {
        ((1980, 1, 1, 0, 0, 0), 0o100644 << 16, 3)
    }


def test_what_is_in_it(written: Written, source: Source) -> None:
    with opened(written.path) as root:
        names = {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}
        about = json.loads((root / "study.json").read_text())
        lock = (root / "environment/constraints.txt").read_bytes()
        manifest = (root / "manifest-sha256.txt").read_text()
    assert {name.split("/")[0] for name in names} == {
        *("README.md", "config", "datasets", "environment", "index.html", "manifest-sha256.txt", "results"),
        *("ro-crate-metadata.json", "study.json", "workflow"),
    }
    for run in range(3):
        assert {f"results/runs/{POINT}/n2/result_{run}.txt", f"results/runs/{POINT}/n2/run_{run}.json"} <= names
        assert f"results/validation/{POINT}/n2/compliance_{run}.json" in names
    failed = f"results/attempts/{POINT}/n1/run_2/attempt_0"
    assert {f"{failed}/attempt.json", f"{failed}/ranks.log", f"{failed}/spec.json", f"{failed}/command.json"} <= names
    assert {"config/rcps/tiny/rcps_resnet.json", "config/given.yaml", "config/rounds/1.1.0.yaml"} <= names
    assert {f"results/plots/spread.{form}" for form in ("svg", "png", "csv", "rst")} <= names
    assert (about["name"], about["status"], about["missing_runs"]) == ("made_up", "complete", [])
    assert about["versions"]["mlperf-logging"] == "4.1.68"
    assert lock == (source.checkout / "envs/constraints.txt").read_bytes()
    assert {line.partition("  ")[2] for line in manifest.splitlines()} == names - {"manifest-sha256.txt"}


def test_the_page_loads_nothing(written: Written) -> None:
    with opened(written.path) as root:
        page = (root / "index.html").read_text()
    policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
    assert f'http-equiv="Content-Security-Policy" content="{policy}"' in page
    assert re.findall(r"<(?:script|link|iframe|object|embed|form|base)\b|@import|url\(|\son\w+=", page) == []
    assert {address[:30] for address in re.findall(r"(?:src|href)=\"([^\"]*)\"", page)} == {
        "data:image/svg+xml;base64,PD94"
    }
    assert page.count("<img ") == 2
    assert "line 1" not in page


# --- studies that are not whole ---------------------------------------------------------------------------------------


def test_an_interrupted_study_is_incomplete_and_says_what_is_missing(tmp_path: Path) -> None:
    source = make_study(tmp_path / "study", missing=[("n2", 1)])
    shutil.rmtree(source.results / f"attempts/{POINT}/n2/run_2")
    for name in ("result_2.txt", "run_2.json"):
        (source.results / f"runs/{POINT}/n2/{name}").unlink()
    made = bundle(source, tmp_path / "made_up.zip")
    missing = [(run["point"], run["run"], run["num_attempts"], run["reason"]) for run in made.about["missing_runs"]]
    assert made.about["status"] == "incomplete"
    assert missing == [
        (f"{POINT}/n2", 1, 1, "network: rank 1: connection to host2 reset"),
        (f"{POINT}/n2", 2, 0, "not tried"),
    ]
    result = verify(made.path, checkers=REMEMBERED.checkers, draw=False)
    assert result.differences == []
    assert result.about["missing_runs"] == made.about["missing_runs"]
    text = verification_text(result, archive=made.path)
    assert "study made_up, INCOMPLETE, 2 of 6 runs missing" in text
    assert f"missing: {POINT}/n2 run 2, not tried" in text
    with opened(made.path) as root:
        assert f"{POINT}/n2 run 1: network" in (root / "README.md").read_text()
        assert "Incomplete: 2 of 6 planned runs have no log." in (root / "index.html").read_text()


def test_runs_outside_the_plan_are_taken_and_named(source: Source, tmp_path: Path) -> None:
    config = json.loads(json.dumps(source.config))
    config["curves"][0]["runs"] = 2
    made = bundle(source_of(config, given=None, checkout=source.checkout), tmp_path / "made_up.zip")
    assert f"results/runs/{POINT}/n1/result_2.txt" in made.about["unplanned"]
    assert f"results/attempts/{POINT}/n2/run_2" in made.about["unplanned"]
    result = verify(made.path, checkers=REMEMBERED.checkers, draw=False)
    assert result.passed, result.differences
    assert f"outside the plan: results/runs/{POINT}/n1/result_2.txt" in result.notes


def test_what_cannot_be_taken_is_named(tmp_path: Path) -> None:
    source = make_study(tmp_path / "study")
    folder = source.results / f"attempts/{POINT}/n1/run_0/attempt_0"
    (folder / "profile.sqlite").write_bytes(b"SQLite")
    (folder / "core.txt").write_bytes(bytes(range(256)) * 9)
    (folder / "passwords.txt").symlink_to("/etc/passwd")
    (folder / "größe_tesla07.txt").write_text("x")
    (folder / "tool.json").write_text('{"x": NaN}')
    (folder / "odd.log").write_bytes(b"a log with \0 and \x1b[31mcolour\x1b[0m of tesla07\n")
    (folder / ".lock").touch()
    (folder / "topology_tesla07.xml").write_text("<host>tesla07</host>")
    made = bundle(source, tmp_path / "made_up.zip")
    reasons = {Path(name).name: reason for name, reason in made.about["left_out"].items()}
    assert reasons.keys() == {"profile.sqlite", "core.txt", "passwords.txt", "größe_host1.txt", "tool.json"}
    assert reasons["passwords.txt"] == "it is a link"
    assert reasons["core.txt"] == "it is no text, so it cannot be searched for secrets"
    with opened(made.path) as root:
        taken = root / f"results/attempts/{POINT}/n1/run_0/attempt_0"
        assert (taken / "topology_host1.xml").read_text() == "<host>host1</host>"
        assert (taken / "odd.log").read_bytes() == b"a log with \0 and \x1b[31mcolour\x1b[0m of host1\n"


def test_a_table_that_does_not_follow_is_made_anew_and_named(tmp_path: Path) -> None:
    source = make_study(tmp_path / "study", anonymize=False)
    (source.results / "tables").mkdir()
    (source.results / "tables/points.csv").write_text("better numbers\n")
    made = bundle(source, tmp_path / "made_up.zip")
    assert any("points.csv does not follow from the logs" in notice for notice in made.notices)
    assert made.private is None
    with opened(made.path) as root:
        assert "better" not in (root / "results/tables/points.csv").read_text()
        assert "tesla07" in (root / f"results/runs/{POINT}/n1/run_0.json").read_text()


def test_a_log_that_was_changed_after_its_run_stops_the_bundle(tmp_path: Path) -> None:
    source = make_study(tmp_path / "study")
    log = source.results / f"runs/{POINT}/n1/result_0.txt"
    log.write_bytes(log.read_bytes() + b"one more line\n")
    with pytest.raises(ValueError, match=r"n1/result_0.txt: was changed after its run, says log_sha256 of run_0.json"):
        bundle(source, tmp_path / "made_up.zip")
    assert not (tmp_path / "made_up.zip").exists()


def test_a_published_study(tmp_path: Path) -> None:
    """Its logs are public: they stay as they are, and their hashes are those of the public tree."""
    tree = tmp_path / "tree"
    logs = [
        content(seed=run + 1, minutes=10 + run / 60, batch=1632).replace(b"train.py", b"/home/jdoe/t.py")
        for run in range(5)
    ]
    add_results(tree, logs, system="R750xa")
    add_description(tree, system="R750xa", number_of_nodes="1", accelerators_per_node="4")
    curve = {"workload": "resnet", "system": "r750xa_a100_pcie_80gb", "nodes": [1], "runs": 5}
    curve |= {"explicit": {"global_batch_sizes": [1632]}, "published": {"submitter": "someone", "systems": ["R750xa"]}}
    empty = make_study(tmp_path / "study")
    config = {**empty.config, "study": "public", "scale": "full", "curves": [curve], "published_root": str(tree)}
    from mlscaling.published_import import import_run

    folder = empty.results.with_name("public") / "runs/r750xa_a100_pcie_80gb/resnet/n1"
    for run in range(5):
        import_run(
            tree / f"someone/results/R750xa/resnet/result_{run}.txt", root=tree, submitter="someone", system="R750xa",
            benchmark="resnet", log_output=folder / f"result_{run}.txt", record_output=folder / f"run_{run}.json",
        )  # fmt: skip
    made = bundle(source_of(config, given=None, checkout=empty.checkout), tmp_path / "public.zip")
    assert (made.about["status"], made.about["published_by"]) == ("complete", ["someone"])
    shutil.rmtree(tree)
    result = verify(made.path, checkers=REMEMBERED.checkers, draw=False)
    assert result.differences == []
    with opened(made.path) as root:
        assert (root / "results/runs/r750xa_a100_pcie_80gb/resnet/n1/result_3.txt").read_bytes() == logs[3]
        assert str(tree) not in (root / "config/study.json").read_text()
        assert json.loads((root / "config/rcps/official/rcps_resnet.json").read_text())


# --- metadata, environment, command line ------------------------------------------------------------------------------


def test_uncommitted_changes_are_taken(tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        identity = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
        subprocess.run(["git", "-C", str(tmp_path), *identity, *arguments], check=True, capture_output=True)

    (tmp_path / "envs").mkdir()
    for name in ("constraints.txt", "workflow.txt", "train.txt"):
        (tmp_path / "envs" / name).write_text("x==1\n")
    git("init")
    git("add", ".")
    git("commit", "-m", "first")
    assert "environment/changes.diff" not in environment.files_of(tmp_path)
    (tmp_path / "envs/train.txt").write_text("x==2\n")
    files = environment.files_of(tmp_path)
    assert json.loads(files["environment/code.json"])["dirty"] is True
    assert b"-x==1\n+x==2\n" in files["environment/changes.diff"]


def test_the_crate_is_valid(written: Written, tmp_path: Path) -> None:
    """Against the Workflow Run Crate profile by roc-validator, offline; contexts come from a cache that is filled here."""
    from rocrate_validator import services
    from rocrate_validator.models import Severity, ValidationSettings

    fill_cache(tmp_path / "cache")
    with opened(written.path) as root:
        settings = ValidationSettings(
            rocrate_uri=str(root),
            profile_identifier="workflow-run-crate-0.5",
            requirement_severity=Severity.RECOMMENDED,
            offline=True,
            cache_path=tmp_path / "cache",
            skip_availability_check=True,
        )
        issues = services.validate(settings).get_issues()
    required = [issue.message for issue in issues if issue.severity == Severity.REQUIRED]
    recommended = {issue.check.identifier for issue in issues if issue.severity == Severity.RECOMMENDED}
    assert required == []
    # What cannot be met: a study knows no address of its organization nor of the workflow, which is a file of the crate.
    assert recommended <= {"ro-crate-1.1_31.2", "process-run-crate-0.5_3.2", "process-run-crate-0.5_5.1"}


def fill_cache(path: Path) -> None:
    """RO-Crate 1.1's context, which rocrate has as of 1.3: the two types that this profile asks for had other names."""
    import rocrate
    import urllib3
    from requests import PreparedRequest, Response
    from requests.adapters import HTTPAdapter
    from requests_cache import CachedSession

    context = json.loads((Path(rocrate.__file__).parent / "data/ro-crate.jsonld").read_text())
    for name in ("ComputationalWorkflow", "FormalParameter"):
        context["@context"][name] = f"https://bioschemas.org/{name}"

    class Local(HTTPAdapter):
        def send(self, request: PreparedRequest, *_: object, **__: object) -> Response:
            body = io.BytesIO(json.dumps(context).encode())
            headers = {"Content-Type": "application/ld+json"}
            raw = urllib3.HTTPResponse(body=body, status=200, headers=headers, preload_content=False)
            return self.build_response(request, raw)

    with CachedSession(str(path)) as session:
        session.mount("https://w3id.org", Local())
        session.get("https://w3id.org/ro/crate/1.1/context")


def command(*arguments: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    script = str(ROOT / "workflow/scripts/bundle.py")
    environment_ = {**os.environ, **variables}
    return subprocess.run(
        [sys.executable, script, *arguments], cwd=folder, env=environment_, capture_output=True, text=True, timeout=300
    )


def test_verify_needs_no_torch_and_no_checkout_as_its_folder(written: Written, tmp_path: Path) -> None:
    empty, blocked = tmp_path / "empty", tmp_path / "blocked"
    empty.mkdir()
    for name in ("torch", "snakemake"):
        (blocked / name).mkdir(parents=True)
        (blocked / name / "__init__.py").write_text(f"raise ImportError('no {name} here')")
    record = tmp_path / "record.json"
    done = command(
        "verify", str(written.path), "--values", "--json", str(record), folder=empty, PYTHONPATH=str(blocked)
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "made_up, COMPLETE, 6 runs" in done.stdout
    assert "holds  results/tables/points.csv: line 2, verdict = incomplete" in done.stdout
    assert re.search(r"all [\d,]+ values hold\n\Z", done.stdout)
    assert json.loads(record.read_text())["passed"] is True
    assert list(empty.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["verify", "nothing.zip"], 2, "bundle: nothing.zip: No such file or directory"),
        (["verify", __file__], 1, "bundle: test_bundle_write.py: does not end as a zip archive without comment does"),
        (["write", "--configfile", "nothing.yaml"], 2, "bundle: nothing.yaml: there is no such file"),
        (["write", "--configfile", "study.yaml", "--config", "scale"], 2, "bundle: --config scale: expected KEY=VALUE"),
        (["write", "--configfile", "study.yaml"], 2, "there is no such folder; study nowhere has no results"),
        (
            ["write", "--configfile", "study.yaml", "--config", "scale=huge"],
            2,
            "scale = 'huge': legal values: ['tiny', 'full']",
        ),
    ],
)
def test_errors_for_people(arguments: list[str], status: int, message: str, tmp_path: Path) -> None:
    study = (ROOT / "config/config.yaml").read_text().replace("study: quickstart", "study: nowhere")
    (tmp_path / "study.yaml").write_text(study)
    done = command(*arguments, folder=tmp_path)
    assert done.returncode == status
    assert message in done.stderr
    assert "Traceback" not in done.stderr
