"""Models, GPUs and prices that kvsim knows by name: data with source and date, and its loaders."""

from kvsim.catalog.hardware import (
    Electricity,
    Gpu,
    Price,
    electricity,
    gpu_names,
    load_gpu,
    prices,
    regional_prices,
)
from kvsim.catalog.model import Attention, Layer, Mlp, ModelSpec, Recurrent, Stream
from kvsim.catalog.models import load_model, model_names

__all__ = [
    "Attention",
    "Electricity",
    "Gpu",
    "Layer",
    "Mlp",
    "ModelSpec",
    "Price",
    "Recurrent",
    "Stream",
    "electricity",
    "gpu_names",
    "load_gpu",
    "load_model",
    "model_names",
    "prices",
    "regional_prices",
]
