"""The same handlers, in the same order, on Apache Spark: for a backlog that outgrows the pods.

Nothing outside this package imports pyspark, and no module of it does when it is imported on its
own: Spark is looked for when a session starts, so that what is missing can be told in a line.
"""
