"""The admin API for the console and the command line.

It needs the extra ``console``; only this folder imports that extra's packages.
"""
