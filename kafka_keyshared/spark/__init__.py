"""Runs of the same handlers, in the same order, on Apache Spark.

Spark is meant for a backlog that is too large for the pods. Nothing outside this package imports
pyspark. No module of this package imports pyspark when it is itself imported. A session looks for
Spark when it starts, so that a missing part is reported in one line.
"""
