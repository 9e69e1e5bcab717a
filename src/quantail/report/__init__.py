"""The report of a run: one HTML file, offline, for light and dark, phone, desktop and paper."""

from quantail.report.html import write_report
from quantail.report.pdf import write_pdf

__all__ = ["write_pdf", "write_report"]
