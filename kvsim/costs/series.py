"""Sums of arithmetic series in closed form: what makes a leap of many iterations cost O(1).

All arguments are integers, so a sum is exactly that of its terms, in whatever order.
"""

from __future__ import annotations


def affine_sum(first: int, step: int, count: int) -> int:
    """Sum of ``first + step * i`` for i below ``count``."""
    return count * first + step * (count * (count - 1) // 2)


def clipped_sum(first: int, step: int, limit: int, count: int) -> int:
    """Sum of ``min(first + step * i, limit)`` for i below ``count``; ``step`` is not negative."""
    if first >= limit:
        return count * limit
    if step == 0:
        return count * first
    free = min(count, -((first - limit) // step))
    return affine_sum(first, step, free) + (count - free) * limit


def larger_sum(a: int, a_step: int, b: int, b_step: int, count: int) -> int:
    """Sum of the larger of two affine series; they cross at most once, and are split there."""
    if (a, a_step) < (b, b_step):
        a, a_step, b, b_step = b, b_step, a, a_step
    if count == 1 or b_step <= a_step:
        return affine_sum(a, a_step, count)
    ahead = min(count, (a - b) // (b_step - a_step) + 1)
    return affine_sum(a, a_step, ahead) + affine_sum(b + b_step * ahead, b_step, count - ahead)
