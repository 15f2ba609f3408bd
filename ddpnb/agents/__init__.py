"""Tools for agents (``ddpnb mcp``): the verbs of the debugger, with typed and bounded answers."""
