"""The scoreboard: every reproducible finding of the catalogue, live, in several variants, and controls."""
