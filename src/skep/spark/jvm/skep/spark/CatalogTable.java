package skep.spark;

import java.util.Arrays;
import java.util.Collections;
import java.util.EnumSet;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** A queue, or a table of the server, by its name in a catalog. */
final class CatalogTable extends SkepTable {
  private static final String QUEUE = "queue";
  private static final String PAYLOAD = "payload";

  /** Options that say what the name of a table says: its queue, and so its columns. */
  private static final List<String> NAMED = List.of("subscribe", "table", "columns", "spec", "typed", "rejects");

  /** Options that say what `VERSION AS OF` and `TIMESTAMP AS OF` say. */
  private static final List<String> VERSIONS = List.of("endingOffsets", "endingTimestamp", "offsetMeaning");

  private final Map<String, String> connection;
  private final String queue;
  private boolean isVersion;

  private CatalogTable(String name, Map<String, String> connection, String queue, CaseInsensitiveStringMap reading, Python.Answer answer) {
    super(name, answer.schema(), reading);
    this.connection = connection;
    this.queue = queue;
    know(reading, answer);
  }

  /** A queue, with the options of its reads and those of a version, which win; an error when it is not there. */
  static CatalogTable ofQueue(
      String name, Map<String, String> connection, String queue, Map<String, String> reading, Map<String, String> version) {
    Map<String, String> options = new HashMap<>(reading);
    options.putAll(version);
    // As JSON, since a name may have commas.
    options.put("subscribe", Python.JSON.createArrayNode().add(queue).toString());
    CatalogTable table = of(name, connection, queue, options);
    table.isVersion = !version.isEmpty();
    return table;
  }

  /** A table of the server. */
  static CatalogTable ofServer(String name, Map<String, String> connection, String table) {
    Map<String, String> options = new HashMap<>(connection);
    options.put("table", table);
    return of(name, connection, null, options);
  }

  private static CatalogTable of(String name, Map<String, String> connection, String queue, Map<String, String> options) {
    CaseInsensitiveStringMap reading = new CaseInsensitiveStringMap(options);
    return new CatalogTable(name, connection, queue, reading, Python.ask("table", reading));
  }

  /** A queue takes rows with any columns of a message, and the sink refuses all others. */
  @Override
  public Set<TableCapability> capabilities() {
    return queue == null
        ? EnumSet.of(TableCapability.BATCH_READ)
        : EnumSet.of(
            TableCapability.BATCH_READ,
            TableCapability.MICRO_BATCH_READ,
            TableCapability.BATCH_WRITE,
            TableCapability.STREAMING_WRITE,
            TableCapability.ACCEPT_ANY_SCHEMA);
  }

  @Override
  public Map<String, String> properties() {
    return Collections.singletonMap("provider", Python.SOURCE);
  }

  /** The options of a query must not say otherwise than its words. */
  @Override
  public ScanBuilder newScanBuilder(CaseInsensitiveStringMap given) {
    for (String option : NAMED) {
      if (given.containsKey(option)) {
        throw new IllegalArgumentException(
            name() + " has one queue and its columns: leave out the option " + option
                + ", or name it in a view: CREATE TEMPORARY VIEW … USING skep OPTIONS (…)");
      }
    }
    for (String option : VERSIONS) {
      if (isVersion && given.containsKey(option)) {
        throw new IllegalArgumentException(
            "the version of " + name() + " says where the read ends: leave out the option " + option + ", or VERSION AS OF and TIMESTAMP AS OF");
      }
    }
    return super.newScanBuilder(given);
  }

  @Override
  public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
    if (info.options().containsKey(QUEUE)) {
      throw new IllegalArgumentException("all rows go to " + name() + ": leave out the option queue");
    }
    List<String> columns = Arrays.asList(info.schema().fieldNames());
    if (!columns.contains(PAYLOAD)) {
      throw new IllegalArgumentException(
          "there is no column payload among " + String.join(", ", columns) + ". Name the columns: INSERT INTO " + name()
              + " (payload, partition) VALUES …, or SELECT to_json(struct(*)) AS payload …");
    }
    if (columns.contains(QUEUE)) {
      throw new IllegalArgumentException(
          "all rows go to " + name() + ": leave out the column queue. To write to several queues, use a DataFrame: frame.write.format(\"skep\")");
    }
    Map<String, String> options = new HashMap<>(connection);
    options.put(QUEUE, queue);
    return super.newWriteBuilder(new Rows(info, joined(new CaseInsensitiveStringMap(options), info.options())));
  }

  /** The rows of one query, with the options of the table. */
  private record Rows(LogicalWriteInfo info, CaseInsensitiveStringMap options) implements LogicalWriteInfo {
    @Override
    public String queryId() {
      return info.queryId();
    }

    @Override
    public StructType schema() {
      return info.schema();
    }

    @Override
    public Optional<StructType> rowIdSchema() {
      return info.rowIdSchema();
    }

    @Override
    public Optional<StructType> metadataSchema() {
      return info.metadataSchema();
    }
  }
}
