"""Extraction limits of one file."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractionLimits:
    cpu_seconds: int = 10
    wall_seconds: float = 30.0
    memory_bytes: int = 512 * 2**20  # of address space, with the interpreter and the file itself
    output_bytes: int = 50 * 2**20
