"""The server for admission reviews."""

from .admission import (
    AdmissionRequest,
    AdmissionResponse,
    UserInfo,
    Validator,
    Violation,
    ViolationType,
)
from .server import WebhookServer

__all__ = [
    "AdmissionRequest",
    "AdmissionResponse",
    "UserInfo",
    "Validator",
    "Violation",
    "ViolationType",
    "WebhookServer",
]
