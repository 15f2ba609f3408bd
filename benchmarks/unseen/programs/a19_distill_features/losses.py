import torch
import torch.nn.functional as F


def unwrap(model):
    return getattr(model, "module", model)


class DistillationLoss:
    """Cross entropy plus a penalty on the distance of the hidden features to a frozen teacher."""

    def __init__(self, teacher, weight=0.5, temperature=2.0):
        self.teacher = teacher.eval().requires_grad_(False)
        self.weight = weight
        self.temperature = temperature

    def __call__(self, student, x, y):
        net = unwrap(student)
        hidden = net.features(x)
        logits = net.classify(hidden)
        with torch.no_grad():
            t_hidden = self.teacher.features(x)
            t_logits = self.teacher.classify(t_hidden)
        soft = F.kl_div(
            F.log_softmax(logits / self.temperature, -1),
            F.softmax(t_logits / self.temperature, -1),
            reduction="batchmean",
        )
        return F.cross_entropy(logits, y) + self.weight * (soft + F.mse_loss(hidden, t_hidden))
