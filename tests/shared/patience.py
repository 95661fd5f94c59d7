"""How long a test waits for another process: a limit against hanging, never a measurement.

``LASTITERATE_TEST_PATIENCE`` scales it on machines that are slower still.
"""

from __future__ import annotations

import os

HANG_SECONDS = 600.0 * float(os.environ.get("LASTITERATE_TEST_PATIENCE", "1"))
