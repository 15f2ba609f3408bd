"""What runs on a rank: door, black box, fence, control channel. Needs only torch."""
