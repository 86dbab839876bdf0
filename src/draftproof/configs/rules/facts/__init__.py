"""What was read of other engines, as tables: each row with the versions that it holds for and where it was read.

Rules look things up here; `methods` and the documentation print it. No row is an opinion.
"""
