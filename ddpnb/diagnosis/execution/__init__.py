"""Where a rank left the way of the others, by the lines of the user's code that each of them executed."""
