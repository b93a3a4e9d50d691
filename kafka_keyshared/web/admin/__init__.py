"""The admin API: all that there is to see of an instance, for the console and the command line.

It needs the extra ``console``; nothing outside of this folder imports what that brings.
"""
