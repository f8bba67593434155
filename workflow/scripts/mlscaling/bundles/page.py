"""`index.html`: the report of a bundle as one page without scripts and remote resources.

Snakemake's own report is not taken along: it is a program of megabytes that nobody can check, and holds times of jobs
that differ from one making to the next. This page has its tables, figures and captions, and follows from the files
of the bundle, so that it is verified like them.
"""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from mlscaling.bundles import layout
from mlscaling.files import read_json
from mlscaling.study import Study

POLICY: Final = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
"""What a browser may load: nothing from outside the page."""
_STYLE: Final = """
body { font: 15px/1.5 system-ui, sans-serif; color: #222; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1, h2 { line-height: 1.2; } h2 { margin-top: 2.5rem; border-bottom: 1px solid #d9d9d9; }
pre { overflow-x: auto; background: #f6f6f6; padding: .8rem; font-size: 12.5px; line-height: 1.4; }
table { border-collapse: collapse; font-size: 13px; } th, td { padding: .2rem .7rem .2rem 0; text-align: left;
vertical-align: top; border-bottom: 1px solid #eee; } td.number { text-align: right; }
figure { margin: 2rem 0; } figure img { max-width: 100%; } figcaption { font-size: 13px; color: #444; }
.incomplete { border-left: 4px solid #d55e00; padding-left: .8rem; } .scroll { overflow-x: auto; }
"""
_RUN_COLUMNS: Final = (
    *("system", "workload", "nodes", "run", "status", "num_attempts", "seed", "time_to_train_min", "convergence"),
    *("convergence_unit", "quality", "compliance", "official_compliance", "failure_class", "finding"),
)


def page(root: Path, study: Study) -> str:
    """The page of a bundle whose other files are in place."""
    about = read_json(root / layout.STUDY)
    summary = (root / "results/tables/summary.txt").read_text(encoding="utf-8")
    parts = [
        f"<h1>{_text(study.title)}</h1>",
        *_status(about),
        _definitions(about),
        "<h2>Summary</h2>",
        f"<pre>{_text(summary)}</pre>",
        "<h2>Figures</h2>",
        *(_figure(root, name) for name in study.plots),
        "<h2>Runs</h2>",
        _runs(root),
        "<h2>Is it true?</h2>",
        *_how_to_verify(about),
    ]
    head = (
        f'<meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{_text(study.title)}</title><style>{_STYLE}</style>"
    )
    return (
        f'<!doctype html>\n<html lang="en">\n<head>{head}</head>\n<body>\n' + "\n".join(parts) + "\n</body>\n</html>\n"
    )


def readme(about: dict[str, Any]) -> str:
    """`README.md`: what this is, for whoever unpacks it."""
    missing = "".join(f"- {run['point']} run {run['run']}: {run['reason']}\n" for run in about["missing_runs"])
    incomplete = f"\nThe study is incomplete; these runs are missing:\n\n{missing}" if missing else ""
    return f"""# {_one_line(about["title"])}

A bundle of the scaling study `{about["name"]}`, {about["status"]}: logs, verdicts, tables and figures, and what they
follow from. Open `index.html`; `study.json` says the same to programs, `ro-crate-metadata.json` to research-data tools.
{incomplete}
`python workflow/scripts/bundle.py verify <this archive>`, in a checkout of the workflow, makes every number anew from
the raw logs and says whether it holds. Commit that made the bundle: {about["commit"] or "unknown"}.
"""


def _status(about: dict[str, Any]) -> list[str]:
    if about["status"] == "complete":
        return [f"<p>Complete: all {about['num_runs']} planned runs have a log.</p>"]
    rows = [[run["point"], run["run"], run["num_attempts"], run["reason"]] for run in about["missing_runs"]]
    words = f"Incomplete: {len(rows)} of {about['num_runs']} planned runs have no log."
    return [
        f'<div class="incomplete"><p><strong>{words}</strong></p>',
        _table(["point", "run", "attempts", "why"], rows),
        "</div>",
    ]


def _definitions(about: dict[str, Any]) -> str:
    rows = [
        ["study", about["name"]],
        ["MLPerf round", about["round"]],
        ["scale", about["scale"]],
        ["published by", ", ".join(about["published_by"])],
        [
            "commit",
            f"{about['commit'] or 'unknown'}{' with changes, environment/changes.diff' if about['dirty'] else ''}",
        ],
        ["made with", ", ".join(f"{name} {version}" for name, version in about["versions"].items())],
        ["names of users, hosts and addresses", "replaced by pseudonyms" if about["anonymized"] else "as recorded"],
        ["runs outside the plan", ", ".join(about["unplanned"])],
        ["left out", "; ".join(f"{name}: {reason}" for name, reason in about["left_out"].items())],
    ]
    return _table([], [row for row in rows if row[1]])


def _figure(root: Path, name: str) -> str:
    image = root / f"results/plots/{name}.svg"
    data = base64.b64encode(image.read_bytes()).decode("ascii") if image.is_file() else ""
    caption = (root / f"results/plots/{name}.rst").read_text(encoding="utf-8")
    picture = f'<img alt="{_text(name)}" src="data:image/svg+xml;base64,{data}">'
    return f"<figure>{picture}<figcaption>{_of_rst(caption)}</figcaption></figure>"


def _of_rst(text: str) -> str:
    """Paragraphs and lists, which is all the markup that captions have."""
    blocks = []
    for block in re.split(r"\n\s*\n", text.strip()):
        lines = block.splitlines()
        if all(line.startswith("* ") for line in lines):
            items = "".join(f"<li>{_unescaped(line[2:])}</li>" for line in lines)
            blocks.append(f"<ul>{items}</ul>")
        else:
            blocks.append(f"<p>{_unescaped(' '.join(lines))}</p>")
    return "".join(blocks)


def _unescaped(text: str) -> str:
    return _text(re.sub(r"\\(.)", r"\1", text))


def _runs(root: Path) -> str:
    from mlscaling.tables import read_table

    table = read_table(root / "results/tables/runs.csv", "runs")
    rows = [[_shown(row[name]) for name in _RUN_COLUMNS] for row in table.to_dict("records")]
    return _table([name.replace("_", " ") for name in _RUN_COLUMNS], rows)


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return "" if value != value else f"{value:.6g}"
    return "" if str(value) == "<NA>" else str(value)


def _how_to_verify(about: dict[str, Any]) -> Iterable[str]:
    yield (
        "<p>Every number here follows from the logs in <code>results/runs</code>, the run records beside them, the "
        "attempts in <code>results/attempts</code> and the configuration in <code>config/study.json</code>. In a "
        f"checkout of the workflow (commit {_text(str(about['commit'] or 'unknown'))}),</p>"
    )
    yield "<pre>python workflow/scripts/bundle.py verify &lt;this archive&gt;</pre>"
    yield "<p>makes them anew and names what does not hold. <code>manifest-sha256.txt</code> has every file's hash.</p>"


def _table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    head = "<tr>" + "".join(f"<th>{_text(name)}</th>" for name in header) + "</tr>" if header else ""
    body = "".join("<tr>" + "".join(f"<td>{_text(str(cell))}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<div class="scroll"><table>{head}{body}</table></div>'


def _text(text: str) -> str:
    return html.escape(text)


def _one_line(text: str) -> str:
    return " ".join(text.split())
