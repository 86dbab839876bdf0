"""What an endpoint documents, accepts and shows of speculation: three parts that are never mixed.

Called by `draftproof probe`. Speaks OpenAI-compatible chat completions; knows no engine from the inside.
"""
