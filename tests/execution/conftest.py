"""Without a GPU the kernels run in Triton's interpreter; this must be said before triton loads."""

from __future__ import annotations

import importlib.util
import os

if importlib.util.find_spec("torch"):
    import torch

    if not torch.cuda.is_available():
        os.environ["TRITON_INTERPRET"] = "1"
