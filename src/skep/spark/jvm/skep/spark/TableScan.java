package skep.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.connector.read.SupportsPushDownV2Filters;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * One read of a table: the columns and the conditions that one query wants of it. A data source in Python is made for this scan alone,
 * so that no other query can get its rows. Streams have all columns and no conditions, since Spark pushes nothing down for them.
 */
final class TableScan implements Scan {
  /** The column that is read where a query wants none, to count rows: Spark's rows in Arrow have at least one. */
  private static final String CHEAPEST = "seq";

  private static final String BY_JAVA = "by_java";

  private final SkepTable table;
  private final CaseInsensitiveStringMap options;
  private final StructType columns;
  private final Conditions conditions;
  private Batch batch;
  private volatile boolean isStream;

  private TableScan(Builder wanted) {
    table = wanted.table;
    options = wanted.options;
    columns = wanted.columns;
    conditions = Conditions.of(List.of(wanted.predicates), column -> table.shape(options).filter(column));
  }

  @Override
  public StructType readSchema() {
    return columns;
  }

  @Override
  public String description() {
    return "PushedFilters: [" + String.join(", ", conditions.shown()) + "], ReadSchema: " + columns.simpleString();
  }

  @Override
  public synchronized Batch toBatch() {
    if (batch == null) {
      ObjectNode pushDown = Python.JSON.createObjectNode();
      JsonNode pinned = table.pinned(options);
      if (pinned != null) {
        pushDown.set("pinned", pinned);
      }
      conditions.writeTo(pushDown);
      pushDown.put(BY_JAVA, isByJava());
      Batch planned = scan(Python.with(options, pushDown)).toBatch();
      batch = isByJava() ? new LogBatch(planned, columns) : planned;
    }
    return batch;
  }

  @Override
  public MicroBatchStream toMicroBatchStream(String checkpointLocation) {
    isStream = true;
    return new MeteredStream(scan(options).toMicroBatchStream(checkpointLocation));
  }

  @Override
  public CustomMetric[] supportedCustomMetrics() {
    return scan(options).supportedCustomMetrics();
  }

  @Override
  public ColumnarSupportMode columnarSupportMode() {
    return isByJava() ? ColumnarSupportMode.SUPPORTED : ColumnarSupportMode.UNSUPPORTED;
  }

  /** Whether tasks read in Java: Python says so, which knows the options. Spark makes a stream of a scan before it asks for columns. */
  private boolean isByJava() {
    return !isStream && table.shape(options).document().path(BY_JAVA).booleanValue();
  }

  private Scan scan(CaseInsensitiveStringMap all) {
    return ((SupportsRead) Python.table(columns, all)).newScanBuilder(all).build();
  }

  /** Collects what Spark pushes down. */
  static final class Builder implements SupportsPushDownV2Filters, SupportsPushDownRequiredColumns {
    private final SkepTable table;
    private final CaseInsensitiveStringMap options;
    private StructType columns;
    private Predicate[] predicates = {};

    Builder(SkepTable table, CaseInsensitiveStringMap options) {
      this.table = table;
      this.options = options;
      columns = table.struct();
    }

    /** Spark evaluates all predicates again: what is sent fits the conditions, which may say less. */
    @Override
    public Predicate[] pushPredicates(Predicate[] all) {
      predicates = all;
      return all;
    }

    @Override
    public Predicate[] pushedPredicates() {
      return predicates;
    }

    /** Whole columns: parts of a struct are not pruned. */
    @Override
    public void pruneColumns(StructType required) {
      Set<String> names = new HashSet<>(Arrays.asList(required.fieldNames()));
      StructField[] all = table.struct().fields();
      if (names.isEmpty()) {
        boolean hasCheapest = Arrays.asList(table.struct().fieldNames()).contains(CHEAPEST);
        names.add(hasCheapest ? CHEAPEST : all[0].name());
      }
      columns = new StructType(Arrays.stream(all).filter(field -> names.contains(field.name())).toArray(StructField[]::new));
    }

    @Override
    public Scan build() {
      return new TableScan(this);
    }
  }
}
