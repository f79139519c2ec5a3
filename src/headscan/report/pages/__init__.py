"""One module, or a few, for each kind of result: the head of its page and its sections.

Each is registered with the kit.
"""
