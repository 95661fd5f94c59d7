"""One thread: tiny products on a busy machine wait for threads longer than they compute."""

from __future__ import annotations

import os

os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")  # Flower would report over the network
os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # MLflow 3 would rather have a database

try:
    import torch
except ImportError:
    pass
else:
    torch.set_num_threads(1)
