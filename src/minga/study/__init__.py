"""Studies: one question, many runs, measured so that the answer can be trusted.

study = load_study("quito", quick=True)
outcome = run_study(study, Path("studies/quito-quick"))
"""

from __future__ import annotations

from minga.study.cells import Batch, Cell, Environment
from minga.study.description import CellRun, Study, load_study, shipped_studies
from minga.study.progress import StudyView, study_view_for
from minga.study.results import Result
from minga.study.runner import Outcome, outcome_of, run_study

__all__ = [
    "Batch",
    "Cell",
    "CellRun",
    "Environment",
    "Outcome",
    "Result",
    "Study",
    "StudyView",
    "load_study",
    "outcome_of",
    "run_study",
    "shipped_studies",
    "study_view_for",
]
