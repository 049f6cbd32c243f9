package skep.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * Our data source in Python, which does all the work: what is in Java asks it and hands things on. Spark keeps at its object for a
 * Python data source what it planned last, so each use has an object of its own.
 */
final class Python {
  static final String SOURCE = "skep";
  static final ObjectMapper JSON = new ObjectMapper();
  private static final String PUSH_DOWN = "pushDown";
  private static final String ANSWER = "skep";

  private Python() {}

  /** An answer of `skep.spark.answers`: a schema, and a document beside it. */
  record Answer(StructType schema, JsonNode document) {
    /** How a column can be filtered, {@code set} or {@code range}; null when Spark alone filters it. */
    String filter(String column) {
      return document.path("filters").path(column).textValue();
    }
  }

  /** The answer was an error of Skep. PySpark shows an illegal argument as its message alone. */
  static final class SkepError extends IllegalArgumentException {
    private static final long serialVersionUID = 1L;
    final String code;

    SkepError(String code, String message) {
      super(message);
      this.code = code;
    }
  }

  static Answer ask(String question, Map<String, String> options) {
    StructType found = source().inferSchema(with(options, JSON.createObjectNode().put("asks", question)));
    StructField[] fields = found.fields();
    StructField last = fields[fields.length - 1];
    JsonNode document = parsed(last.metadata().getString(ANSWER));
    if (document.has("error")) {
      JsonNode error = document.get("error");
      throw new SkepError(error.get("code").textValue(), error.get("message").textValue());
    }
    return new Answer(new StructType(Arrays.copyOf(fields, fields.length - 1)), document);
  }

  /** The table that Spark makes of the data source. */
  static Table table(StructType schema, Map<String, String> options) {
    return source().getTable(schema, new Transform[0], options);
  }

  /** The options, and what is pushed down. */
  static CaseInsensitiveStringMap with(Map<String, String> options, JsonNode pushDown) {
    Map<String, String> all = new HashMap<>(options);
    all.put(PUSH_DOWN, pushDown.toString());
    return new CaseInsensitiveStringMap(all);
  }

  static List<JsonNode> listed(JsonNode array) {
    List<JsonNode> found = new ArrayList<>();
    array.forEach(found::add);
    return found;
  }

  static Map<String, String> texts(JsonNode object) {
    Map<String, String> found = new HashMap<>();
    object.properties().forEach(field -> found.put(field.getKey(), field.getValue().textValue()));
    return found;
  }

  private static PythonDataSourceV2 source() {
    PythonDataSourceV2 source = new PythonDataSourceV2();
    source.setShortName(SOURCE);
    return source;
  }

  static JsonNode parsed(String text) {
    try {
      return JSON.readTree(text);
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }
}
