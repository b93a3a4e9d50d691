"""``keyshared advise``: what this package would do for a topic, from a look at its keys.

:mod:`.sample` reads, :mod:`.count` counts keys in bounded memory, :mod:`.model` makes advice of the
counts, :mod:`.report` puts it in words. :mod:`.starter` has the files that ``keyshared init``
writes.
"""
