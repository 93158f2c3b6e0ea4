"""Why do two sides disagree? Metrics, a reading of K3, and causes that evidence supports."""

from .bands import BANDS, Band
from .signatures import Finding
from .verdict import Diagnosis, diagnose

__all__ = ["BANDS", "Band", "Diagnosis", "Finding", "diagnose"]
