"""Configuration: environment, clew.yaml and langgraph.json as one frozen value, read once at the start."""

from clew.config.apps import AppSection, read_app_section
from clew.config.channels import Channel
from clew.config.database import DatabaseUrl
from clew.config.describe import Described, describe, secrets_of
from clew.config.graphs import GraphSource
from clew.config.load import load_settings
from clew.config.process import export_environment, load_process_settings, read_database_url
from clew.config.project_ttl import StoreTtl
from clew.config.settings import Settings

__all__ = [
    "AppSection",
    "Channel",
    "DatabaseUrl",
    "Described",
    "GraphSource",
    "Settings",
    "StoreTtl",
    "describe",
    "export_environment",
    "load_process_settings",
    "load_settings",
    "read_app_section",
    "read_database_url",
    "secrets_of",
]
