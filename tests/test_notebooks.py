"""The notebooks among the examples run from their first cell to their last."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

EXAMPLES = Path(__file__).parents[1] / "examples"
NOTEBOOKS = sorted(EXAMPLES.glob("*.ipynb"))


def test_there_are_notebooks_and_they_have_been_run() -> None:
    assert [path.name for path in NOTEBOOKS] == ["compare_strategies.ipynb", "first_steps.ipynb"]
    for path in NOTEBOOKS:
        text = path.read_text()
        assert len(text) < 150_000, f"{path.name} has large outputs"
        cells = [cell for cell in nbformat.reads(text, as_version=4).cells if cell.cell_type == "code"]
        assert all(cell.execution_count for cell in cells), f"{path.name} was not run before it was committed"
        assert "/home/" not in text and "/tmp/" not in text and "/root/" not in text, "a path of somebody's machine"


# The kernel's own libraries warn of each other.
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_without_errors(tmp_path: Path, path: Path) -> None:
    """Whether kernels are left behind, the fixture for processes sees."""
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(
        notebook, timeout=150, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    assert (tmp_path / "runs").is_dir()
    shown = [out for cell in notebook.cells if cell.cell_type == "code" for out in cell.outputs]
    pages = [out["data"]["text/html"] for out in shown if "text/html" in out.get("data", {})]
    assert any("<progress" in page and "done" in page for page in pages), "no live view"
    last = [cell for cell in notebook.cells if cell.cell_type == "code"][-1]
    assert last.outputs, "the last cell shows nothing"
