"""Expressions as Spark columns: one checked tree, compiled to a `Column` instead of Python functions.

The rule that makes it exact: **a column has a value only where the evaluator of `skep.spec` certainly has the same value; elsewhere
it is null**. The caller gives the null rows to the evaluator, which finds the value or the error.
Null in SQL's logic behaves as an error does in CEL's (`null or true` is true, `null and true` is null), so this costs nothing.
"""

from skep.spark.columns.compiler import compile_column
from skep.spark.columns.message import message_columns
from skep.spark.columns.values import Uncompiled

__all__ = ["Uncompiled", "compile_column", "message_columns"]
