"""Triton kernels over paged KV memory: what a GPU does in an iteration, to be timed and to be run.

Needs the ``gpu`` extra (torch, triton); nothing else of kvsim imports this package at import time.
Without a GPU the kernels run in Triton's interpreter: ``TRITON_INTERPRET=1``.
"""
