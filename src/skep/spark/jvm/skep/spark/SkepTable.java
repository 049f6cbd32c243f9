package skep.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** A queue, several queues, or a table of the server. All reads of one such object have the same range of the log. */
class SkepTable implements Table, SupportsRead, SupportsWrite {
  private final String name;
  private final StructType schema;
  private final CaseInsensitiveStringMap options;
  private final Map<CaseInsensitiveStringMap, Python.Answer> shapes = new ConcurrentHashMap<>();
  private final Map<CaseInsensitiveStringMap, Optional<JsonNode>> ranges = new ConcurrentHashMap<>();

  SkepTable(String name, StructType schema, CaseInsensitiveStringMap options) {
    this.name = name;
    this.schema = schema;
    this.options = options;
  }

  /** What Python says of the table with these options, as far as it needs no server for that. */
  final Python.Answer shape(CaseInsensitiveStringMap all) {
    return shapes.computeIfAbsent(all, any -> Python.ask("schema", any));
  }

  /** The range of the log with these options, as it was when it was first asked for; null for a table of the server. */
  final JsonNode pinned(CaseInsensitiveStringMap all) {
    return ranges.computeIfAbsent(all, any -> Optional.ofNullable(Python.ask("table", any).document().get("pinned"))).orElse(null);
  }

  /** Take an answer that is known already. */
  final void know(CaseInsensitiveStringMap all, Python.Answer answer) {
    shapes.put(all, answer);
    if (answer.document().has("pinned")) {
      ranges.put(all, Optional.of(answer.document().get("pinned")));
    }
  }

  @Override
  public String name() {
    return name;
  }

  @Override
  public Column[] columns() {
    return Arrays.stream(schema.fields())
        .map(field -> Column.create(field.name(), field.dataType(), field.nullable(), field.getComment().getOrElse(() -> null), null))
        .toArray(Column[]::new);
  }

  /** The columns as a struct. */
  final StructType struct() {
    return schema;
  }

  @Override
  public Set<TableCapability> capabilities() {
    return Python.table(schema, options).capabilities();
  }

  @Override
  public ScanBuilder newScanBuilder(CaseInsensitiveStringMap given) {
    return new TableScan.Builder(this, joined(options, given));
  }

  @Override
  public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
    return ((SupportsWrite) Python.table(info.schema(), info.options())).newWriteBuilder(info);
  }

  /** The options of a table, and those of one query, which win. */
  static CaseInsensitiveStringMap joined(CaseInsensitiveStringMap options, CaseInsensitiveStringMap given) {
    Map<String, String> all = new HashMap<>(options.asCaseSensitiveMap());
    all.keySet().removeIf(given::containsKey);
    all.putAll(given.asCaseSensitiveMap());
    return new CaseInsensitiveStringMap(all);
  }
}
