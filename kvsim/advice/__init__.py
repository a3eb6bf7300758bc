"""Which techniques help which situation: short or long texts, one user or many, replayed and compared."""

from kvsim.advice.answer import Advice
from kvsim.advice.study import recommend

__all__ = ["Advice", "recommend"]
