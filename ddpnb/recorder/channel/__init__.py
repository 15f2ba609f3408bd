"""How a rank answers while its main thread hangs: control channel, socket, signs of life."""
