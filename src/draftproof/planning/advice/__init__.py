"""Advice: which kind of speculation to try first for one target, engine, workload, memory and role, and why not others.

`ask` is what was asked, `facts` what the files say, `copying` what a workload copies, one module per kind of drafting
proposes steps, `advising` puts them in order. Called by `draftproof advise`. Nothing here promises a gain: where
nothing was measured, only thresholds are given.
"""
