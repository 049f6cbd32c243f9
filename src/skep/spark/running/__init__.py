"""Run pipelines: input, output, figures and reports around the functions of `skep.spark.pipelines`."""
