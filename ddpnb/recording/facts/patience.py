"""How long a rank may be blocked outside any collective before that is a hang: by default, in seconds."""

PATIENCE = 10.0
