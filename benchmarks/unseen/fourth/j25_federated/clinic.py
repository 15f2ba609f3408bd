"""Patients of a clinic. Clinics share the measurements, not the list of diagnoses."""
import torch

DIAGNOSES = (3, 5, 4, 6)
PATIENTS = (160, 96, 224, 128)


class Clinic:
    def __init__(self, index):
        i = index % len(DIAGNOSES)
        gen = torch.Generator().manual_seed(40 + index)
        self.n_diagnoses = DIAGNOSES[i]
        self.x = torch.randn(PATIENTS[i], 14, generator=gen)
        self.y = self.x[:, :self.n_diagnoses].argmax(1)
        self.gen = gen

    def draw(self, n=32):
        pick = torch.randint(0, len(self.x), (n,), generator=self.gen)
        return self.x[pick], self.y[pick]

    def batches(self, size=32):
        order = torch.randperm(len(self.x), generator=self.gen)
        for part in order.split(size):
            yield self.x[part], self.y[part]
