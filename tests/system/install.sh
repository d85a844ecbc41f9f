#!/usr/bin/env bash
# What `make test-system` needs beyond `make test`: root (to mount small file systems), setpriv, zsh and fish, and Node.js for an Azure
# Blob server.
set -euo pipefail
if [ "$(id -u)" != 0 ]; then
  echo "make test-system needs root: it mounts small file systems to fill them up." >&2
  exit 1
fi
missing=()
command -v setpriv >/dev/null || missing+=(util-linux)
command -v npm >/dev/null || missing+=(nodejs npm)
for shell in zsh fish; do command -v "$shell" >/dev/null || missing+=("$shell"); done
if [ ${#missing[@]} -gt 0 ]; then
  apt-get update
  apt-get install -y --no-install-recommends "${missing[@]}"
fi
