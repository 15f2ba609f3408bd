"""Logs and dumps of other programs, read as Recordings: one file for each format.

A format turns a file into facts about ranks (``facts``); ``together`` builds one Recording of the facts of all files. What
is read comes from strangers: it is bounded, never executed, and shown escaped.
"""
