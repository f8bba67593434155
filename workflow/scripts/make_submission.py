"""Build MLPerf's submission tree and keep the official package checker's verdict, or say why nothing may be built."""

import sys
from pathlib import Path

from mlscaling.files import write_text
from mlscaling.submission.build import NotSubmittableError, build_submission, summary
from mlscaling.submission.plan import SubmissionPlan

output = Path(snakemake.output.check).parent
plan = SubmissionPlan.from_dict(snakemake.params.plan)
try:
    content = build_submission(plan, results=output.parent, output=output)
except NotSubmittableError as error:
    write_text(f"{error}\n", snakemake.log[0])
    sys.exit(str(error))
write_text(summary(content, where=output) + "\n", snakemake.log[0])
print(summary(content, where=output), file=sys.stderr)
