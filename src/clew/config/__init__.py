"""Configuration: environment, clew.yaml and langgraph.json as one frozen value, read once at the start."""

from clew.config.apps import AppSection, read_app_section
from clew.config.budgets import BudgetSettings
from clew.config.channels import Channel
from clew.config.client import (
    ClientSettings,
    SavedContexts,
    client_settings,
    read_contexts,
    write_contexts,
)
from clew.config.database import DatabaseUrl
from clew.config.describe import Described, describe, secrets_of
from clew.config.encryption import EncryptionSettings, printed_keys
from clew.config.graphs import GraphSource
from clew.config.load import load_settings
from clew.config.process import (
    contexts_file,
    export_environment,
    load_client_settings,
    load_encryption,
    load_process_settings,
    program_search_path,
    read_database_url,
)
from clew.config.project_ttl import StoreTtl
from clew.config.queue import QueueSettings
from clew.config.quotas import QuotaSettings
from clew.config.settings import Settings

__all__ = [
    "AppSection",
    "BudgetSettings",
    "Channel",
    "ClientSettings",
    "DatabaseUrl",
    "Described",
    "EncryptionSettings",
    "GraphSource",
    "QueueSettings",
    "QuotaSettings",
    "SavedContexts",
    "Settings",
    "StoreTtl",
    "client_settings",
    "contexts_file",
    "describe",
    "export_environment",
    "load_client_settings",
    "load_encryption",
    "load_process_settings",
    "load_settings",
    "printed_keys",
    "program_search_path",
    "read_app_section",
    "read_contexts",
    "read_database_url",
    "secrets_of",
    "write_contexts",
]
