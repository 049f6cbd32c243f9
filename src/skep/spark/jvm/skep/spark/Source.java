package skep.spark;

import java.util.Map;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.sources.DataSourceRegister;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** `format("skep")` where this jar is: the data source in Python, and what its queries push down. Without the jar, Spark takes that one itself. */
public final class Source implements TableProvider, DataSourceRegister {
  private Python.Answer answer;

  @Override
  public String shortName() {
    return Python.SOURCE;
  }

  @Override
  public StructType inferSchema(CaseInsensitiveStringMap options) {
    answer = Python.ask("schema", options.asCaseSensitiveMap());
    return answer.schema();
  }

  @Override
  public Table getTable(StructType schema, Transform[] partitioning, Map<String, String> options) {
    CaseInsensitiveStringMap all = new CaseInsensitiveStringMap(options);
    SkepTable table = new SkepTable(Python.SOURCE, schema, all);
    if (answer != null) {
      table.know(all, answer);
    }
    return table;
  }

  /** The user may give the schema of a read; the schema of a write is that of its rows. */
  @Override
  public boolean supportsExternalMetadata() {
    return true;
  }
}
