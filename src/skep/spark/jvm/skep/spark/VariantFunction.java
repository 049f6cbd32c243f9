package skep.spark;

import com.fasterxml.jackson.databind.JsonNode;
import org.apache.spark.sql.connector.catalog.functions.BoundFunction;
import org.apache.spark.sql.connector.catalog.functions.ScalarFunction;
import org.apache.spark.sql.connector.catalog.functions.UnboundFunction;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.types.variant.Variant;
import org.apache.spark.types.variant.VariantUtil;
import org.apache.spark.unsafe.types.UTF8String;
import org.apache.spark.unsafe.types.VariantVal;

/**
 * The value at a path of keys in a variant; null when it has another type. Spark's own functions make an expression that casts for
 * each row; these only look at the type. All of them are public, since the code that Spark generates calls them.
 */
public abstract class VariantFunction<T> implements UnboundFunction, ScalarFunction<T> {
  private static final long serialVersionUID = 1L;
  private final String[] path;
  private final DataType result;

  private VariantFunction(JsonNode keys, DataType result) {
    path = new String[keys.size()];
    for (int i = 0; i < path.length; i++) {
      path[i] = keys.get(i).asText();
    }
    this.result = result;
  }

  /** A string, for a document like {@code {"text": ["address", "city"]}}. */
  public static final class Text extends VariantFunction<UTF8String> {
    private static final long serialVersionUID = 1L;

    Text(JsonNode keys) {
      super(keys, DataTypes.StringType);
    }

    /** Spark calls a method of this name. */
    public UTF8String invoke(VariantVal value) {
      Variant found = value == null ? null : at(value, 0);
      boolean fits = found != null && found.getType() == VariantUtil.Type.STRING;
      return fits ? UTF8String.fromString(found.getString()) : null;
    }
  }

  /** Whether the object at a path without its last key has that key; null when there is no object. */
  public static final class Has extends VariantFunction<Boolean> {
    private static final long serialVersionUID = 1L;

    Has(JsonNode keys) {
      super(keys, DataTypes.BooleanType);
    }

    /** Spark calls a method of this name. */
    public Boolean invoke(VariantVal value) {
      Variant owner = value == null ? null : at(value, 1);
      boolean fits = owner != null && owner.getType() == VariantUtil.Type.OBJECT;
      return fits ? (Boolean) (owner.getFieldByKey(last()) != null) : null;
    }
  }

  /** The value at the path without its last {@code without} keys; null when there is none. */
  final Variant at(VariantVal value, int without) {
    Variant found = new Variant(value.getValue(), value.getMetadata());
    for (int i = 0; i < path.length - without && found != null; i++) {
      found = found.getType() == VariantUtil.Type.OBJECT ? found.getFieldByKey(path[i]) : null;
    }
    return found;
  }

  final String last() {
    return path[path.length - 1];
  }

  @Override
  public BoundFunction bind(StructType input) {
    if (input.length() != 1 || !DataTypes.VariantType.equals(input.apply(0).dataType())) {
      throw new UnsupportedOperationException("a path is followed in one variant");
    }
    return this;
  }

  @Override
  public String description() {
    return name() + ": what is at a path of keys in a variant";
  }

  @Override
  public String name() {
    return "skep_variant";
  }

  @Override
  public String canonicalName() {
    return "skep.variant:" + getClass().getSimpleName() + ":" + String.join("\u0000", path);
  }

  @Override
  public DataType[] inputTypes() {
    return new DataType[] {DataTypes.VariantType};
  }

  @Override
  public DataType resultType() {
    return result;
  }
}
