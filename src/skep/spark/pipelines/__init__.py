"""The pipelines as functions from frames to frames: nothing here reads, writes, or looks at a clock.

`skep pipeline run` runs them, and you can import them. A frame of messages, leases or dead letters may come from
`spark.read.format("skep")`, from the lake, or from a test.
"""
