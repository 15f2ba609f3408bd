"""Findings about the data that the ranks train on."""
