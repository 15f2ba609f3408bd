"""The cause behind a stop or a failure: what the graph of waits proves, told as what the script did."""
