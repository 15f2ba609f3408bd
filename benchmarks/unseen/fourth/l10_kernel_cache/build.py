import os
import time

TEMPLATES = {
    "linear": "def run(x, w): return x @ w.T",
    "relu": "def run(x): return x.clamp(min=0)",
}
EXTRA = {"gelu_fast": "def run(x): return x * (1.702 * x).sigmoid()"}


class TemplateMissing(Exception):
    pass


class FileBaton:
    def __init__(self, path):
        self.path = path
        self.fd = None

    def try_acquire(self):
        try:
            self.fd = os.open(self.path, os.O_CREAT | os.O_EXCL)
            return True
        except FileExistsError:
            return False

    def release(self):
        os.close(self.fd)
        os.remove(self.path)

    def wait(self):
        while os.path.exists(self.path):
            time.sleep(0.1)


def render(name):
    if name not in TEMPLATES:
        raise TemplateMissing(name)
    return TEMPLATES[name]


def compile_kernel(name, folder):
    target = os.path.join(folder, name + ".py")
    baton = FileBaton(os.path.join(folder, name + ".lock"))
    if baton.try_acquire():
        source = render(name)
        with open(target, "w") as f:
            f.write(source)
        baton.release()
    else:
        baton.wait()
    with open(target) as f:
        scope = {}
        exec(f.read(), scope)
    return scope["run"]


def load(name, folder, tries=3):
    for _ in range(tries):
        try:
            return compile_kernel(name, folder)
        except TemplateMissing:
            TEMPLATES.update(EXTRA)
    raise RuntimeError(f"cannot build {name}")
