import torch


@torch.no_grad()
def evaluate(model, loader):
    was_training = model.training
    model.eval()
    hits = total = 0
    for images, labels in loader:
        hits += int((model(images).argmax(1) == labels).sum())
        total += len(labels)
    model.train(was_training)
    return hits / total
