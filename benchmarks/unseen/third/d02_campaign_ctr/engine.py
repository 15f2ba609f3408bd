import torch
import torch.nn.functional as F


class CampaignEngine:
    def __init__(self, model, optimizer, log, calibrator, batch=32):
        self.model, self.optimizer = model, optimizer
        self.log, self.calibrator = log, calibrator
        self.batch = batch

    def sample(self, campaign, step):
        rows = self.log.rows_of(campaign)
        start = (step * self.batch) % max(1, len(rows))
        picked = rows.roll(-start)[: self.batch]
        return self.log.features[picked], self.log.clicked[picked]

    def step(self, campaign, step):
        x, y = self.sample(campaign, step)
        self.optimizer.zero_grad()
        scores = self.model(x).squeeze(-1) + self.calibrator.offset(campaign)
        loss = F.binary_cross_entropy_with_logits(scores, y)
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def run(self, rotations):
        losses = []
        for index, rotation in enumerate(rotations):
            for slot, campaign in enumerate(rotation):
                for repeat in range(2):
                    losses.append(self.step(campaign, index * 7 + slot + repeat))
        return sum(losses) / len(losses)
