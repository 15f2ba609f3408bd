from vocab import count_words, save


def preview(corpus, top=3):
    """Shows what the tokenizer will see before the long run begins."""
    counts = count_words(corpus)
    vocab = {w: i for i, w in enumerate(sorted(counts))}
    save(vocab, "vocab")
    print("most frequent:", counts.most_common(top), "size:", len(vocab), flush=True)
