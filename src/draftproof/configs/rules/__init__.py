"""The rule base: what is known to go wrong with a pair or a configuration, one module per family.

`rule` says what a rule is, `case` what it looks at, `judging` runs rules over a case, `registry` lists the families,
`facts` holds what was read of engines as tables. Called by `check`, by our engine when it loads a drafter, by `plan`
and `advise`. No rule opens a file by itself or knows a command line.
"""
