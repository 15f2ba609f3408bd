KINDS = ("chair", "lamp", "table", "shelf")


def list_scans(per_kind=48):
    return [(f"{kind}_{i:03d}", label) for label, kind in enumerate(KINDS) for i in range(per_kind)]
