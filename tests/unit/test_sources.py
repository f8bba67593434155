"""Files that a rule declares as inputs, from the imports of its script."""

from __future__ import annotations

import pytest
from mlscaling.sources import sources_of


def test_the_script_and_what_it_imports_through_others() -> None:
    files = sources_of("check_study_validity.py")
    assert {"check_study_validity.py", "mlscaling/gate.py", "mlscaling/tables.py"} <= set(files)
    assert not any("trainer" in file or "plots" in file for file in files)


def test_a_figure_depends_on_its_own_module_only() -> None:
    files = sources_of("mlscaling/plots/speedup.py")
    assert "mlscaling/plots/style.py" in files
    assert "mlscaling/plots/spread.py" not in files


def test_missing_file_is_named() -> None:
    with pytest.raises(ValueError, match=r"nothing\.py"):
        sources_of("nothing.py")
