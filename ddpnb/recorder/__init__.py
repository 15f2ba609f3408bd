"""What runs on a rank: the door, the black box, the fence, the hotline. Needs torch alone."""
