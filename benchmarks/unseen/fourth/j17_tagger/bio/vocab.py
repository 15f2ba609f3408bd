class TagVocab:
    def __init__(self, tags):
        self.names = sorted(tags)
        self.index = {t: i for i, t in enumerate(self.names)}

    @classmethod
    def collect(cls, sentences):
        return cls({tag for _, tags in sentences for tag in tags})

    def __len__(self):
        return len(self.names)

    def encode(self, tags):
        return [self.index[t] for t in tags]
