"""What a rank writes: black box, status page, and files that ranks share."""
