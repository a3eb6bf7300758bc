"""What sharing a prefix cache tells an observer: probes in a replay, and what their TTFTs give away."""

from kvsim.leakage.study import Finding, Leakage, Question, study

__all__ = ["Finding", "Leakage", "Question", "study"]
