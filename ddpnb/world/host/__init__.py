"""Checks of this machine before training, one module for each subject; ``host.py`` runs them."""
