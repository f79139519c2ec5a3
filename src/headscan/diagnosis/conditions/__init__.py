"""The conditions of a checkup, one declaration each: code, number, threshold, words, and the
function that looks for it. There is one module for each question; HS208 is in
`headscan.diagnosis.lookahead`.
"""
