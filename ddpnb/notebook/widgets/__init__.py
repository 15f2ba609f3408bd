"""Widgets. They know no World: they show traits and send messages."""
