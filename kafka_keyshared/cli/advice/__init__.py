"""``keyshared advise``: an estimate of the benefit for a topic.

:mod:`.sample` reads records, :mod:`.count` counts keys in bounded memory, :mod:`.model` derives
advice from the counts, and :mod:`.report` writes it as text. :mod:`.starter` has the files that
``keyshared init`` writes.
"""
