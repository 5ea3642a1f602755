"""A toy embedding without a model: which words a text has, hashed into 256 numbers.

For a real one, write "openai:text-embedding-3-small" and its 1536 dims into langgraph.json.
"""

import re
from zlib import crc32

DIMS = 256


def embed(texts: list[str]) -> list[list[float]]:
    return [_embed(text) for text in texts]


def _embed(text: str) -> list[float]:
    vector = [0.0] * DIMS
    for word in re.findall(r"[a-z]{4,}", text.lower()):
        vector[crc32(word[:5].encode()) % DIMS] += 1.0  # the first letters: "delivers" is near "delivery"
    return vector
