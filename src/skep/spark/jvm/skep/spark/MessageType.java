package skep.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.Serializable;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/** The parts of a message type that a reader needs. */
final class MessageType implements Serializable {
  private static final long serialVersionUID = 1L;

  enum Kind {
    STRING(DataTypes.StringType),
    UUID(DataTypes.StringType),
    ENUM(DataTypes.StringType),
    INT(DataTypes.LongType),
    FLOAT(DataTypes.DoubleType),
    BOOL(DataTypes.BooleanType),
    TIME(DataTypes.LongType),
    JSON(DataTypes.VariantType),
    /** Any JSON, as its own text. */
    TEXT(DataTypes.StringType),
    LIST(null),
    MAP(null);

    final DataType sql;

    Kind(DataType sql) {
      this.sql = sql;
    }
  }

  /** The type of a value. A list or a map has an {@code element}, an enum has {@code choices}. */
  static final class Shape implements Serializable {
    private static final long serialVersionUID = 1L;
    final Kind kind;
    final byte[][] choices;
    final Shape element;

    private Shape(JsonNode node) {
      kind = Kind.valueOf(node.get("kind").asText().toUpperCase(java.util.Locale.ROOT));
      JsonNode words = node.get("choices");
      choices = new byte[words == null ? 0 : words.size()][];
      for (int i = 0; i < choices.length; i++) {
        choices[i] = words.get(i).asText().getBytes(StandardCharsets.UTF_8);
      }
      element = node.has("element") ? new Shape(node.get("element")) : null;
    }

    DataType sql() {
      switch (kind) {
        case LIST:
          return DataTypes.createArrayType(element.sql(), false);
        case MAP:
          return DataTypes.createMapType(DataTypes.StringType, element.sql(), false);
        default:
          return kind.sql;
      }
    }
  }

  /** A field: its key and its type, whether it must be there, and whether it may be null. */
  static final class Field implements Serializable {
    private static final long serialVersionUID = 1L;
    final byte[] key;
    final Shape shape;
    final boolean required;
    final boolean nullable;

    private Field(JsonNode node) {
      key = node.get("name").asText().getBytes(StandardCharsets.UTF_8);
      shape = new Shape(node);
      required = node.get("required").asBoolean();
      nullable = node.get("nullable").asBoolean();
    }
  }

  final Field[] fields;
  /** Whether undeclared keys are skipped; if not, a payload with such a key does not fit. */
  final boolean open;

  private MessageType(JsonNode document) {
    JsonNode nodes = document.get("fields");
    fields = new Field[nodes.size()];
    for (int i = 0; i < fields.length; i++) {
      fields[i] = new Field(nodes.get(i));
    }
    open = document.get("open").asBoolean();
  }

  static MessageType of(JsonNode document) {
    return new MessageType(document);
  }

  StructType struct() {
    StructField[] columns = new StructField[fields.length + 1];
    for (int i = 0; i < fields.length; i++) {
      String name = new String(fields[i].key, StandardCharsets.UTF_8);
      columns[i] = DataTypes.createStructField(name, fields[i].shape.sql(), true);
    }
    columns[fields.length] = DataTypes.createStructField(MessageFunction.PLAIN, DataTypes.BooleanType, false);
    return new StructType(columns);
  }

  /** The index of the field with this key, or -1. Fields mostly come in their declared order, so the search starts at {@code guess}. */
  int find(byte[] text, int from, int to, int guess) {
    for (int i = 0; i < fields.length; i++) {
      int place = guess + i;
      if (place >= fields.length) {
        place -= fields.length;
      }
      byte[] key = fields[place].key;
      if (key.length == to - from && Arrays.equals(key, 0, key.length, text, from, to)) {
        return place;
      }
    }
    return -1;
  }
}
