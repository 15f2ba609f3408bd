"""From outside the ranks: takes Recordings, follows their output, and decides when a run is over."""
