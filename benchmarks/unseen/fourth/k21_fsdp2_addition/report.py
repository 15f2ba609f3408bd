import json


def layer_norms(model):
    norms = {}
    for name, param in model.named_parameters():
        weight = param.detach()
        if hasattr(weight, "full_tensor"):
            weight = weight.full_tensor()
        norms[name] = round(float(weight.norm()), 4)
    return norms


def append_report(path, step, loss, model):
    entry = {"step": step, "loss": round(loss, 4), "norms": layer_norms(model)}
    with open(path, "a") as f:
        f.write(json.dumps(entry) + "\n")
