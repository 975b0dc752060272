"""A client of the Kubernetes API: configuration, connections, verbs, typed errors, patches, watches.

Flow: `Client.from_config()` once per process; its methods are the verbs of the API. Objects are plain
dictionaries, kinds are `captf_runtime.objects.Kind` values, failures are subclasses of `ApiError`.
"""

from __future__ import annotations

from captf_runtime.client.api import POOL_SIZE, Client, ContextClient
from captf_runtime.client.config import ClientCertificate, ClientConfig, ConfigError, load_config
from captf_runtime.client.credentials import Credentials, StaticCredentials, TokenFile
from captf_runtime.client.deletes import delete_as_read
from captf_runtime.client.errors import (
    AlreadyExists,
    ApiError,
    BadRequest,
    Cause,
    Conflict,
    ConnectionFailed,
    Forbidden,
    Gone,
    InternalError,
    Invalid,
    MethodNotAllowed,
    NamespaceTerminating,
    NotAcceptable,
    NotFound,
    RequestTimeout,
    RequestTooLarge,
    ResourceVersionTooLarge,
    ServerTimeout,
    ServiceUnavailable,
    Stopped,
    Timeout,
    TooManyRequests,
    TransportError,
    Unauthorized,
    UnsupportedMediaType,
    WatchDecodeError,
)
from captf_runtime.client.lists import ObjectList, RawPage
from captf_runtime.client.observe import RequestMetrics, RequestObserver
from captf_runtime.client.patches import add_finalizer, merge_from, patch_object, remove_finalizer
from captf_runtime.client.protocols import (
    CallContext,
    JsonPatch,
    PatchType,
    PropagationPolicy,
    Reader,
    ReadWriter,
    Writer,
)
from captf_runtime.client.retry import retry_on_conflict
from captf_runtime.client.transport import Answer as RawResponse
from captf_runtime.client.transport import Cancellation
from captf_runtime.client.watch import WatchEvent, WatchStream

__all__ = [
    "POOL_SIZE",
    "AlreadyExists",
    "ApiError",
    "BadRequest",
    "CallContext",
    "Cancellation",
    "Cause",
    "Client",
    "ClientCertificate",
    "ClientConfig",
    "ConfigError",
    "Conflict",
    "ConnectionFailed",
    "ContextClient",
    "Credentials",
    "Forbidden",
    "Gone",
    "InternalError",
    "Invalid",
    "JsonPatch",
    "MethodNotAllowed",
    "NamespaceTerminating",
    "NotAcceptable",
    "NotFound",
    "ObjectList",
    "PatchType",
    "PropagationPolicy",
    "RawPage",
    "RawResponse",
    "ReadWriter",
    "Reader",
    "RequestMetrics",
    "RequestObserver",
    "RequestTimeout",
    "RequestTooLarge",
    "ResourceVersionTooLarge",
    "ServerTimeout",
    "ServiceUnavailable",
    "StaticCredentials",
    "Stopped",
    "Timeout",
    "TokenFile",
    "TooManyRequests",
    "TransportError",
    "Unauthorized",
    "UnsupportedMediaType",
    "WatchDecodeError",
    "WatchEvent",
    "WatchStream",
    "Writer",
    "add_finalizer",
    "delete_as_read",
    "load_config",
    "merge_from",
    "patch_object",
    "remove_finalizer",
    "retry_on_conflict",
]
