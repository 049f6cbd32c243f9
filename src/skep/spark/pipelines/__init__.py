"""The pipelines as functions from frames to frames: nothing here reads, writes, or looks at a clock.

They are what `skep pipeline run` runs, and there to be imported: a frame of messages, leases or dead letters may come from
`spark.read.format("skep")`, from the lake, or from a test.
"""
