"""Tokenizer files of every kind that is read, each made into the same map from token ids to bytes.

Called by `folder_view` through `reading`. One module per kind; all are bounded, and none needs a tokenizer library.
"""
