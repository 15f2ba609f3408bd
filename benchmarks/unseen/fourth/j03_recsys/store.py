"""A tiny key-value store of JSON files on the scratch disk of a worker."""
import json
import os


class LocalStore:
    def __init__(self, root):
        self.root = root

    def _path(self, key):
        return os.path.join(self.root, key + ".json")

    def _read(self, key):
        with open(self._path(key)) as fh:
            return json.load(fh)

    def _write(self, key, value):
        os.makedirs(self.root, exist_ok=True)
        tmp = self._path(key) + ".tmp"
        with open(tmp, "w") as fh:
            json.dump(value, fh)
        os.replace(tmp, self._path(key))

    def get_or_make(self, key, make):
        try:
            return self._read(key)
        except FileNotFoundError:
            pass
        value = make()
        self._write(key, value)
        return value
