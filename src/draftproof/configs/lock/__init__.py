"""The deployment record: one file that says exactly what was deployed, and what has drifted since.

`record` is the file's content, `making` fills it, `redaction` keeps secrets out of it, `local` and `live` see what is
there now, `drift` compares. Called by `draftproof lock` and by `draftproof check --lock` through `checking`.
"""
