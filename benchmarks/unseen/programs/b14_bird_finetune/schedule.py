class GradualUnfreeze:
    """Trains the head first, then opens the backbone from the top, one block an epoch."""

    def __init__(self, net, optimizer, head_epochs=1):
        self.net = net
        self.optimizer = optimizer
        self.head_epochs = head_epochs
        self.closed = list(net.backbone)

    def epoch_start(self, epoch):
        if epoch < self.head_epochs or not self.closed:
            return
        block = self.closed.pop()
        for p in block.parameters():
            p.requires_grad_(True)
        self.optimizer.add_param_group({"params": list(block.parameters()), "lr": 1e-2})
