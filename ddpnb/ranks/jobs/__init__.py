"""Ranks in plain processes: started by ddpnb, by any launcher, or found running."""
