"""Running pipelines: what reads, writes, counts, shows and reports around the functions of `skep.spark.pipelines`."""
