"""One module (or folder) a kind of result: the head of its page and its sections, each registered
with the kit.
"""
