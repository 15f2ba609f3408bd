"""The documentation: its pages, and ``docs.generator``, which makes the site of them."""
