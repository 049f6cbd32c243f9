package skep.spark;

import org.apache.spark.QueryContext;
import org.apache.spark.sql.AnalysisException;
import scala.Option;
import scala.collection.immutable.Map;

/**
 * A table of a catalog is not there, with the cure. It has Spark's own condition, by which tools know it. Spark's own exception would
 * be replaced by one without the cure, or by one that takes `skep.orders` for a file of the format skep.
 */
final class NoQueueException extends AnalysisException {
  private static final long serialVersionUID = 1L;
  private static final String CONDITION = "TABLE_OR_VIEW_NOT_FOUND";

  NoQueueException(String table, String cure) {
    super(
        "[" + CONDITION + "] " + cure,
        Option.empty(),
        Option.empty(),
        Option.empty(),
        Option.apply(CONDITION),
        new Map.Map1<>("relationName", table),
        new QueryContext[0]);
  }

  /** Throws it where Spark declares another exception alone. */
  @SuppressWarnings("unchecked")
  <E extends Exception> E undeclared() throws E {
    throw (E) this;
  }
}
