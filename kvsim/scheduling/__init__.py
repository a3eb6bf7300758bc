"""Schedulers: who runs in the next iteration, and the decode clock that they share."""
