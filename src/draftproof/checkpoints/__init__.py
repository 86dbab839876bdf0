"""Checkpoint files without torch: formats, headers, metadata, where each tensor lies.

Called by `models` (which turns the bytes into tensors) and by commands that must answer fast. Files are
treated as hostile: sizes, counts and names are checked before they are believed, so that a broken file costs
bounded memory and time and ends in a `DraftproofError` (DP401, DP402, DP404, DP406, DP407), not a traceback.
"""
