"""Studies: one question, many runs, measured so that the answer can be trusted.

study = load_study("quito", quick=True)
outcome = run_study(study, Path("studies/quito-quick"))
"""

from __future__ import annotations

from minga.study.cells import Batch, Cell, Environment
from minga.study.description import Job, Study
from minga.study.load import load_study, shipped_studies

__all__ = ["Batch", "Cell", "Environment", "Job", "Study", "load_study", "shipped_studies"]
