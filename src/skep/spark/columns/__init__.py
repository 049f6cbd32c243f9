"""Expressions as Spark columns: one checked tree, compiled to a `Column` instead of Python functions.

The rule that makes it exact: **a column has a value only where it is certain that the evaluator of `skep.spec` has the same one; anywhere
else it is null**, and its caller gives these rows to the evaluator, which finds the value or the error.
SQL's logic of null is CEL's logic of errors (`null or true` is true, `null and true` is null), so nothing is paid for it.
"""

from skep.spark.columns.compiler import compile_column
from skep.spark.columns.message import message_columns
from skep.spark.columns.values import Uncompiled

__all__ = ["Uncompiled", "compile_column", "message_columns"]
