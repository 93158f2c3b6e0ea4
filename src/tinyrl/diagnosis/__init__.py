"""Why two sides disagree: metrics, a reading of K3, causes that the evidence supports."""

from .bands import BANDS, Band
from .finding import Finding
from .verdict import Diagnosis, diagnose

__all__ = ["BANDS", "Band", "Diagnosis", "Finding", "diagnose"]
