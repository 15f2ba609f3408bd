"""The documentation site: ``python -m docs.generator`` (``make docs``) writes it to ``site/``.

``sources`` gathers the pages as Markdown: those of ``docs``, and those that are generated from the catalogue of findings
(``findings``), the matrix of frameworks (``frameworks``), the pitfalls (``pitfalls``), the parsers of the command line
(``commands``), the public names (``api``) and the notebooks (``notebooks``). ``links`` makes the links between files of the
repository links between pages. None of these needs Sphinx. ``conf`` and ``docstrings`` configure Sphinx, which makes HTML.
"""
