"""The demonstration: a year of real flights through a key-shared consumer, judged record by record.

``data`` is the input, ``flights`` the handler, ``expected`` the answer worked out without this
package's dispatch code.
"""
