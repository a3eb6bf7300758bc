"""Hardware in the loop: a replay whose every iteration is computed by a real model on a device.

The scheduler and the allocator are those of a simulation; what differs is where the time comes from.
Their block tables lead into one real KV memory, so that a mistake of theirs is a wrong answer.
"""
