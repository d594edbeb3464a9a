"""May this request enter, now? Pure decisions, taken before a body is read."""

from headrace.admission.door import Admitted, Denied, Door
from headrace.admission.gradient import GradientLimit
from headrace.admission.settings import AdmissionSettings

__all__ = ["AdmissionSettings", "Admitted", "Denied", "Door", "GradientLimit"]
