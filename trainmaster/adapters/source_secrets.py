"""Which names never belong into a snapshot: caches, virtual environments, settings with passwords, keys?

A line without wildcards in .trainmasterignore, such as ``!certs/ca.pem``, brings a name back; .git never comes back.
"""

from __future__ import annotations

import os

VIRTUAL_ENVIRONMENT = "a virtual environment"
_CACHE = "a cache"
_KEY = "it looks like a key or password file"
_SETTINGS = "it may hold passwords"

#: Folders, and links that stand in for them.
_FOLDERS = {
    ".git": "git's own data",
    ".venv": VIRTUAL_ENVIRONMENT,
    "venv": VIRTUAL_ENVIRONMENT,
    "node_modules": "installed packages",
    "__pycache__": _CACHE,
    ".mypy_cache": _CACHE,
    ".pytest_cache": _CACHE,
    ".ruff_cache": _CACHE,
    ".ipynb_checkpoints": _CACHE,
    ".tox": _CACHE,
    ".nox": _CACHE,
    ".aws": _KEY,
    ".azure": _KEY,
    ".gnupg": _KEY,
    ".kube": _KEY,
    ".ssh": _KEY,
}

_FILES = {
    ".git": "git's own data",
    ".DS_Store": _CACHE,
    ".env": _SETTINGS,
    ".git-credentials": _KEY,
    ".netrc": _KEY,
    "_netrc": _KEY,
    ".pgpass": _KEY,
    ".pypirc": _KEY,
    "id_dsa": _KEY,
    "id_ecdsa": _KEY,
    "id_ecdsa_sk": _KEY,
    "id_ed25519": _KEY,
    "id_ed25519_sk": _KEY,
    "id_rsa": _KEY,
    "kaggle.json": _KEY,
}

_ENDINGS = {
    ".pyc": _CACHE,
    ".pyo": _CACHE,
    ".jks": _KEY,
    ".key": _KEY,
    ".keystore": _KEY,
    ".p12": _KEY,
    ".pem": _KEY,
    ".pfx": _KEY,
    ".ppk": _KEY,
}

#: Written to be shared: they show which settings there are.
_ENV_EXAMPLES = frozenset({".env.example", ".env.sample", ".env.template", ".env.dist"})

#: A service account's key has about 2,300 bytes.
_ACCOUNT_KEY_BYTES_MAX = 64 * 1024


def why_folder_stays(name: str) -> str | None:
    """Why a folder of this name is left out, or None."""
    return _FOLDERS.get(name)


def why_link_stays(name: str) -> str | None:
    """Why a link of this name is left out, or None: it stands in for a folder as well as for a file."""
    return _FOLDERS.get(name) or why_file_stays(name)


def why_file_stays(name: str) -> str | None:
    """Why a file of this name is left out, or None."""
    why = _FILES.get(name) or _ENDINGS.get(os.path.splitext(name)[1].lower())
    if why is None and name.startswith(".env.") and name not in _ENV_EXAMPLES:
        why = _SETTINGS
    return why


def is_cache(name: str) -> bool:
    """Whether tools write a file or folder of this name by themselves, so that it is nobody's work."""
    why = _FOLDERS.get(name) or _FILES.get(name) or _ENDINGS.get(os.path.splitext(name)[1])
    return why in (_CACHE, VIRTUAL_ENVIRONMENT)


def why_content_stays(path: str, size_bytes: int) -> str | None:
    """Why this file is left out for what is in it, or None. Only a JSON file with a telling name is opened."""
    name = os.path.basename(path).lower()
    if not name.endswith(".json") or size_bytes > _ACCOUNT_KEY_BYTES_MAX:
        return None
    if "credential" not in name and not ("service" in name and "account" in name):
        return None
    try:
        with open(path, "rb") as file:
            return _KEY if b'"private_key"' in file.read(_ACCOUNT_KEY_BYTES_MAX) else None
    except OSError:
        # Packing opens it again and says what is wrong.
        return None
